// An etcd inside this process, with the verbs of `startEtcd`. The code of the etcd is in `memory/`; here are its links, its entry in
// the table by which `connect` finds it, and what a test does to it.
import { randomUUID } from "node:crypto";
import { MEMORY, type MemoryEntries, type MemoryEntry, type NewMember } from "../etcd/transport.js";
import { SimEtcd } from "../memory/etcd.js";
import { Link, type LinkProfile } from "../memory/network/link.js";
import { SimMember } from "../memory/network/member.js";
import { LinkWire } from "../memory/network/wire.js";
import { isRefusal, type UnaryRequest } from "../memory/protocol.js";
import { Random } from "../memory/random.js";
import { type EtcdTime, RealTime, VirtualTime } from "../memory/time.js";
import { type Applied, isReadonly } from "../memory/txn.js";
import { rangeOfPrefix } from "../memory/users.js";
import { History } from "./history.js";
import { checkAdvance, type CheckedMemory, checkMemory, checkRefusal, type CutMode } from "./options.js";
import type { MemoryEtcdOptions } from "./options.js";
import {
  asLeftovers,
  type Backdoor,
  type ClientLink,
  type Leftovers,
  type Member,
  RunningEtcd,
  type StartLimits,
  type TestEtcd,
} from "./running-etcd.js";

/** An etcd inside this process. */
export interface MemoryEtcd extends TestEtcd {
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
 * reaches it, in this process only.
 *
 * With `time: "virtual"`, time stands still until `advance()`: what takes a real etcd a while takes none, and no test depends on
 * the machine's speed. What needs no time, such as the answer to a request, happens by itself. `cluster.close()`, and methods of
 * this etcd that wait for something, move the time as far as they need.
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
class World {
  readonly time: EtcdTime;
  readonly etcd: SimEtcd;
  readonly members: readonly InsideMember[];
  readonly history: History;
  readonly #evenInProduction: boolean;

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
      auth: auth && { ...auth, passwordMs: PASSWORD_MS },
      onExpiry: (member, leaseIds) => {
        for (const leaseId of leaseIds)
          this.history.add(`m${member}`, () => `lease ${leaseId.toString(16)} has expired`);
      },
    });
    // Another copy of this file may have started some, too, and no name is used again.
    const name = randomUUID().slice(0, 8);
    this.members = this.etcd.members.map((_, index) => {
      const link = new Link(this.time, random.fork(`link ${index}`), loopback(mostMs));
      return new InsideMember(`memory://${name}-${index}`, link, { world: this, index });
    });
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
    const connected: MemoryEntry["connected"] = ({ closed }) => {
      let rest = (): void => {};
      closed.addEventListener("abort", () => (rest = time.run()), { once: true });
      return () => rest();
    };
    return { clock: time.clock, newMember: this.#newMember, connected };
  };

  readonly #newMember: NewMember = (host, { pingMs, token }, { options, failures }) => {
    const index = this.members.findIndex((member) => member.host === host);
    const { pingTimeoutMs, connectTimeoutMs, auth } = options;
    const { clock } = this.time;
    const end = {
      clock: { ...clock, deliver: (run: () => void) => run() },
      setting: { pingIntervalMs: pingMs, pingTimeoutMs, connectTimeoutMs },
    };
    const wire = new LinkWire(this.members[index]!.link, this.etcd.members[index]!, end);
    return new SimMember(host, wire, { failures, clock, token: auth && token });
  };
}

/** Shared with all copies of the library in this process. */
function entries(): MemoryEntries {
  const shared = globalThis as unknown as Record<symbol, MemoryEntries | undefined>;
  return (shared[MEMORY] ??= new Map() as MemoryEntries);
}

interface Place {
  readonly world: World;
  readonly index: number;
}

/** A member, and the link that all clients have to it. */
class InsideMember implements Member, ClientLink {
  readonly name: string;
  running = true;
  #paused = false;
  #cut: CutMode | undefined;

  constructor(
    readonly host: string,
    readonly link: Link,
    private readonly place: Place,
  ) {
    this.name = `m${place.index}`;
    link.observer = place.world.history.observer(this.name);
  }

  get awake(): boolean {
    return this.running && !this.#paused;
  }

  async start({ signal, timeoutMs }: StartLimits): Promise<void> {
    const { world, index } = this.place;
    this.#note("starts");
    this.running = true;
    world.etcd.restart(index);
    this.#connect();
    const { cluster } = world.etcd;
    const answers = (): boolean => cluster === undefined || cluster.nodes[index]!.lead?.leading === true;
    if (await world.time.until(answers, timeoutMs, signal ?? new AbortController().signal)) return;
    throw new Error(`etcd ${this.name} does not answer within ${timeoutMs} ms: it knows no leader`);
  }

  kill(): Promise<void> {
    if (this.running) {
      this.#note("is killed");
      this.running = this.#paused = false;
      this.#connect();
      this.place.world.etcd.kill(this.place.index);
    }
    return Promise.resolve();
  }

  pause(): Promise<void> {
    if (this.awake) {
      this.#note("is paused");
      this.#paused = true;
      this.#connect();
      this.place.world.etcd.pause(this.place.index);
    }
    return Promise.resolve();
  }

  resume(): Promise<void> {
    if (this.#paused) {
      this.#note("runs again");
      this.#paused = false;
      this.place.world.etcd.resume(this.place.index);
      this.#connect();
    }
    return Promise.resolve();
  }

  cut(how: CutMode): void {
    this.#note(`has its link cut (${how})`);
    this.#cut = how;
    this.#connect();
  }

  heal(): void {
    if (this.#cut === undefined) return;
    this.#note("has its link healed");
    if (this.#cut === "silent") this.link.reset();
    this.#cut = undefined;
    this.#connect();
  }

  close(): Promise<void> {
    return this.kill();
  }

  #note(what: string): void {
    this.place.world.history.add(this.name, () => what);
  }

  #connect(): void {
    if (!this.running || this.#cut === "reset") this.link.set("cut");
    else this.link.set(this.#paused || this.#cut === "silent" ? "black hole" : "up");
  }
}

/** Requests of an administrator, past the links. */
class InsideBackdoor implements Backdoor {
  constructor(
    private readonly world: World,
    private readonly over: AbortSignal,
  ) {}

  async revoke(leaseId: bigint): Promise<void> {
    this.world.history.add("  ", () => `the test revokes lease ${leaseId.toString(16)}`);
    const result = await this.#ask({ kind: "revoke", leaseId });
    if (isRefusal(result)) throw new Error(`etcd has no lease ${leaseId.toString(16)}`);
  }

  async remove(keys: readonly string[], revision: bigint): Promise<boolean> {
    this.world.history.add("  ", () => `the test deletes ${keys.join(", ")}`);
    const compare = keys.map((key) => ({ kind: "created at", key, revision }) as const);
    const success = keys.map((key) => ({ kind: "delete", key }) as const);
    const result = await this.#ask({ kind: "txns", txns: [{ queues: [], compare, success, failure: [] }] });
    return (result as { txns: { succeeded: boolean }[] }).txns[0]!.succeeded;
  }

  async keys(prefix: string): Promise<string[]> {
    const { key, end = "" } = rangeOfPrefix(prefix);
    const range = { key: Buffer.from(key, "latin1"), end: end === "" ? "\0" : Buffer.from(end, "latin1") };
    const result = await this.#ask({ kind: "range", range });
    return (result as { kvs: { key: Buffer }[] }).kvs.map((kv) => kv.key.toString());
  }

  async leftovers(): Promise<Leftovers> {
    const keys = await this.keys("");
    const { leases, watches } = this.world.etcd;
    return asLeftovers({ keys, leases: leases.all.map(({ leaseId }) => leaseId), watches });
  }

  async leader(): Promise<number> {
    const { etcd, members } = this.world;
    const find = (): number | undefined =>
      etcd.cluster ? etcd.cluster.leader?.node.index : members[0]!.awake ? 0 : undefined;
    await this.world.time.until(() => find() !== undefined, LIMIT_MS, this.over);
    const found = find();
    if (found === undefined) throw new Error(`No member leads within ${LIMIT_MS} ms`);
    return found;
  }

  async #ask(request: Applied): Promise<object> {
    const { etcd, members, time } = this.world;
    const noneIsAwake = (): boolean => members.every(({ awake }) => !awake);
    let result: object | undefined;
    const ask = (): boolean => noneIsAwake() || (result = etcd.execute(request)) !== undefined;
    await time.until(ask, LIMIT_MS, this.over);
    if (result !== undefined) return result;
    throw new Error(
      `No answer of etcd: ${noneIsAwake() ? "every member is paused or killed" : "no member leads"}`,
    );
  }
}

const LIMIT_MS = 10_000;

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
    for (const { link } of members) link.losesAnswerTo = (request) => this.#loses(request as UnaryRequest);
  }

  override async advance(ms: number): Promise<void> {
    const checked = checkAdvance(ms);
    await this.during((over) => this.#world.time.advance(checked, over));
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
  request.kind === "txns" ? !isReadonly(request.txns) : request.kind === "grant" || request.kind === "revoke";
