// An etcd inside this process, with the verbs of `startEtcd`. The code of the etcd is in `memory/`; here are its links, its entry in
// the table by which `connect` finds it, and what a test does to it.
import { randomUUID } from "node:crypto";
import { MEMORY, type MemoryEntries, type MemoryEntry, type NewMember } from "../etcd/transport.js";
import { SimEtcd } from "../memory/etcd.js";
import { Link, type LinkProfile } from "../memory/network/link.js";
import { SimMember } from "../memory/network/member.js";
import { LinkWire } from "../memory/network/wire.js";
import type { UnaryRequest } from "../memory/protocol.js";
import { Random } from "../memory/random.js";
import { type EtcdTime, RealTime, VirtualTime } from "../memory/time.js";
import { isReadonly } from "../memory/txn.js";
import { History } from "./history.js";
import { type Inside, InsideBackdoor, InsideMember, KEPT_CHANGES, nameOf, type Way } from "./inside.js";
import { checkAdvance, type CheckedMemory, checkMemory, checkRefusal, type CutMode } from "./options.js";
import type { MemoryEtcdOptions } from "./options.js";
import { RunningEtcd, type TestEtcd } from "./running-etcd.js";

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
class World implements Inside {
  readonly time: EtcdTime;
  readonly etcd: SimEtcd;
  readonly ways: readonly LinkWay[];
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
      ...{ keptChanges: KEPT_CHANGES, race: seed === undefined ? 0 : undefined },
      auth: auth && { ...auth, passwordMs: PASSWORD_MS },
      onExpiry: (member, leaseIds) => {
        for (const leaseId of leaseIds)
          this.history.add(`m${member}`, () => `lease ${leaseId.toString(16)} has expired`);
      },
    });
    // Another copy of this file may have started some, too, and no name is used again.
    const name = randomUUID().slice(0, 8);
    this.ways = this.etcd.members.map((_, index) => {
      const link = new Link(this.time, random.fork(`link ${index}`), loopback(mostMs));
      link.observer = this.history.observer(nameOf(index));
      return new LinkWay(`memory://${name}-${index}`, link);
    });
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
    const wire = new LinkWire(this.ways[index]!.link, this.etcd.members[index]!, end);
    return new SimMember(host, wire, { failures, clock, token: auth && token });
  };
}

/** Shared with all copies of the library in this process. */
function entries(): MemoryEntries {
  const shared = globalThis as unknown as Record<symbol, MemoryEntries | undefined>;
  return (shared[MEMORY] ??= new Map() as MemoryEntries);
}

/** The link of all clients to one member, as the member's state and the test have it. */
class LinkWay implements Way {
  #state: "runs" | "is paused" | "is dead" = "runs";
  #cut: CutMode | undefined;

  constructor(
    readonly host: string,
    readonly link: Link,
  ) {}

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
    if (this.#cut === "silent") this.link.reset();
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
    if (this.#state === "is dead" || this.#cut === "reset") this.link.set("cut");
    else this.link.set(this.#state === "is paused" || this.#cut === "silent" ? "black hole" : "up");
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
    for (const { link } of world.ways) link.losesAnswerTo = (request) => this.#loses(request as UnaryRequest);
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
