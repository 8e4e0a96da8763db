import type { Setting, Step } from "../runner/history.js";
import { faultsOf, type Fault } from "./faults.js";
import { grouped } from "./grouped.js";
import { covered, earlier, FOREVER, lastBegun, later, merged, touching, type Span } from "./spans.js";

const SECOND = 1_000_000_000n;
/** A process that runs on gets so long at most to say what it had to say. */
export const BREATH = SECOND / 2n;
/** After it stood still for a moment only, no longer than that. */
const withBreath = ({ from, to }: Span): Span => ({ from, to: to + earlier(BREATH, to - from) });
/** A stream that fell silent is noticed, and an election is over. */
export const DETECTION = 4n * SECOND;

/** What disturbed whom, and for how long what is promised may therefore take. */
export class Troubles {
  readonly ttl: bigint;
  /** While a majority is healthy, who asks etcd has its answer after so long: one attempt, and what a wake-up may take. */
  readonly failOver: bigint;
  readonly faults: readonly Fault[];
  /** A cluster needs so long after a fault: for an election, and for what dead leases have left. */
  readonly #settle: bigint;
  readonly #hindered: readonly Span[];
  /** Only those of them that leave nobody to ask. */
  readonly #outages: readonly Span[];
  readonly #refusals: readonly Span[];
  readonly #leasesHindered: readonly Span[];
  readonly #silencing: readonly Span[];
  readonly #compactions: readonly Span[];
  readonly #stalls = new Map<string, Span[]>();
  readonly #stopped: ReadonlyMap<string, readonly Span[]>;
  readonly #killed = new Map<string, bigint>();
  readonly #crashed = new Set<string>();
  readonly #still = new Map<string, readonly Span[]>();
  /** The same, each with the breath after it. */
  readonly #silent = new Map<string, readonly Span[]>();
  readonly #slow = new Map<string | undefined, readonly Span[]>();

  constructor(history: readonly Step[], { ttlSeconds, requestTimeoutMs = 1000 }: Setting) {
    this.ttl = BigInt(ttlSeconds) * SECOND;
    this.failOver = this.ttl + BigInt(requestTimeoutMs) * (SECOND / 1000n);
    this.#settle = this.ttl + DETECTION;
    this.faults = faultsOf(history);
    const hinders = this.faults.filter(({ effect }) => effect === "hinders");
    this.#hindered = merged(hinders);
    this.#outages = merged(hinders.filter((fault) => !leavesHelp(fault)));
    this.#refusals = merged(hinders.filter(({ refuses }) => refuses === "cluster"));
    this.#leasesHindered = merged(hinders.filter(({ sparesLeases }) => !sparesLeases));
    this.#silencing = merged(hinders.filter(({ endsStreams }) => !endsStreams));
    this.#compactions = merged(hinders.filter(({ fault }) => fault === "compact"));
    const stops = this.faults.filter(({ effect }) => effect === "stops-worker");
    const byTarget = [...grouped(stops, ({ target }) => target)];
    this.#stopped = new Map(byTarget.map(([p, faults]) => [p, merged(faults)]));
    for (const { effect, target, from } of this.faults)
      if (effect === "kills-worker") this.#killed.set(target, earlier(from, this.killedAt(target)));
    for (const step of history) {
      if (step.k === "crash") this.#crashed.add(step.p);
      if (step.k === "stall")
        push(this.#stalls, step.p, { from: step.t - BigInt(Math.round(step.ms * 1e6)), to: step.t });
    }
  }

  /** `FOREVER` if it was not. */
  killedAt(p: string): bigint {
    return this.#killed.get(p) ?? FOREVER;
  }

  crashed(p: string): boolean {
    return this.#crashed.has(p);
  }

  /** It came to its end by itself, as it should. */
  endedWell(p: string): boolean {
    return !this.#killed.has(p) && !this.crashed(p);
  }

  /** When the process was stopped, or its event loop did not turn. */
  still(p: string): readonly Span[] {
    const known = this.#still.get(p);
    if (known !== undefined) return known;
    const found = merged([...(this.#stopped.get(p) ?? []), ...(this.#stalls.get(p) ?? [])]);
    this.#still.set(p, found);
    return found;
  }

  /** Why it said nothing then. */
  stillness(p: string, span: Span): string | undefined {
    if (touching(this.#stopped.get(p) ?? [], span).length > 0) return "its process was stopped";
    return touching(this.still(p), span).length > 0 ? "its process stalled" : undefined;
  }

  /** Why it may say late what was due at `t`. */
  silentBecause(p: string, t: bigint): string | undefined {
    const by = this.saidBy(p, t);
    return by === t ? undefined : this.stillness(p, { from: t - BREATH, to: by });
  }

  /** When a process must have said what it had to say at `t`: at once, unless it stood still. */
  saidBy(p: string, t: bigint): bigint {
    let silent = this.#silent.get(p);
    if (silent === undefined) {
      silent = merged(this.still(p).map(withBreath));
      this.#silent.set(p, silent);
    }
    const last = lastBegun(silent, t);
    return last === undefined ? t : later(t, last.to);
  }

  /** Calls or streams to etcd were disturbed at some time of the span, or just before it. */
  hindered({ from, to }: Span): boolean {
    return touching(this.#hindered, { from: from - this.#settle, to }).length > 0;
  }

  /** The whole cluster refuses calls of process `p`, or did so just before. */
  refusedByAll(p: string, t: bigint): boolean {
    const last = lastBegun(this.#refusals, t);
    return last !== undefined && t <= this.saidBy(p, last.to + this.failOver);
  }

  /** The same, by faults that leave streams open and silent. */
  silenced({ from, to }: Span): boolean {
    return touching(this.#silencing, { from: from - this.#settle, to }).length > 0;
  }

  /** etcd forgot what had been before. */
  compacted(span: Span): boolean {
    return touching(this.#compactions, span).length > 0;
  }

  /** A fault disturbed etcd or this process at some time of the span, or just before it. */
  disturbed(p: string, span: Span): boolean {
    const just = { from: span.from - this.#settle, to: span.to };
    return this.hindered(span) || touching(this.#stopped.get(p) ?? [], just).length > 0;
  }

  /** Something touched the time before `t` that may cost a process its lease. */
  mayCostLease(p: string, t: bigint): boolean {
    const settling = { from: t - this.#settle, to: t };
    if (touching(this.#leasesHindered, settling).length > 0) return true;
    // It renews every third of a TTL: one that stood still for less than this has time enough left.
    return covered(this.still(p), { from: t - this.ttl - BREATH, to: t }) >= this.ttl / 4n;
  }

  /**
   * When a wake-up or a clean-up due at `from` must be done: after one TTL, or one TTL after the cluster has settled.
   * Counts what disturbed etcd, and process `p`; without `p`, any process. A refusal that another member or a new token
   * cures costs one fail-over when it begins and when it ends, however long it lasts.
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
      // A long one may cost the session, as a stop does; a short one only delays.
      ...stalls.map((stall) => (stall.to - stall.from > this.ttl / 4n ? after(stall) : withBreath(stall))),
    ]);
    this.#slow.set(p, found);
    return found;
  }
}

/** Another member answers, or the same one with a new token. */
const leavesHelp = ({ refuses }: Fault): boolean => refuses === "member" || refuses === "token";

/** A killed process leaves its places to its lease; a clock that jumps may cost a call, also when it jumps back. */
function slowing({ effect, from, to }: Fault): Span[] {
  if (effect === "stops-worker") return [{ from, to }];
  if (effect === "kills-worker") return [{ from, to: from }];
  return effect === "moves-clock" ? [from, to].map((at) => ({ from: at, to: at })) : [];
}

function push<T>(map: Map<string, T[]>, key: string, value: T): void {
  const values = map.get(key);
  if (values === undefined) map.set(key, [value]);
  else values.push(value);
}
