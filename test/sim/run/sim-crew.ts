import type { Member } from "../../../src/etcd/port.js";
import { BARRIERS, delayedBy, delayLeaseOf, LATCHES, MARKS } from "../../../src/keys.js";
import type { AuthOptions } from "../../../src/testing/memory/users.js";
import type { Random } from "../../../src/testing/memory/random.js";
import { SimEtcd } from "../../../src/testing/memory/etcd.js";
import type { SimServer, SimVersion } from "../../../src/testing/memory/protocol.js";
import { CORRECT, type Behavior } from "../http2/behavior.js";
import type { Kernel } from "../kernel/kernel.js";
import { CALM, type LinkProfile, type LinkState } from "../../../src/testing/memory/network/link.js";
import { SimNode } from "../node/sim-node.js";
import type { Build } from "./build.js";
import { ServerEvents } from "./server-events.js";
import { SimMembers } from "./sim-members.js";
import { SimWorker, type Work } from "./sim-worker.js";

/** What a fault does to the links of a process. */
export type Hindrance = "cut" | "blackhole" | "lose-requests" | "lose-answers" | "slow" | "lossy";

const STATES: Partial<Record<Hindrance, LinkState>> = {
  cut: "cut",
  blackhole: "black hole",
  "lose-requests": "requests lost",
  "lose-answers": "answers lost",
};

/** Up to more than a request timeout: calls are executed after their callers gave up. */
const SLOW: LinkProfile = { ...CALM, slow: 0.3, slowMs: 2500 };
const LOSSY: LinkProfile = { ...CALM, loseRequest: 0.1, loseAnswer: 0.2 };

export interface CrewOptions {
  readonly kernel: Kernel;
  readonly version: SimVersion;
  readonly count: number;
  readonly requestTimeoutMs: number;
  readonly build: Build;
  /** The prefix of all locks' keys. */
  readonly places: string;
  readonly work: Omit<Work, "leasehold"> & {
    readonly members?: number | undefined;
    /** The processes have the client's own transport. */
    readonly transport?: boolean | undefined;
    readonly oneAddress?: boolean | undefined;
    /** etcd requires a password, which the processes have. */
    readonly auth?: boolean | undefined;
    /** A worker thread of each process renews its leases, up to a stall of so long. */
    readonly maxStallMs?: number | undefined;
    /** A guardian of each process revokes its leases when it is killed. */
    readonly guardian?: boolean | undefined;
  };
}

/** What a guardian takes for a revocation, at most, and its pause before the next one. */
const GUARDIAN_MS = 50;
const REVOKE_AGAIN_MS = 500;

/** As long as a call of `enlist` tries by default. The TTL of a latch is a minute at least. */
const LATCH_MS = 10_000;

const USER = { username: "worker", password: "secret" };
const AUTH: AuthOptions = {
  users: { [USER.username]: { password: USER.password, roles: ["sim"] } },
  roles: { sim: { readwrite: ["sim/", ...[MARKS, LATCHES, BARRIERS].map((keys) => `${keys}sim/`)] } },
};

/** The simulated etcd, and the processes that work with it. */
export class SimCrew {
  readonly etcd: SimEtcd;
  readonly members: SimMembers;
  /** Of the members towards processes that have the client's own transport. */
  readonly behavior: Behavior = { ...CORRECT };
  /** What has happened in etcd. */
  readonly server: ServerEvents;
  readonly #nodes: readonly SimNode[];
  readonly #workers: SimWorker[] = [];
  readonly #lives: number[];
  readonly #guardians: Random;

  constructor(private readonly options: CrewOptions) {
    const { kernel, version, count, work } = options;
    this.#guardians = kernel.random.fork("guardians");
    const { members = 1 } = work;
    const random = kernel.random.fork("etcd");
    this.etcd = new SimEtcd({
      scheduler: kernel,
      random,
      version,
      members,
      auth: work.auth ? AUTH : undefined,
    });
    this.members = new SimMembers(this.etcd, (place) => this.#nodes.map(({ links }) => links[place]!));
    this.server = new ServerEvents(options.work.history.next);
    this.etcd.store.onChange((change) => this.server.add(change));
    this.#lives = Array.from({ length: count }, () => 0);
    this.#nodes = this.#lives.map((_, n) => this.#newNode(n));
  }

  /** The processes have the client's own transport. */
  get overTransport(): boolean {
    return this.options.work.transport === true;
  }

  /** The present incarnations. */
  get processes(): readonly string[] {
    return this.#lives.map((life, n) => `w${n}.${life}`);
  }

  readonly workers = (): readonly SimWorker[] => this.#workers;

  get nodes(): readonly SimNode[] {
    return this.#nodes;
  }

  start(): void {
    this.#nodes.forEach((_, n) => this.#startWorker(n));
  }

  pause(p: string): void {
    this.#node(p).pause();
  }

  /** The machine of the process sleeps until `resume()`. */
  suspend(p: string): void {
    this.#node(p).suspend();
  }

  /** The main thread of the process runs one loop until `unblock()`. */
  block(p: string): void {
    this.#node(p).block();
  }

  unblock(p: string): void {
    this.#node(p).unblock();
  }

  resume(p: string): void {
    this.#node(p).resume();
  }

  kill(p: string): void {
    const leases = this.options.work.guardian ? this.#leasesOf(p) : [];
    this.#node(p).kill();
    this.#workers[numberOf(p)]?.killed();
    const { kernel, work } = this.options;
    const { ttlSeconds, releaseDelayMs = 0 } = work;
    for (const lease of leases) {
      const revoked = (): void => {
        const delay = delayLeaseOf(BigInt(`0x${lease}`)).toString(16);
        if (releaseDelayMs > 0) kernel.after(releaseDelayMs, () => void this.revoke(delay));
      };
      kernel.after(this.#guardians.between(0, GUARDIAN_MS), () =>
        this.#revokeUntil(kernel.now + ttlSeconds * 1000, lease, revoked),
      );
    }
  }

  /** Without delay leases: a guardian revokes them the delay after the others. */
  #leasesOf(p: string): readonly string[] {
    // The entry of a shard may name another process, for which it was meant before.
    const keys = this.livingKeys().filter(
      (key) => this.server.of(key)!.value.includes(`"owner":"${p}/`) && delayedBy(key) === undefined,
    );
    return [...new Set(keys.map((key) => this.leaseOf(key)))];
  }

  /** While etcd has no leader, it is tried again. At the end of the TTL, the lease has expired by itself. */
  #revokeUntil(end: number, lease: string, revoked: () => void): void {
    const { kernel } = this.options;
    if (kernel.now >= end) return;
    if (this.revoke(lease) === undefined)
      kernel.after(REVOKE_AGAIN_MS, () => this.#revokeUntil(end, lease, revoked));
    else revoked();
  }

  /** A new process in the place of one that was killed. */
  restart(p: string): void {
    const n = numberOf(p);
    // Another fault has killed it too, and was healed before.
    if (this.processes[n] !== p) return;
    this.#lives[n]!++;
    this.#nodes[n]!.restart(this.#connectOptions(n));
    this.#startWorker(n);
  }

  stepClock(p: string, ms: number): void {
    this.#node(p).clock.stepWall(ms);
  }

  /** Returns what heals the links. */
  hinder(processes: readonly string[], hindrance: Hindrance): () => void {
    const links = processes.flatMap((p) => this.#node(p).links);
    const state = STATES[hindrance];
    for (const link of links) {
      if (state !== undefined) link.set(state);
      else link.profile = hindrance === "slow" ? SLOW : LOSSY;
    }
    return () => {
      for (const link of links) {
        link.set("up");
        link.profile = CALM;
      }
    };
  }

  /** Timers that keep processes alive. */
  get timers(): number {
    return this.#nodes.reduce((sum, { clock }) => sum + clock.timers, 0);
  }

  /** The keys of all places, in create order, and those of the sessions that meet others. */
  livingKeys(): readonly string[] {
    const { places, work } = this.options;
    const keys = this.server.living(places);
    if (work.of !== "rendezvous") return keys;
    const counters = this.server.living(LATCHES).filter((key) => key.includes("/alive/"));
    return [...keys.filter((key) => this.leaseOf(key) !== "0"), ...counters];
  }

  /** The first key of each latch that is old enough to end: of a younger one, no call would see the end while it begins. */
  latches(): readonly string[] {
    const { events } = this.server;
    const before = this.options.kernel.now - LATCH_MS;
    const old = new Set(events.filter(({ tSeen }) => Number(tSeen) / 1e6 < before).map(({ lease }) => lease));
    const all = this.server.living(LATCHES).filter((key) => key.endsWith("//latch"));
    return all.filter((key) => old.has(this.leaseOf(key)));
  }

  leaseOf(key: string): string {
    return this.server.of(key)!.lease;
  }

  /** The processes at the head of a queue, and those behind them. */
  seen(): { holders: string[]; waiters: string[] } {
    const heads = new Set<string>();
    const found = { holders: [] as string[], waiters: [] as string[] };
    for (const key of this.livingKeys()) {
      const lock = key.slice(0, key.lastIndexOf("/"));
      const p = this.processes.find((each) => this.server.of(key)!.value.includes(`"owner":"${each}/`));
      if (p !== undefined) found[heads.has(lock) ? "waiters" : "holders"].push(p);
      heads.add(lock);
    }
    return found;
  }

  /** As an administrator does. Returns the revision of the deletion; `undefined`: there is no leader. */
  deleteKey(key: string): bigint | undefined {
    return this.deleteKeys([key]);
  }

  /** In one transaction. Returns its revision; `undefined`: none of them is there, or there is no leader. */
  deleteKeys(keys: readonly string[]): bigint | undefined {
    const living = keys.filter((key) => this.server.of(key) !== undefined);
    if (living.length === 0) return undefined;
    const success = living.map((key) => ({ kind: "delete", key }) as const);
    return this.#execute({ kind: "kv", request: { kind: "txn", compare: [], success, failure: [] } });
  }

  /** Of each session with the first key of a queue and a later one of another: that first key, and the first one of the other. */
  waitingPairs(): (readonly [string, string])[] {
    const first = new Map<string, string>();
    for (const key of this.livingKeys()) if (!first.has(queueOf(key))) first.set(queueOf(key), key);
    const heads = [...first.values()];
    return this.livingKeys().flatMap((key) => {
      const blocking = first.get(queueOf(key));
      if (blocking === undefined || blocking === key) return [];
      const lease = this.leaseOf(key);
      const own = heads.filter((head) => this.leaseOf(head) === lease && head !== blocking);
      return own.map((head) => [head, blocking] as const);
    });
  }

  /** After virtual time, unless the run is over. */
  later(ms: number, run: () => void): void {
    this.options.kernel.after(ms, run);
  }

  /** As `etcdctl del --prefix` does: all keys that begin with `folder`, in one revision. */
  purge(folder: string): bigint | undefined {
    const keys = this.livingKeys().filter((other) => other.startsWith(folder));
    const success = keys.map((other) => ({ kind: "delete", key: other }) as const);
    return this.#execute({ kind: "kv", request: { kind: "txn", compare: [], success, failure: [] } });
  }

  revoke(lease: string): bigint | undefined {
    return this.#execute({ kind: "revoke", leaseId: BigInt(`0x${lease}`) });
  }

  compact(): bigint | undefined {
    return this.#execute({ kind: "compact", revision: this.etcd.store.revision });
  }

  #execute(request: Parameters<SimEtcd["execute"]>[0]): bigint | undefined {
    let revision: bigint | undefined;
    this.etcd.execute(request, () => (revision = this.etcd.store.revision));
    return revision;
  }

  #node(p: string): SimNode {
    return this.#nodes[numberOf(p)]!;
  }

  #newNode(n: number): SimNode {
    const { kernel, build, work } = this.options;
    const servers = build.requiresLeader === false ? this.etcd.members.map(leaderless) : this.etcd.members;
    return new SimNode({
      ...{ name: `node ${n}`, scheduler: kernel, random: kernel.random.fork("nodes") },
      ...{ servers, options: this.#connectOptions(n) },
      createCluster: build.createCluster,
      renewal: build.renewal,
      transport: work.transport
        ? {
            ...{
              GrpcMember: build.GrpcMember,
              oneAddress: work.oneAddress === true,
              behavior: this.behavior,
            },
            violated: (_, error) => this.#violated(n, error),
          }
        : undefined,
    });
  }

  #violated(n: number, error: Error): void {
    this.options.work.note({ k: "crash", event: "protocol", err: error.message }, this.processes[n]!);
  }

  #connectOptions(n: number) {
    const { requestTimeoutMs, work } = this.options;
    const { ttlSeconds, releaseDelayMs, maxStallMs } = work;
    const session = { ttlSeconds, releaseDelayMs, owner: `${this.processes[n]}/shared` };
    const thread = maxStallMs === undefined ? {} : { renewal: "worker" as const, maxStallMs };
    return { requestTimeoutMs, session, ...(work.auth && { auth: USER }), ...thread };
  }

  #startWorker(n: number): void {
    const { work, build } = this.options;
    const node = this.#nodes[n]!;
    // The register has a new token for each of its calls: it does not repeat any.
    const token = work.auth ? () => this.etcd.auth.issue("root") : undefined;
    const connect = (): Member => node.connection(token);
    const machine = { cluster: node.cluster, clock: node.clock, connect };
    const worker = new SimWorker(this.processes[n]!, machine, { ...work, leasehold: build.leasehold });
    this.#workers[n] = worker;
    worker.start();
  }
}

/** A member to which streams are opened without `hasleader`. */
const leaderless = (server: SimServer): SimServer => ({
  host: server.host,
  call: (request, reply) => server.call(request, reply),
  keepalive: (out) => server.keepalive(out),
  watch: (out) => server.watch(out),
});

const queueOf = (key: string): string => key.slice(0, key.lastIndexOf("/"));

const numberOf = (p: string): number => Number(/\d+/.exec(p)?.[0]);
