/** Any program with other work runs its timers this late. */
const TOLERANCE_MS = 50;

export type TimerName = "look" | "renewal";

/** A time, on the monotonic clock, in which a timer was due and did not run. */
interface Stall {
  readonly from: number;
  readonly to: number;
}

/**
 * When this process did not run its timers: suspended, paused, or a blocked event loop. It needs no timer of its own: each
 * timer of a lease reports when it is due, and a stall lasts from then until a timer runs or the lease is asked. The begin
 * of a stall before that is not seen, so the sum is a lower bound.
 */
export class Stalls {
  readonly #due: Record<TimerName, number> = { look: Infinity, renewal: Infinity };
  /** In order, without overlaps. */
  readonly #stalls: Stall[] = [];

  /** A timer, which replaces the last one of its kind, is due at `at`. */
  scheduled(timer: TimerName, at: number): void {
    this.#due[timer] = at;
  }

  /** Called when a timer runs, and before the sum is read, even if no timer has run since a stall. */
  observe(now: number): void {
    let from = Math.min(this.#due.look, this.#due.renewal);
    if (now - from <= TOLERANCE_MS) return;
    // The same stall delays several timers, and may be seen several times before they run.
    for (let last = this.#stalls.at(-1); last !== undefined && last.to >= from; last = this.#stalls.at(-1)) {
      from = Math.min(from, last.from);
      this.#stalls.pop();
    }
    this.#stalls.push({ from, to: now });
  }

  /** Forgets what ended before `at`. */
  forgetUntil(at: number): void {
    while (this.#stalls[0] !== undefined && this.#stalls[0].to <= at) this.#stalls.shift();
  }

  /** Milliseconds of stalls after `at`. */
  sumSince(at: number): number {
    return this.#stalls.reduce((sum, { from, to }) => sum + Math.max(0, to - Math.max(from, at)), 0);
  }
}
