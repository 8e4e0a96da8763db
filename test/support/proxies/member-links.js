// One client's links to the members of a cluster, each through a separate proxy, so that a test can choose the member
// that this client uses first and cut only this link.
import { startTcpProxy } from "./tcp-proxy.js";

/** @typedef {import("../etcd/etcd.js").EtcdMember} EtcdMember */
/** @typedef {import("./tcp-proxy.js").TcpProxy} TcpProxy */

export class MemberLinks {
  #order;
  /** @type {Map<number, EtcdMember>} the member that an address leads to: determined on first use */
  #given = new Map();
  /** @type {TcpProxy[]} */
  #proxies = [];

  /** @param {readonly EtcdMember[]} order */
  constructor(order) {
    this.#order = order;
  }

  async open() {
    for (const index of this.#order.keys()) {
      this.#proxies.push(await startTcpProxy(() => ({ port: this.#memberAt(index).clientPort })));
    }
  }

  get hosts() {
    return this.#proxies.map((proxy) => proxy.endpoint);
  }

  /** @param {number} index */
  #memberAt(index) {
    const member = this.#given.get(index) ?? this.#order[this.#given.size];
    if (member === undefined) throw new RangeError("more addresses than members");
    this.#given.set(index, member);
    return member;
  }

  /** Members that this client has a connection to. */
  get inUse() {
    const used = [...this.#given].filter(([index]) => (this.#proxies[index]?.connections.length ?? 0) > 0);
    return used.map(([, member]) => member);
  }

  /** Packets to and from this member vanish, for this client only. @param {EtcdMember} member */
  async cut(member) {
    for (const [index, given] of this.#given)
      if (given === member) await this.#proxies[index]?.mode("blackhole");
  }

  async [Symbol.asyncDispose]() {
    await Promise.all(this.#proxies.map((proxy) => proxy.stop()));
  }
}

/**
 * Whichever address the client picks first leads to `first`.
 * @param {readonly EtcdMember[]} members @param {EtcdMember} first
 */
export async function linkTo(members, first) {
  const links = new MemberLinks([first, ...members.filter((member) => member !== first)]);
  await links.open();
  return links;
}
