import type { Setting } from "../runner/history.js";
import { faultsOf, type Fault } from "./faults.js";
import { grouped } from "./grouped.js";
import type { Steps } from "./steps.js";
import { covered, earlier, FOREVER, lastBegun, later, merged, touching, type Span } from "./spans.js";

const SECOND = 1_000_000_000n;
/** How long a process that is running may take to record what it must record. */
export const BREATH = SECOND / 2n;
/** After a short stop, the extra time is no longer than the stop itself. */
const withBreath = ({ from, to }: Span): Span => ({ from, to: to + earlier(BREATH, to - from) });
/** The time to detect a silent stream and to complete an election. */
export const DETECTION = 4n * SECOND;

/** The target of a fault that hinders single processes. */
const OF_WORKERS = /^w\d+\.\d+(,|$)/;

/** Which disturbances affected which process, and how long a promise may therefore take. */
export class Troubles {
  readonly ttl: bigint;
  /**
   * While a majority is healthy, a request to etcd is answered within this time: one attempt, plus the time that a
   * wake-up may take.
   */
  readonly failOver: bigint;
  readonly faults: readonly Fault[];
  /** How long a cluster needs after a fault: for an election, and for what dead leases have left behind. */
  readonly #settle: bigint;
  readonly #hindered: readonly Span[];
  /** Only those against which neither another attempt nor a new token helps. */
  readonly #outages: readonly Span[];
  readonly #refusals: readonly Span[];
  readonly #leasesHindered: readonly Span[];
  readonly #etcdHindered: readonly Span[];
  readonly #silencing: readonly Span[];
  readonly #compactions: readonly Span[];
  /** In which an observer may have seen nothing; undefined: each event of etcd is dated when it happened. */
  readonly #unseen: readonly Span[] | undefined;
  readonly #stalls = new Map<string, Span[]>();
  readonly #stopped: ReadonlyMap<string, readonly Span[]>;
  /** In which nothing of the process ran. */
  readonly #paused: ReadonlyMap<string, readonly Span[]>;
  /** In which a worker thread went on. */
  readonly #blocked: ReadonlyMap<string, readonly Span[]>;
  /** See `Setting`, in nanoseconds. */
  readonly maxStall: bigint | undefined;
  readonly #suspended: ReadonlyMap<string, readonly Span[]>;
  readonly #killed = new Map<string, bigint>();
  readonly #crashed = new Map<string, bigint>();
  readonly #still = new Map<string, readonly Span[]>();
  /** Like `#still`, each span with the extra time after it. */
  readonly #silent = new Map<string, readonly Span[]>();
  readonly #hinderedBy = new Map<string, readonly Span[]>();
  readonly #slow = new Map<string | undefined, readonly Span[]>();

  constructor(steps: Steps, { ttlSeconds, requestTimeoutMs = 1000, maxStallMs, observed }: Setting) {
    this.ttl = BigInt(ttlSeconds) * SECOND;
    this.failOver = this.ttl + BigInt(requestTimeoutMs) * (SECOND / 1000n);
    this.#settle = this.ttl + DETECTION;
    this.faults = faultsOf(steps.nemeses);
    const hinders = this.faults.filter(({ effect }) => effect === "hinders");
    this.#hindered = merged(hinders);
    this.#outages = merged(hinders.filter((fault) => !leavesHelp(fault)));
    this.#refusals = merged(hinders.filter(({ refuses }) => refuses === "cluster"));
    this.#leasesHindered = merged(hinders.filter(({ sparesLeases }) => !sparesLeases));
    this.#etcdHindered = merged(
      hinders.filter(({ target, sparesLeases }) => !sparesLeases && !OF_WORKERS.test(target)),
    );
    this.#silencing = merged(hinders.filter(({ endsStreams }) => !endsStreams));
    this.#compactions = merged(hinders.filter(({ fault }) => fault === "compact"));
    if (observed) {
      const ofEtcd = hinders.filter(({ target }) => !OF_WORKERS.test(target));
      this.#unseen = merged(ofEtcd.map(({ from, to }) => ({ from, to: to + BREATH })));
    }
    const stops = this.faults.filter(({ effect }) => effect === "stops-worker");
    this.#stopped = byTarget(stops);
    this.maxStall = maxStallMs === undefined ? undefined : BigInt(maxStallMs) * (SECOND / 1000n);
    this.#blocked = byTarget(stops.filter(({ blocks }) => blocks));
    this.#paused = byTarget(stops.filter(({ blocks }) => !blocks));
    this.#suspended = byTarget(stops.filter(({ suspends }) => suspends));
    for (const { effect, target, from } of this.faults)
      if (effect === "kills-worker") this.#killed.set(target, earlier(from, this.killedAt(target)));
    for (const { p, t } of steps.crashes) this.#crashed.set(p, earlier(t, this.crashedAt(p)));
    for (const { p, t, ms } of steps.stalls)
      push(this.#stalls, p, { from: t - BigInt(Math.round(ms * 1e6)), to: t });
  }

  /** When the event of what etcd did at `t` is dated, at the latest. */
  seenBy(t: bigint): bigint {
    if (this.#unseen === undefined || t === FOREVER) return t;
    const last = lastBegun(this.#unseen, t + BREATH);
    return later(t + BREATH, last?.to ?? 0n);
  }

  /** `FOREVER` if it was not killed. */
  killedAt(p: string): bigint {
    return this.#killed.get(p) ?? FOREVER;
  }

  /** `FOREVER` if it did not crash. */
  crashedAt(p: string): bigint {
    return this.#crashed.get(p) ?? FOREVER;
  }

  crashed(p: string): boolean {
    return this.#crashed.has(p);
  }

  /** The process ended by itself, as it should. */
  endedWell(p: string): boolean {
    return !this.#killed.has(p) && !this.crashed(p);
  }

  /** When the process was stopped or its event loop was blocked. */
  still(p: string): readonly Span[] {
    const known = this.#still.get(p);
    if (known !== undefined) return known;
    const found = merged([...(this.#stopped.get(p) ?? []), ...(this.#stalls.get(p) ?? [])]);
    this.#still.set(p, found);
    return found;
  }

  /** Why the process recorded nothing in that time. */
  stillness(p: string, span: Span): string | undefined {
    if (touching(this.#stopped.get(p) ?? [], span).length > 0) return "its process was stopped";
    return touching(this.still(p), span).length > 0 ? "its process stalled" : undefined;
  }

  /** Why the process may record late what was due at `t`. */
  silentBecause(p: string, t: bigint): string | undefined {
    const by = this.saidBy(p, t);
    return by === t ? undefined : this.stillness(p, { from: t - BREATH, to: by });
  }

  /** When a process must have recorded what was due at `t`: at once, unless it was stopped. */
  saidBy(p: string, t: bigint): bigint {
    let silent = this.#silent.get(p);
    if (silent === undefined) {
      silent = merged(this.still(p).map(withBreath));
      this.#silent.set(p, silent);
    }
    const last = lastBegun(silent, t);
    return last === undefined ? t : later(t, last.to);
  }

  /**
   * When a process must have been told of a loss that was due at `t`. A suspend puts the lease in doubt: nobody claims to hold, but
   * the holds end only with an answered renewal, or at the deadline on the clock that does not count the suspend.
   */
  toldBy(p: string, t: bigint): bigint {
    let by = t;
    for (const { from, to } of this.#suspended.get(p) ?? [])
      if (from <= by && by <= to + this.ttl) by = to + this.ttl + BREATH;
    return this.saidBy(p, by);
  }

  /** A suspend has put the leases of the process in doubt, which an answered renewal or the deadline ends. */
  inDoubt(p: string, t: bigint): boolean {
    return (this.#suspended.get(p) ?? []).some(({ from, to }) => from <= t && t <= to + this.ttl);
  }

  /** Calls or streams to etcd were disturbed during the span or just before it. */
  hindered({ from, to }: Span): boolean {
    return touching(this.#hindered, { from: from - this.#settle, to }).length > 0;
  }

  /** The whole cluster refuses calls of process `p`, or did so just before. */
  refusedByAll(p: string, t: bigint): boolean {
    const last = lastBegun(this.#refusals, t);
    return last !== undefined && t <= this.saidBy(p, last.to + this.failOver);
  }

  /**
   * The first time from `t` on at which calls and streams of process `p` were not disturbed for so long. A fault of other processes
   * alone does not count.
   */
  calmFrom(p: string, t: bigint, length: bigint): bigint {
    return freeFrom(this.#hindering(p), t, length);
  }

  /** The first time from `t` on at which the process ran for so long. Stops that are shorter than `BREATH` do not count. */
  ranFrom(p: string, t: bigint, length: bigint): bigint {
    const stops = this.still(p).filter(({ from, to }) => to - from >= BREATH);
    return freeFrom(stops, t, length);
  }

  #hindering(p: string): readonly Span[] {
    const known = this.#hinderedBy.get(p);
    if (known !== undefined) return known;
    const isMine = ({ effect, target }: Fault): boolean =>
      effect === "hinders" && (!OF_WORKERS.test(target) || target.split(",").includes(p));
    const found = merged(this.faults.filter(isMine));
    this.#hinderedBy.set(p, found);
    return found;
  }

  /** Like `hindered()`, for faults that leave streams open and silent. */
  silenced({ from, to }: Span): boolean {
    return touching(this.#silencing, { from: from - this.#settle, to }).length > 0;
  }

  /** etcd discarded its earlier history. */
  compacted(span: Span): boolean {
    return touching(this.#compactions, span).length > 0;
  }

  /** A fault disturbed etcd or this process during the span or just before it. */
  disturbed(p: string, span: Span): boolean {
    const just = { from: span.from - this.#settle, to: span.to };
    return this.hindered(span) || touching(this.#stopped.get(p) ?? [], just).length > 0;
  }

  /** Members of etcd were disturbed: the leases that end in that time may be deleted later, all at once. */
  deletesLate(span: Span): boolean {
    return touching(this.#etcdHindered, { from: span.from - this.#settle, to: span.to }).length > 0;
  }

  /** A fault just before `t` may cost the process its lease. */
  mayCostLease(p: string, t: bigint): boolean {
    const settling = { from: t - this.#settle, to: t };
    if (touching(this.#leasesHindered, settling).length > 0) return true;
    // A client renews every third of a TTL: after a stop shorter than this, enough time is left.
    return covered(this.#costly(p, t), { from: t - this.ttl - BREATH, to: t }) >= this.ttl / 4n;
  }

  /** The stops until `t` in which nothing has renewed the leases of the process. */
  #costly(p: string, t: bigint): readonly Span[] {
    const { maxStall } = this;
    if (maxStall === undefined) return this.still(p);
    const blocked = this.#blocked.get(p) ?? [];
    // The last beat of the main thread is as old as a quarter of the limit.
    const long = blocked.filter(({ from, to }) => earlier(to, t) - from >= (maxStall * 3n) / 4n);
    const other = (this.#stalls.get(p) ?? []).filter((stall) => touching(blocked, stall).length === 0);
    return merged([...(this.#paused.get(p) ?? []), ...other, ...long]);
  }

  /**
   * When a wake-up or a cleanup due at `from` must be done: after one TTL, or one TTL after the cluster has settled.
   * Counts what disturbed etcd and process `p`; without `p`, any process. A refusal that another member or a new token
   * resolves costs one fail-over when it starts and one when it ends, however long it lasts.
   */
  limit(p: string | undefined, from: bigint, patience = this.ttl): bigint {
    const limit = from + patience;
    const slow = lastBegun(this.#slowTimes(p), limit);
    return slow !== undefined && slow.to > limit ? slow.to : limit;
  }

  #failOverAt(from: bigint): Span {
    return { from, to: from + this.failOver };
  }

  #slowTimes(p: string | undefined): readonly Span[] {
    const known = this.#slow.get(p);
    if (known !== undefined) return known;
    const mine = (of: string) => p === undefined || p === of;
    const after = (span: Span): Span => ({ from: span.from, to: span.to + this.#settle + this.ttl });
    const faults = this.faults.flatMap((fault) => (mine(fault.target) ? slowing(fault) : []));
    const stalls = [...this.#stalls].flatMap(([of, spans]) => (mine(of) ? spans : []));
    const found = merged([
      ...this.#outages.map(after),
      ...this.faults
        .filter(leavesHelp)
        .flatMap(({ from, to }) => [this.#failOverAt(from), this.#failOverAt(to)]),
      ...faults.map(after),
      // A long stall may cost the session, as a stop does; a short one only delays.
      ...stalls.map((stall) => (stall.to - stall.from > this.ttl / 4n ? after(stall) : withBreath(stall))),
    ]);
    this.#slow.set(p, found);
    return found;
  }
}

/** The first time from `t` on that is so long before the next span. */
function freeFrom(spans: readonly Span[], t: bigint, length: bigint): bigint {
  let free = t;
  for (const { from, to } of spans) {
    if (to <= free) continue;
    if (from - free >= length) break;
    free = to;
  }
  return free;
}

/** Another member accepts the request, or the same member with a new token. */
const leavesHelp = ({ refuses }: Fault): boolean => refuses === "member" || refuses === "token";

/** The places of a killed process remain until its lease ends; a clock jump may cost a call, in either direction. */
function slowing({ effect, from, to }: Fault): Span[] {
  if (effect === "stops-worker") return [{ from, to }];
  if (effect === "kills-worker") return [{ from, to: from }];
  return effect === "moves-clock" ? [from, to].map((at) => ({ from: at, to: at })) : [];
}

const byTarget = (faults: readonly Fault[]): ReadonlyMap<string, readonly Span[]> =>
  new Map([...grouped(faults, ({ target }) => target)].map(([p, mine]) => [p, merged(mine)]));

function push<T>(map: Map<string, T[]>, key: string, value: T): void {
  const values = map.get(key);
  if (values === undefined) map.set(key, [value]);
  else values.push(value);
}
