import { startEtcd, type EtcdCluster } from "../../support/etcd.js";
import { PeerNetwork } from "../../support/peer-network.js";
import { startTcpProxy, type TcpProxy } from "../../support/tcp-proxy.js";
import { linkFaults, type Linked } from "../faults/links.js";
import { memberFaults, restartEtcd } from "../faults/members.js";
import { peerFaults, type Peered } from "../faults/peers.js";
import { moveLeader, storeFaults } from "../faults/store.js";
import { workerFaults } from "../faults/workers.js";
import type { GroundOptions, Tier } from "../lab/ground.js";
import { LinkedGround } from "./etcd-ground.js";

/** Three members on loopback, with proxies before their client and their peer addresses. */
class ThreeMembers extends LinkedGround implements Linked, Peered {
  readonly peers: PeerNetwork;

  constructor(etcd: EtcdCluster, links: readonly TcpProxy[], peers: PeerNetwork) {
    super(etcd, links);
    this.peers = peers;
  }

  override async stop() {
    await super.stop();
    await this.peers[Symbol.asyncDispose]();
  }
}

async function start({ etcdVersion, oneAddress }: GroundOptions): Promise<ThreeMembers> {
  const peers = new PeerNetwork();
  const version = etcdVersion !== undefined && { version: etcdVersion };
  const etcd = await startEtcd({ members: 3, peerUrl: peers.peerUrl, ...version });
  const targets = etcd.members.map(({ clientPort }) => ({ port: clientPort }));
  const links = await Promise.all(
    oneAddress ? [startTcpProxy(targets)] : targets.map((to) => startTcpProxy(to)),
  );
  return new ThreeMembers(etcd, links, peers);
}

export const t2: Tier<ThreeMembers> = {
  name: "t2",
  title: "three members on loopback",
  faults: [
    ...workerFaults,
    ...linkFaults,
    ...memberFaults,
    restartEtcd,
    ...peerFaults,
    ...storeFaults,
    moveLeader,
  ],
  start,
};
