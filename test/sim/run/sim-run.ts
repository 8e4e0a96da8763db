import type { Run, Step } from "../../lab/runner/history.js";
import type { Of } from "../../lab/runner/subject.js";
import { seeded } from "../../lab/runner/random.js";
import { plan, type Planned } from "../../lab/runner/schedule.js";
import type { SimEtcd } from "../../../src/testing/memory/etcd.js";
import type { SimVersion } from "../../../src/testing/memory/protocol.js";
import { Kernel, type Fields, type Hold } from "../kernel/kernel.js";
import { SIM_FAULTS, type SimFault } from "./faults.js";
import { MEMBER_FAULTS } from "./member-faults.js";
import { HistoryClock } from "./node-time.js";
import { SimCrew } from "./sim-crew.js";
import type { Build } from "./build.js";
import { whenServing } from "./recovery.js";
import { Witness } from "./witness.js";

const PREFIX = "sim/";
const PLACES = `${PREFIX}lock/`;
const REGISTERS = `${PREFIX}register/`;
const REQUEST_TIMEOUT_MS = 1000;
/** Longer than the pause after which what has failed again and again is tried again. */
const CALM_MS = 50_000;

/** The leases of runs of `once` that have begun, and those of latches and barriers, outlive every process, by design. */
const LONG_LEASE_SECONDS = 600;

export interface SimOptions {
  readonly seed: string;
  readonly build: Build;
  readonly version: SimVersion;
  readonly of: Of;
  readonly ttlSeconds: number;
  /** The option of all sessions. Default: none. */
  readonly releaseDelayMs?: number | undefined;
  readonly processes: number;
  /** Of etcd: 1, 3 or 5. Default: 1. */
  readonly members?: number | undefined;
  readonly lanes: number;
  readonly names: number;
  readonly camp: number;
  /** Holders listen for waiters. */
  readonly wanted?: boolean;
  /** The keys of locks may stay with their sessions. */
  readonly sticky?: boolean;
  /** No call joins a queue in which so many wait. */
  readonly maxWaiting?: number | undefined;
  /** Most calls end the older ones that wait. */
  readonly newest?: boolean | undefined;
  /** Of each group of shards. Default: 8. */
  readonly shards?: number | undefined;
  /** Over the client's own HTTP/2 and gRPC. Default: the simulation takes their place. */
  readonly transport?: boolean | undefined;
  /** Over the client's own transport: its only host stands for all members. Default: false. */
  readonly oneAddress?: boolean | undefined;
  /** A guardian of each process revokes its leases when it is killed. Default: false. */
  readonly guardian?: boolean | undefined;
  /** The length of a candidate's value, at least. Default: as short as possible. */
  readonly valueBytes?: number | undefined;
  /** etcd requires a password. Default: false. */
  readonly auth?: boolean | undefined;
  /** A worker thread of each process renews its leases, up to a stall of so long. Default: no thread does. */
  readonly maxStallMs?: number | undefined;
  /** The work ends after this many calls for locks, or after `seconds`. */
  readonly calls: number;
  /** It also ends after this many calls to etcd. Default: no limit. */
  readonly requests?: number | undefined;
  readonly seconds: number;
  readonly faults: readonly string[];
  readonly gapMs: readonly [number, number];
  /** The share of `seconds` at the start without faults. Default: a tenth. */
  readonly quiet?: number | undefined;
  /** The numbers of the planned faults that are injected. Default: all. */
  readonly only?: readonly number[] | undefined;
  readonly print?: ((line: string) => void) | undefined;
  /** Of the kernel. */
  readonly hold?: Hold | undefined;
  readonly observer?: RunObserver | undefined;
}

/** Sees a run while it happens. It must change nothing. */
export interface RunObserver {
  started(etcd: SimEtcd): void;
  step(step: Step): void;
}

export interface SimResult {
  readonly run: Run;
  readonly planned: readonly Planned[];
  /** Of everything that happened. */
  readonly hash: string;
  /** For locks. */
  readonly calls: number;
  /** Unary calls to etcd. */
  readonly requests: number;
  /** The name of each fault that found something to hit. */
  readonly hits: readonly string[];
  readonly virtualMs: number;
  readonly events: number;
}

/** One run in virtual time: the lanes of the lab work, faults come and are healed, all becomes quiet. */
export async function runSim(options: SimOptions): Promise<SimResult> {
  const sim = new SimRun(options);
  await sim.work();
  await sim.settle();
  return sim.result();
}

export class SimRun {
  readonly #kernel: Kernel;
  readonly #time: HistoryClock;
  readonly #crew: SimCrew;
  readonly #history: Step[] = [];
  readonly #witness: Witness;
  readonly #planned: readonly Planned[];
  #calls = 0;
  readonly #hits: string[] = [];

  constructor(private readonly options: SimOptions) {
    const { seed, print, hold, names, version } = options;
    this.#kernel = new Kernel(seed, { print, hold });
    this.#time = new HistoryClock(this.#kernel);
    this.#witness = new Witness(PLACES, this.#time.before);
    const locks = Array.from({ length: names }, (_, n) => `${PLACES}n${n + 1}`);
    this.#crew = new SimCrew({
      ...{ kernel: this.#kernel, version, count: options.processes, requestTimeoutMs: REQUEST_TIMEOUT_MS },
      work: {
        ...options,
        locks,
        registers: REGISTERS,
        calmMs: this.#calmMs,
        history: this.#time,
        note: (step, p) => this.#note(step, p),
      },
      ...{ build: this.#witness.watched(options.build), places: PLACES },
    });
    options.observer?.started(this.#crew.etcd);
    this.#planned = this.#plan();
  }

  /** For a page that shows the run. */
  get world(): { readonly kernel: Kernel; readonly crew: SimCrew; readonly history: readonly Step[] } {
    return { kernel: this.#kernel, crew: this.#crew, history: this.#history };
  }

  /** So long the members of a group of shards stay when all faults are over. */
  get #calmMs(): number {
    return this.options.of === "shards" ? CALM_MS + 4000 * this.options.ttlSeconds : 0;
  }

  async work(): Promise<void> {
    const { seconds, calls, requests = Infinity } = this.options;
    this.#crew.start();
    const heals = new Set<() => void>();
    for (const planned of this.#planned) this.#inflictLater(planned, heals);
    const { etcd } = this.#crew;
    await this.#kernel.run(() => this.#calls >= calls || etcd.calls >= requests, seconds * 1000);
    this.#over = true;
    for (const heal of heals) heal();
  }
  #over = false;
  /** Per fault and target: ends the wait for etcd to recover from a fault that is healed. */
  readonly #recoveries = new Map<string, () => void>();

  /** Every call ends, every key is deleted while its session is open, then every lease ends. */
  async settle(): Promise<void> {
    const { ttlSeconds, releaseDelayMs = 0 } = this.options;
    const patience = 2 * (2 * ttlSeconds + 5) * 1000 + releaseDelayMs;
    const { etcd, workers } = this.#crew;
    for (const worker of workers()) worker.finish();
    await this.#kernel.run(() => this.#recoveries.size === 0, patience);
    await this.#kernel.run(() => workers().every(({ idle }) => idle), patience + this.#calmMs);
    // A watch closes five seconds after its last use. Meanwhile etcd may execute a request whose call has ended; the client then
    // deletes the key that the request has put.
    const isIdle = (): boolean => etcd.watches === 0 && this.#crew.livingKeys().length === 0;
    await this.#kernel.run(isIdle, patience + 10_000);
    const keys = this.#crew.livingKeys();
    this.#note({ k: "leftovers", when: "idle", keys, leases: [], watches: etcd.watches });
    for (const worker of workers()) worker.close();
    await this.#kernel.run(() => workers().every(({ closed }) => closed), patience);
    const left = () => etcd.leases.all.filter(({ ttlSeconds }) => ttlSeconds < LONG_LEASE_SECONDS);
    await this.#kernel.run(() => left().length === 0 && this.#crew.timers === 0, patience);
    const leases = left().map(({ leaseId }) => leaseId.toString(16));
    this.#note({ k: "leftovers", when: "end", keys: this.#crew.livingKeys(), leases });
    const ended = this.#crew.timers === 0;
    for (const { p, closed } of workers())
      if (!closed || !ended) this.#note({ k: "crash", p, event: "exit", err: "did not end by itself" });
  }

  result(): SimResult {
    const { ttlSeconds, maxStallMs, releaseDelayMs, maxWaiting } = this.options;
    const { now, hash, events } = this.#kernel;
    const setting = {
      ...{ ttlSeconds, requestTimeoutMs: REQUEST_TIMEOUT_MS, members: this.options.members ?? 1 },
      ...{
        locks: PLACES,
        registers: REGISTERS,
        releaseDelayMs,
        maxWaiting,
        ...(maxStallMs !== undefined && { maxStallMs }),
      },
    };
    const { sights } = this.#witness;
    const run = { history: this.#history, ...this.#crew.server.split(), sights, setting };
    const { calls: requests } = this.#crew.etcd;
    const counts = { calls: this.#calls, requests, hits: this.#hits, events };
    return { run, planned: this.#planned, hash, ...counts, virtualMs: now };
  }

  #plan(): readonly Planned[] {
    const { seed, seconds, ttlSeconds, faults, gapMs, quiet, only } = this.options;
    const kinds = PLANNABLE.filter(({ name }) => faults.includes(name));
    const all = plan({ seed, seconds, ttlMs: ttlSeconds * 1000, kinds, gapMs, quiet });
    return only === undefined ? all : all.filter(({ n }) => only.includes(n));
  }

  #inflictLater({ n, atMs, lastsMs, fault }: Planned, heals: Set<() => void>): void {
    this.#kernel.after(atMs, () => {
      if (this.#over) return;
      const kind = SIM_FAULTS.find(({ name }) => name === fault)!;
      const heal = this.inflict(kind, n);
      if (heal === undefined) return;
      const once = (): void => void (heals.delete(once) && heal());
      heals.add(once);
      this.#kernel.after(lastsMs, once);
    });
  }

  /** Returns what heals it. */
  inflict(kind: SimFault, n: number): (() => void) | undefined {
    const { seed, ttlSeconds } = this.options;
    const begun = this.#time.next();
    const hit = kind.hit({ crew: this.#crew, random: seeded(`${seed} fault ${n}`) });
    if (hit === undefined) return undefined;
    this.#hits.push(kind.name);
    const {
      name: fault,
      effect,
      endsStreams,
      refuses,
      suspends,
      blocks,
      sparesLeases: spares = false,
    } = kind;
    const sparesLeases = typeof spares === "boolean" ? spares : spares(ttlSeconds * 1000);
    const { target, took } = hit;
    const id = `${fault} ${target}`;
    this.#recoveries.get(id)?.();
    const of = {
      k: "nemesis",
      fault,
      effect,
      target,
      sparesLeases,
      endsStreams,
      refuses,
      suspends,
      blocks,
      took,
    };
    // Dated when it began: its effect on etcd is later.
    this.#note({ ...of, t: begun, on: true });
    return () => {
      hit.heal?.();
      if (breaksMember(kind)) this.#whenOver(id, (t) => this.#note({ ...of, t, on: false }));
      else this.#note({ ...of, on: false });
    };
  }

  /** `t`: undefined if the fault is over now. Otherwise it is over when etcd serves again, or when the same fault begins again. */
  #whenOver(id: string, note: (t?: bigint) => void): void {
    this.#recoveries.get(id)?.();
    const { cluster } = this.#crew.etcd;
    if (cluster === undefined) return note();
    const end = whenServing(this.#kernel, cluster, (since) => {
      this.#recoveries.delete(id);
      note(BigInt(Math.round(since * 1e6)));
    });
    this.#recoveries.set(id, end);
  }

  /** `step` becomes a line of the history: the caller does not keep it. */
  #note(step: object, p = "run"): void {
    const whole = step as Mutable<Step>;
    whole.t ??= this.#time.next();
    whole.p = p;
    if (whole.k === "invoke" && (whole.f === "acquire" || whole.f === "tryAcquire")) this.#calls++;
    this.#history.push(whole);
    this.options.observer?.step(whole);
    this.#kernel.logFields(step as Fields);
  }
}

/** The plan names faults. `SimRun` injects them. */
const PLANNABLE = SIM_FAULTS.map((kind) => ({ ...kind, inflict: () => undefined }));

const breaksMember = ({ name }: SimFault): boolean => MEMBER_FAULTS.some((fault) => fault.name === name);

type Mutable<T> = { -readonly [K in keyof T]: T[K] };
