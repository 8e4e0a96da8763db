import { makeAuthority } from "../../support/fixtures/certificates.js";
import { startEtcd, type EtcdCluster, type EtcdMember } from "../../support/etcd/etcd.js";
import { PeerNetwork } from "../../support/proxies/peer-network.js";
import { startTcpProxy, type TcpProxy } from "../../support/proxies/tcp-proxy.js";
import { linkFaults, type Linked } from "../faults/links.js";
import { memberFaults, restartEtcd } from "../faults/members.js";
import { peerFaults, type Peered } from "../faults/peers.js";
import { refusingMembers, type Detoured } from "../faults/refusing-members.js";
import { moveLeader, storeFaults } from "../faults/store.js";
import { userFaults, type Peopled } from "../faults/users.js";
import { workerFaults } from "../faults/workers.js";
import type { GroundOptions, Tier } from "../runner/ground.js";
import { Door } from "./door.js";
import { etcdOptions, LinkedGround } from "./etcd-ground.js";

type Authority = ReturnType<typeof makeAuthority>;

interface Ways {
  readonly links: readonly TcpProxy[];
  readonly doors: readonly Door[];
  readonly peers: PeerNetwork;
  readonly authority: Authority | undefined;
}

/** Three members on loopback, with proxies in front of their client and peer addresses. */
class ThreeMembers extends LinkedGround implements Linked, Peered, Detoured, Peopled {
  readonly peers: PeerNetwork;
  readonly doors: readonly Door[];
  readonly #authority: Authority | undefined;
  #learner: Promise<EtcdMember> | undefined;

  constructor(etcd: EtcdCluster, { links, doors, peers, authority }: Ways) {
    super(etcd, links);
    this.peers = peers;
    this.doors = doors;
    this.#authority = authority;
  }

  override get hosts() {
    const scheme = this.#authority === undefined ? "http" : "https";
    return super.hosts.map((host) => host.replace("http", scheme));
  }

  override get access() {
    const root = this.#authority?.certificate.toString();
    return { ...super.access, ...(root !== undefined && { rootCertificate: root }) };
  }

  async learner() {
    return (await (this.#learner ??= this.etcd.addLearner())).clientPort;
  }

  override async stop() {
    await super.stop();
    await Promise.all(this.doors.map((door) => door.stop()));
    await this.peers[Symbol.asyncDispose]();
  }
}

async function start(options: GroundOptions): Promise<ThreeMembers> {
  const { oneAddress, tls } = options;
  const peers = new PeerNetwork();
  const etcd = await startEtcd({ members: 3, peerUrl: peers.peerUrl, ...etcdOptions(options) });
  const authority = tls ? makeAuthority("the lab's authority") : undefined;
  const doors = await Promise.all(
    etcd.members.map(({ name, clientPort }) => Door.open(clientPort, authority?.issue(name))),
  );
  const targets = doors.map((door) => () => ({ port: door.port }));
  const links = await Promise.all(
    oneAddress ? [startTcpProxy(targets)] : targets.map((to) => startTcpProxy(to)),
  );
  return new ThreeMembers(etcd, { links, doors, peers, authority }).addUsers(options);
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
    ...refusingMembers,
    ...storeFaults,
    ...userFaults,
    moveLeader,
  ],
  has: ["tls", "auth"],
  start,
};
