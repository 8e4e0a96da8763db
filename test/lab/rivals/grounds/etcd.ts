import { startEtcd, type EtcdCluster, type EtcdMember } from "../../../support/etcd/etcd.js";
import { encode } from "../../../support/clients/gateway-text.js";
import { PeerNetwork } from "../../../support/proxies/peer-network.js";
import { Observer } from "../../runner/observer.js";
import { Links } from "../links.js";
import { untilTrue } from "../patience.js";
import { PREFIX, type Ground, type Heal } from "./ground.js";

const PATIENCE_MS = 20_000;

export interface EtcdOptions {
  readonly members: 1 | 3;
  /** Whether the proxy must recognize single gRPC calls. */
  readonly calls: boolean;
}

export class EtcdGround implements Ground {
  readonly #cluster: EtcdCluster;
  readonly #peers: PeerNetwork;
  readonly #calls: boolean;
  readonly #links: Links[] = [];
  readonly observer: Observer;

  static async start({ members, calls }: EtcdOptions): Promise<EtcdGround> {
    const peers = new PeerNetwork();
    const cluster = await startEtcd({ members, ...(members > 1 && { peerUrl: peers.peerUrl }) });
    const { revision } = await cluster.member.status();
    const observer = new Observer(cluster.members, PREFIX, revision + 1n);
    return new EtcdGround(cluster, peers, observer, calls);
  }

  private constructor(cluster: EtcdCluster, peers: PeerNetwork, observer: Observer, calls: boolean) {
    this.#cluster = cluster;
    this.#peers = peers;
    this.#calls = calls;
    this.observer = observer;
  }

  get version() {
    return `etcd ${this.#cluster.version}`;
  }
  get members(): readonly EtcdMember[] {
    return this.#cluster.members;
  }

  async open(): Promise<Links> {
    const targets = this.members.map(({ clientPort }) => () => ({ port: clientPort }));
    const links = await Links.open(targets, { calls: this.#calls });
    this.#links.push(links);
    return links;
  }

  async keys(): Promise<string[]> {
    const leader = await this.#cluster.leader();
    const mark = await leader.status();
    await this.observer.until(() => this.observer.revision >= mark.revision, { timeoutMs: 500 });
    return this.observer.living(PREFIX);
  }

  /** Resolves with true when the queue of a name has this many places; false = not in time. */
  queued(name: string, places: number): Promise<boolean> {
    const enough = () => this.observer.living(`${name}/`).length >= places;
    return this.observer.until(enough, { timeoutMs: PATIENCE_MS });
  }

  async deleteKey(key: string): Promise<void> {
    await this.#cluster.member.gateway("/v3/kv/deleterange", { key: encode(key) });
  }

  /** Creates revisions and compacts all but the last. */
  async compact(): Promise<void> {
    const { member } = this.#cluster;
    let revision = "0";
    for (let n = 0; n < 5; n++) {
      const put = (await member.gateway("/v3/kv/put", { key: encode("elsewhere"), value: "" })) as Answer;
      revision = put.header.revision;
    }
    await member.gateway("/v3/kv/compaction", { revision });
  }

  /** Cuts off the member that a client uses from its peers; if it led, another member takes over. */
  async isolate(member: EtcdMember): Promise<Heal> {
    if ((await this.#cluster.leader()) === member) await this.#moveLeaderFrom(member);
    await this.#peers.cutOff(this.members, member);
    return async () => {
      await this.#peers.heal();
      await untilTrue(PATIENCE_MS, () => this.#agrees());
    };
  }

  /** A member that returns has called for elections in the meantime, and may cause one now. */
  async #agrees(): Promise<boolean> {
    const asked = this.members.map(async (member) => {
      await member.gateway("/v3/kv/range", { key: encode(PREFIX) });
      return member.status();
    });
    const all = await Promise.all(asked).catch(() => []);
    return new Set(all.map(({ raftTerm }) => raftTerm)).size === 1 && all.some(({ leader }) => leader);
  }

  async beforeFailOver(): Promise<void> {}

  async failOver(): Promise<Heal> {
    const leader = await this.#cluster.leader();
    await leader.kill();
    await this.#cluster.leader({ timeoutMs: PATIENCE_MS });
    return () => leader.restart();
  }

  async stop(): Promise<void> {
    await this.observer.stop();
    await Promise.all(this.#links.map((links) => links.stop()));
    await this.#cluster.stop();
    await this.#peers[Symbol.asyncDispose]();
  }

  async #moveLeaderFrom(leader: EtcdMember): Promise<void> {
    const other = this.members.find((member) => member !== leader);
    if (other === undefined) throw new RangeError("Expected more than one member");
    const { header } = (await other.gateway("/v3/maintenance/status", {})) as Answer;
    await leader.gateway("/v3/maintenance/transfer-leadership", { targetID: header.member_id });
    await this.#cluster.leader();
  }
}

interface Answer {
  readonly header: { readonly revision: string; readonly member_id: string };
}
