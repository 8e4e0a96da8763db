import {
  checkFunction,
  checkInteger,
  MAX_TIMER_MS,
  type Options,
  rangeError,
} from "../../base/options/check.js";
import { type Clock, pause, type Timer } from "../../base/util/clock.js";
import { inThisContext } from "../../base/util/own-context.js";
import type { HoldLimit } from "../../lock/hold/hold-base.js";
import { isError } from "../../base/util/realm.js";

/** How `lead` learns that the work of a leader goes on. */
export interface HealthOptions {
  /**
   * Called every `everyMs` while this process leads. The term ends when it returns false, or a promise of false, or throws; and when no
   * call has passed for `withinMs`. After that, it must pass once before the next campaign, and is called until it does, after pauses of
   * 1 to 30 s; each failure is published and logged as one of a campaign.
   * @default none: only the lease decides
   */
  readonly healthy?: (() => boolean | Promise<boolean>) | undefined;
  /** Milliseconds between two calls of `healthy`, 1..2147483647. @default a quarter of `withinMs` */
  readonly everyMs?: number | undefined;
  /**
   * Milliseconds after which the term ends unless `healthy` has passed, or `leadership.heartbeat()` was called, 1..2147483647. With
   * `healthy`, the time counts in which the event loop runs: a stall counts for an eighth of `withinMs` at most, and a check that was due is made
   * after the stall, with at least `withinMs - everyMs` to answer. Without `healthy`, the heartbeats alone count, and all time, also that in
   * which the process stood still: `held`, `signal`, `assertHeld()`, the end of `work` and a late heartbeat then find the term over.
   * @default 10000 with `healthy`, else no limit
   */
  readonly withinMs?: number | undefined;
  /** Milliseconds between the abort of `leadership.signal` and the resignation of a term that was not healthy, 0..2147483647. @default 250 */
  readonly graceMs?: number | undefined;
}

export const HEALTH_OPTIONS = ["healthy", "everyMs", "withinMs", "graceMs"] as const;

export interface CheckedHealth {
  readonly healthy: (() => unknown) | undefined;
  readonly everyMs: number;
  readonly withinMs: number;
  readonly graceMs: number;
}

/** Undefined: nothing is asked for. @throws {TypeError | RangeError} */
export function checkHealth(given: Options): CheckedHealth | undefined {
  const { healthy } = given;
  if (healthy !== undefined) checkFunction("healthy", healthy);
  const wait = { min: 1, max: MAX_TIMER_MS };
  const withinMs = checkInteger("withinMs", given["withinMs"], { ...wait, fallback: 10_000 });
  const everyMs = checkInteger("everyMs", given["everyMs"], {
    ...wait,
    fallback: Math.max(1, Math.floor(withinMs / 4)),
  });
  const graceMs = checkInteger("graceMs", given["graceMs"], { min: 0, max: MAX_TIMER_MS, fallback: 250 });
  if (healthy === undefined && given["everyMs"] !== undefined)
    throw new TypeError("Option everyMs needs healthy, which it calls");
  if (healthy !== undefined && everyMs >= withinMs)
    throw rangeError("everyMs", `less than withinMs (${withinMs})`, everyMs);
  if (healthy === undefined && given["withinMs"] === undefined) {
    if (given["graceMs"] === undefined) return undefined;
    throw new TypeError("Option graceMs needs healthy or withinMs");
  }
  return { healthy: healthy as CheckedHealth["healthy"], everyMs, withinMs, graceMs };
}

/** A longer part of `withinMs` between two looks at the clock is a gap in which the event loop stood still. */
const STILL_PART = 1 / 8;

export interface HealthEnds {
  /** Called once, with the reason. Nothing is watched any more. */
  readonly failed: (reason: Error) => void;
  /** Called whenever `healthy` has passed. */
  readonly passed?: () => void;
}

/**
 * Watches the work of one term, until it is stopped or has failed. Whatever finds out first looks at the clock: a timer, a heartbeat, a
 * reading of the hold, the end of the work (`refresh`). So the order of timers decides nothing.
 *
 * - With heartbeats alone, all time counts, also that in which the process stood still. The first look after the limit ends the term, and a
 *   heartbeat after the limit is such a look.
 * - With `healthy`, the time counts in which the event loop ran: otherwise no check could be made, nor its answer be read. Looks are
 *   frequent, so a long gap between two of them is one in which the loop stood still, and counts as `STILL_PART`. A call has hung if
 *   it has not answered at the limit, after the answers that have arrived are read.
 */
export class HealthWatch implements HoldLimit {
  /** `healthy` belongs to the caller of `lead`, as `work` does. */
  readonly #asCaller = inThisContext();
  readonly #mostMs: number;
  #lookedAt: number;
  /** The milliseconds that count. */
  #ranMs = 0;
  /** The value of `#ranMs` with which the term ends. */
  #limitMs: number;
  /** When `healthy` is to be called; never while a call is under way. */
  #askAt = Infinity;
  #timer: Timer | undefined;
  #reading: Timer | undefined;
  #over = false;

  constructor(
    private readonly options: CheckedHealth,
    private readonly clock: Clock,
    private readonly ends: HealthEnds,
  ) {
    const { healthy, withinMs, everyMs } = options;
    this.#mostMs = healthy ? Math.max(1, withinMs * STILL_PART) : Infinity;
    this.#lookedAt = clock.monotonic();
    this.#limitMs = withinMs;
    if (healthy) this.#askAt = this.#lookedAt + everyMs;
    this.#awaitNext();
  }

  /** The work goes on, unless the limit has passed. */
  beat(): void {
    this.refresh();
    this.#limitMs = this.#ranMs + this.options.withinMs;
  }

  /** Ends the term if the limit has passed, even if no timer has run since: with `healthy`, once the answers that have arrived are read. */
  refresh(): void {
    if (this.#over) return;
    const now = this.clock.monotonic();
    this.#ranMs += Math.min(now - this.#lookedAt, this.#mostMs);
    this.#lookedAt = now;
    if (this.#ranMs < this.#limitMs) return;
    if (!this.options.healthy) return this.#fail("no heartbeat has come");
    this.#reading ??= this.clock.afterPendingEvents(() => this.#judge());
  }

  /** Nobody knows when the work stands still. */
  remainingMs(): number {
    this.refresh();
    return Infinity;
  }

  stop(): void {
    this.#over = true;
    this.#timer?.cancel();
    this.#reading?.cancel();
  }

  /** The answers that had arrived are read. */
  #judge(): void {
    this.#reading = undefined;
    if (this.#ranMs < this.#limitMs) return;
    // A call that was due while the loop stood still could not be made.
    if (this.#askAt < Infinity) this.#ask();
    else this.#fail("healthy has not passed");
  }

  #awaitNext(): void {
    const nextMs = Math.min(this.#limitMs - this.#ranMs, this.#askAt - this.#lookedAt, this.#mostMs / 2);
    this.#timer?.cancel();
    // Past the limit, not on it: Node.js rounds down to whole milliseconds.
    this.#timer = this.clock.after(Math.max(0, nextMs) + 1, () => this.#next());
    this.#timer.unref?.();
  }

  #next(): void {
    this.refresh();
    if (this.#lookedAt >= this.#askAt) this.#ask();
    if (!this.#over) this.#awaitNext();
  }

  #ask(): void {
    const { healthy, withinMs, everyMs } = this.options;
    this.#askAt = Infinity;
    // A call that is made late has as long as any other.
    this.#limitMs = Math.max(this.#limitMs, this.#ranMs + withinMs - everyMs);
    void problemOf(() => this.#asCaller(() => healthy?.())).then((problem) => this.#answered(problem));
  }

  #answered(problem: Error | undefined): void {
    if (this.#over) return;
    if (problem) return this.#end(problem);
    this.beat();
    this.#askAt = this.#lookedAt + this.options.everyMs;
    this.#awaitNext();
    this.ends.passed?.();
  }

  #fail(what: string): void {
    this.#end(new Error(`${what} for ${this.options.withinMs} ms`));
  }

  #end(reason: Error): void {
    this.stop();
    this.ends.failed(reason);
  }
}

/** Undefined: it is healthy. Never rejects. */
async function problemOf(healthy: () => unknown): Promise<Error | undefined> {
  try {
    return (await healthy()) === false ? new Error("healthy has returned false") : undefined;
  } catch (error) {
    // Any value may be thrown, also one that has no text.
    return isError(error) ? error : new Error("healthy has thrown a value that is no Error");
  }
}

/** How to wait for a check that passes. */
interface HealthWait {
  readonly clock: Clock;
  readonly stop: AbortSignal;
  /** The pause after a check that has not passed. */
  readonly nextMs: () => number;
  readonly failed: (reason: Error, delayMs: number) => void;
}

/** Resolves when a check has passed, or when `stop` aborts. One that has not answered within `withinMs` is followed by another, too. */
export async function untilHealthy(health: CheckedHealth, wait: HealthWait): Promise<void> {
  const { clock, stop } = wait;
  while (!stop.aborted) {
    const problem = await problemOfOneCheck(health, wait);
    if (problem === undefined) return;
    const delayMs = wait.nextMs();
    wait.failed(problem, delayMs);
    await pause(clock, delayMs, stop);
  }
}

/** Undefined: it has passed, or `stop` has aborted. */
async function problemOfOneCheck(
  health: CheckedHealth,
  { clock, stop }: HealthWait,
): Promise<Error | undefined> {
  const done = new AbortController();
  let problem: Error | undefined;
  const watch = new HealthWatch({ ...health, everyMs: 0 }, clock, {
    passed: () => done.abort(),
    failed: (reason) => {
      problem = reason;
      done.abort();
    },
  });
  while (!stop.aborted && !done.signal.aborted) await pause(clock, MAX_TIMER_MS, stop, done.signal);
  watch.stop();
  return problem;
}
