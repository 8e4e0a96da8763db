// The network between the members of a cluster, made of proxies: cuts one member off from its peers while its clients
// still reach it, without root.
import { startTcpProxy } from "./tcp-proxy.js";

/** @typedef {Pick<import("../etcd/etcd.js").EtcdMember, "gateway">} Member */

export class PeerNetwork {
  /** @type {import("./tcp-proxy.js").TcpProxy[]} */
  #proxies = [];
  #cut = false;

  /** Pass this to `startEtcd`. */
  peerUrl = async (/** @type {number} */ index, /** @type {number} */ peerPort) => {
    const proxy = await startTcpProxy({ port: peerPort });
    this.#proxies[index] = proxy;
    return proxy.port;
  };

  /**
   * Cuts both directions: what peers send to it, and what it sends to them, which is recognized by the sender's ID that
   * etcd
   * puts into the header of its raft connections. Renewals of leases that it forwards to the leader have no ID and
   * pass: a
   * client's keepalive continues until the member notices that it has no leader, which is the harder case for the
   * client.
   * @param {readonly Member[]} members in the order in which they were started @param {Member} member
   */
  async cutOff(members, member) {
    this.#cut = true;
    const { header } = await member.gateway("/v3/maintenance/status", {});
    const sender = `x-server-from: ${BigInt(header.member_id).toString(16)}`;
    for (const [index, proxy] of this.#proxies.entries()) {
      if (members[index] === member) await proxy.mode("blackhole");
      else proxy.modeWhere("blackhole", ({ head }) => head.toString("latin1").toLowerCase().includes(sender));
    }
  }

  async heal() {
    if (!this.#cut) return;
    this.#cut = false;
    for (const proxy of this.#proxies) {
      await proxy.mode("pass");
      // Connections that were opened in vain are reopened at once instead of after etcd's own timeout.
      proxy.reset();
    }
  }

  async [Symbol.asyncDispose]() {
    await Promise.all(this.#proxies.map((proxy) => proxy.stop()));
  }
}
