// An etcd inside this process, with the verbs of `startEtcd`. The code of the etcd is in `testing/memory/`; here are its links, its entry in
// the table by which `connect` finds it, and what a test does to it.
import { randomUUID } from "node:crypto";
import { MEMORY, type MemoryEntries, type MemoryEntry, type NewMember } from "../etcd/transport.js";
import type { Cluster } from "../index.js";
import { SimEtcd } from "./memory/etcd.js";
import { oneTxn, onlyReads } from "./memory/kv.js";
import { Link, type LinkProfile, type LinkState } from "./memory/network/link.js";
import { SimMember } from "./memory/network/member.js";
import { type CallListener, LinkWire } from "./memory/network/wire.js";
import type { UnaryRequest } from "./memory/protocol.js";
import { Random } from "./memory/random.js";
import { type EtcdTime, RealTime, VirtualTime } from "./memory/time.js";
import { History } from "./history.js";
import { type Inside, InsideBackdoor, InsideMember, KEPT_CHANGES, nameOf, type Way } from "./inside.js";
import {
  checkAdvance,
  checkClient,
  checkCut,
  type CheckedMemory,
  checkMember,
  checkMemory,
  checkRefusal,
  type CutMode,
} from "./options.js";
import type { MemoryEtcdOptions } from "./options.js";
import { RunningEtcd, type TestEtcd } from "./running-etcd.js";

/** What can happen to one client while the others go on. A call that names no member is about all of them. */
export interface MemoryClient {
  /**
   * Cuts the link between this client and a member, as `cut()` of the etcd does for all clients. Without a link, its locks are held
   * until their deadline, 0.9 of the TTL after the last renewal.
   */
  cut(member?: number, options?: { readonly how?: "silent" | "reset" | undefined }): Promise<void>;
  /** Ends `cut()` of this client, not that of all clients. */
  heal(member?: number): Promise<void>;
  /**
   * As if the process of this client had been killed: its connections end, and from now on nothing that it sends reaches etcd. Its
   * keys stay until etcd has waited for the TTL of its lease. The time does not move.
   *
   * The code that uses the client still runs, and finds it closed: its locks are lost (`loss: "closed"`), calls that wait
   * reject with `SessionClosedError`, and so do later ones. `close()` ends at once. Idempotent; `cut()` and `heal()` reject after it.
   */
  crash(): Promise<void>;
}

/** An etcd inside this process. */
export interface MemoryEtcd extends TestEtcd {
  /**
   * One client, for faults that the others do not notice.
   * @throws {TypeError} if it is no cluster that `connect` has made for the hosts of this etcd.
   */
  client(cluster: Cluster): MemoryClient;
  /**
   * The answer to the next write, of whatever client, is lost: etcd executes it, and the client's connection is reset. The client
   * sends its request again after a pause.
   */
  loseAnswer(): Promise<void>;
  /**
   * "quota": from now on etcd rejects new keys and leases, as when its disk quota is used up. "nothing" ends that.
   * @throws {TypeError | RangeError} for any other value.
   */
  refuse(what: "quota" | "nothing"): Promise<void>;
  /**
   * What has happened so far, for the output of a failed test: one line for each answer, watch event and fault, with the
   * milliseconds since the start. The last 1,000 lines.
   */
  history(): string;
}

/**
 * Starts an etcd inside this process, for tests: without a socket, a program or a download, and without a disk: it keeps nothing.
 * It answers as etcd does, with users, leases, watches and three members that elect a leader. `connect({ hosts: etcd.hosts })`
 * reaches it, in this process and realm only, without the options `transport` and `credentials`.
 *
 * With `time: "virtual"`, time stands still until `advance()`: what takes a real etcd a while takes none, and no test depends on
 * the machine's speed. What needs no time, such as the answer to a request, happens by itself. `cluster.close()`, and methods of
 * this etcd that wait for something, move the time as far as they need.
 *
 * Its memory is bounded: besides the present keys, it keeps the last 10,000 to 12,000 changes, about 10 MB, or 30 MB with three
 * members. A lock and its release are two changes; a value longer than 4 KiB counts as several. While a member is killed, paused or
 * behind, the others keep all that it misses.
 *
 * With NODE_ENV=production, `connect` refuses its hosts unless `evenInProduction` is set.
 * @throws {TypeError | RangeError} on bad options.
 */
// eslint-disable-next-line @typescript-eslint/require-await -- as startEtcd, so that a test moves from one to the other by one line
export async function memoryEtcd(options?: MemoryEtcdOptions): Promise<MemoryEtcd> {
  return new InsideEtcd(new World(checkMemory(options)));
}

/** A connection on the loopback. */
const loopback = (mostMs: number): LinkProfile => ({
  latencyMs: [0, mostMs],
  ...{ slow: 0, slowMs: 0, loseRequest: 0, loseAnswer: 0, late: 0 },
});
/** With a seed, messages overtake others by so much. Three round trips are still an instant. */
const MOST_MS = 0.1;
/** In virtual time, what etcd does in a loop takes no time. */
const LOOP_MS = 0.5;
/** etcd takes 60 ms for a password. */
const PASSWORD_MS = 0;

/** The etcd, its time, and its links. */
class World implements Inside {
  /** Whether the answer to this request is lost. */
  loses: (request: UnaryRequest) => boolean = () => false;
  readonly clients = new WeakMap<object, InsideClient>();
  readonly time: EtcdTime;
  readonly etcd: SimEtcd;
  readonly ways: readonly LinkWay[];
  readonly members: readonly InsideMember[];
  readonly history: History;
  readonly #evenInProduction: boolean;
  readonly #newLink: (client: number, member: number) => Link;
  #clientCount = 0;

  constructor({ seed, time, version, members, auth, evenInProduction }: CheckedMemory) {
    const random = new Random(seed ?? "");
    const mostMs = seed === undefined ? 0 : MOST_MS;
    const virtual = time === "virtual";
    this.time = virtual ? new VirtualTime(random.fork("clients")) : new RealTime();
    const { now: start } = this.time;
    this.history = new History(() => this.time.now - start);
    this.etcd = new SimEtcd({
      ...{ scheduler: this.time, random: random.fork("etcd"), version, members },
      ...{ peerLatencyMs: mostMs, loopMs: virtual ? LOOP_MS : undefined },
      ...{ keptChanges: KEPT_CHANGES, race: seed === undefined ? 0 : undefined },
      auth: auth && { ...auth, passwordMs: PASSWORD_MS },
      onExpiry: (member, leaseIds) => {
        for (const leaseId of leaseIds)
          this.history.add(`m${member}`, () => `lease ${leaseId.toString(16)} has expired`);
      },
    });
    // Another copy of this file may have started some, too, and no name is used again.
    const name = randomUUID().slice(0, 8);
    this.ways = this.etcd.members.map((_, index) => new LinkWay(`memory://${name}-${index}`));
    this.#newLink = (client, member) => {
      const link = new Link(this.time, random.fork(`link ${client} ${member}`), loopback(mostMs));
      link.observer = this.history.observer(nameOf(member));
      link.losesAnswerTo = (request) => this.loses(request as UnaryRequest);
      return link;
    };
    this.members = this.ways.map((way, index) => new InsideMember(way, { inside: this, index }));
    this.#evenInProduction = evenInProduction;
    for (const { host } of this.members) entries().set(host, this.#entry);
  }

  /** Closes the way of new clusters. */
  close(): void {
    for (const { host } of this.members) entries().delete(host);
    this.time.stop();
  }

  readonly #entry = (): MemoryEntry => {
    if (process.env["NODE_ENV"] === "production" && !this.#evenInProduction)
      throw new RangeError(
        "Expected hosts to be those of an etcd that keeps its data, as NODE_ENV is production: " +
          "memoryEtcd({ evenInProduction: true }) allows one that keeps nothing",
      );
    const { time } = this;
    const count = this.#clientCount++;
    const client = new InsideClient(this, `c${count}`, (member) => this.#newLink(count, member));
    const connected: MemoryEntry["connected"] = ({ closed }) => {
      let rest = (): void => {};
      closed.addEventListener("abort", () => (rest = time.run()), { once: true });
      return () => {
        rest();
        client.disconnected();
      };
    };
    const made = (cluster: object): void => void this.clients.set(cluster, client);
    return { clock: time.clock, newMember: client.newMember, connected, made };
  };
}

/** Shared with all copies of the library in this process. */
function entries(): MemoryEntries {
  const shared = globalThis as unknown as Record<symbol, MemoryEntries | undefined>;
  return (shared[MEMORY] ??= new Map() as MemoryEntries);
}

/** The links of all clients to one member, as the member's state and the test have them. */
class LinkWay implements Way {
  #state: "runs" | "is paused" | "is dead" = "runs";
  #cut: CutMode | undefined;
  readonly #links = new Set<ClusterLink>();
  /** Those whose clusters are closed. etcd may still have streams of theirs, which a fault ends. */
  readonly #left = new Set<ClusterLink>();

  constructor(readonly host: string) {}

  get state(): LinkState {
    if (this.#state === "is dead") return "cut";
    return worse(stateOf(this.#cut), this.#state === "is paused" ? "black hole" : "up");
  }

  add(link: ClusterLink): void {
    this.#forget();
    this.#links.add(link);
  }

  remove(link: ClusterLink): void {
    this.#left.add(link);
    this.#forget();
  }

  start(): Promise<void> {
    return this.#become("runs");
  }

  kill(): Promise<void> {
    return this.#become("is dead");
  }

  pause(): void {
    void this.#become("is paused");
  }

  resume(): void {
    void this.#become("runs");
  }

  cut(how: CutMode): void {
    this.#cut = how;
    this.#connect();
  }

  heal(): void {
    if (this.#cut === "silent") for (const { link } of this.#links) link.reset();
    this.#cut = undefined;
    this.#connect();
  }

  close(): Promise<void> {
    return this.kill();
  }

  #become(state: "runs" | "is paused" | "is dead"): Promise<void> {
    this.#state = state;
    this.#connect();
    return Promise.resolve();
  }

  #connect(): void {
    for (const link of this.#links) link.connect();
    this.#forget();
  }

  #forget(): void {
    for (const each of this.#left) {
      if (each.link.serverEnds.size > 0) continue;
      this.#left.delete(each);
      this.#links.delete(each);
    }
  }
}

const stateOf = (cut: CutMode | undefined): LinkState =>
  cut === "reset" ? "cut" : cut === "silent" ? "black hole" : "up";

const worse = (one: LinkState, other: LinkState): LinkState =>
  one === "cut" || other === "up" ? one : other;

/** The link of one cluster to one member: it is what the worse of both faults makes of it. */
class ClusterLink {
  #cut: CutMode | undefined;

  constructor(
    readonly link: Link,
    private readonly way: LinkWay,
  ) {
    way.add(this);
    this.connect();
  }

  cut(how: CutMode): void {
    this.#cut = how;
    this.connect();
  }

  heal(): void {
    if (this.#cut === "silent") this.link.reset();
    this.#cut = undefined;
    this.connect();
  }

  connect(): void {
    this.link.set(worse(this.way.state, stateOf(this.#cut)));
  }

  remove(): void {
    this.way.remove(this);
  }
}

/** The links of one cluster, in the order of the members. */
class InsideClient {
  hasCrashed = false;
  readonly links: readonly ClusterLink[];

  constructor(
    private readonly world: World,
    private readonly name: string,
    newLink: (member: number) => Link,
  ) {
    this.links = world.ways.map((way, index) => new ClusterLink(newLink(index), way));
  }

  cut(links: readonly ClusterLink[], how: CutMode): void {
    this.#note(links, `is cut off (${how})`);
    for (const link of links) link.cut(how);
  }

  heal(links: readonly ClusterLink[]): void {
    this.#note(links, "is connected again");
    for (const link of links) link.heal();
  }

  crash(): void {
    this.#note(this.links, "has crashed");
    this.hasCrashed = true;
    for (const link of this.links) link.cut("reset");
  }

  disconnected(): void {
    for (const link of this.links) link.remove();
  }

  readonly newMember: NewMember = (host, { pingMs, token }, { options, failures }) => {
    const { etcd, time, members } = this.world;
    const index = members.findIndex((member) => member.host === host);
    const { pingTimeoutMs, connectTimeoutMs, auth } = options;
    const { clock } = time;
    const end = {
      clock: { ...clock, deliver: (run: () => void) => run() },
      setting: { pingIntervalMs: pingMs, pingTimeoutMs, connectTimeoutMs },
    };
    const wire = new ClientWire(this, this.links[index]!.link, etcd.members[index]!, end);
    return new SimMember(host, wire, { failures, clock, token: auth && token });
  };

  #note(links: readonly ClusterLink[], what: string): void {
    const members = this.links.flatMap((link, index) => (links.includes(link) ? [nameOf(index)] : []));
    this.world.history.add(this.name, () => `${what}: ${members.join(", ")}`);
  }
}

const CRASHED = { refused: "the client has crashed", code: 7 };

/** After a crash, a call is refused: one that gets no answer is repeated while its lease may live, and a close waits for that. */
class ClientWire extends LinkWire {
  constructor(
    private readonly client: Pick<InsideClient, "hasCrashed">,
    ...wire: ConstructorParameters<typeof LinkWire>
  ) {
    super(...wire);
  }

  override call(request: UnaryRequest, listener: CallListener): () => void {
    if (!this.client.hasCrashed) return super.call(request, listener);
    listener.replied(CRASHED);
    return () => {};
  }
}

class InsideEtcd extends RunningEtcd implements MemoryEtcd {
  readonly #world: World;
  #losesNext = false;

  constructor(world: World) {
    const { members, time, etcd } = world;
    const remove = (): Promise<void> => Promise.resolve(world.close());
    super({ members, version: etcd.version, remove }, members, {
      backdoor: (_, over) => new InsideBackdoor(world, over),
      until: (is, limitMs, over) => time.until(is, limitMs, over),
    });
    this.#world = world;
    world.loses = (request) => this.#loses(request);
  }

  override async advance(ms: number): Promise<void> {
    const checked = checkAdvance(ms);
    await this.during((over) => this.#world.time.advance(checked, over));
  }

  client(cluster: Cluster): MemoryClient {
    const client = checkClient(this.#world.clients, cluster);
    const change = (run: () => void): Promise<void> =>
      this.during(() => {
        if (client.hasCrashed) throw new Error("This client has crashed");
        run();
        return Promise.resolve();
      });
    return {
      cut: async (member, options) => {
        const how = checkCut(options);
        const links = checkMember(client.links, member);
        await change(() => client.cut(links, how));
      },
      heal: async (member) => {
        const links = checkMember(client.links, member);
        await change(() => client.heal(links));
      },
      crash: async () => {
        if (!client.hasCrashed) await change(() => client.crash());
        await cluster.close({ drainMs: 0 });
      },
    };
  }

  loseAnswer(): Promise<void> {
    return this.during(() => {
      this.#losesNext = true;
      return Promise.resolve();
    });
  }

  async refuse(what: "quota" | "nothing"): Promise<void> {
    const checked = checkRefusal(what);
    await this.during(() => {
      const { quota } = this.#world.etcd;
      if (checked === "quota") quota.fill();
      else quota.clear();
      return Promise.resolve();
    });
  }

  history(): string {
    return this.#world.history.toString();
  }

  #loses(request: UnaryRequest): boolean {
    if (!this.#losesNext || !isWrite(request)) return false;
    this.#losesNext = false;
    this.#world.history.add("  ", () => "the answer to a write is lost, with its connection");
    return true;
  }
}

const isWrite = (request: UnaryRequest): boolean =>
  request.kind === "txns"
    ? !onlyReads(oneTxn(request.txns))
    : request.kind === "grant" || request.kind === "revoke";
