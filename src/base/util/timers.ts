import type { Clock, Moment, Timer } from "./clock.js";

/** What a turn of the event loop runs at most: a grain may have thousands. */
const MAX_AT_ONCE = 250;

/** Something that `Timers` calls, in one of them at a time. It keeps its own time, for there may be thousands. */
export interface Timed {
  /** Set by `Timers`. */
  dueAt: number;
  due(): void;
}

class Call implements Timed, Timer {
  dueAt = 0;

  constructor(
    readonly due: () => void,
    private readonly timers: Timers,
  ) {}

  cancel(): void {
    this.timers.delete(this);
  }
}

/**
 * Many times under one timer of the clock. They run in the order of their times, and in that in which they were set. The timer
 * is not reset when its first time is cancelled: it finds nothing due then.
 */
export class Timers {
  /** By the time at which they are due. */
  readonly #due = new Map<number, Set<Timed>>();
  #timer: Timer | undefined;
  #timerAt = Infinity;
  /** See `turnMs`. */
  #turnSince: number | undefined;

  /** `keepsAlive`: the process does not end while any is there. */
  constructor(
    private readonly clock: Clock,
    private readonly keepsAlive = false,
  ) {}

  /** The time of the clock that they go by. */
  now(): number {
    return this.clock.monotonic();
  }

  /** The time on both clocks. */
  moment(): Moment {
    return this.clock.now();
  }

  /**
   * Milliseconds since the first call of this in the same turn of the event loop: calls that wait for no event could keep all events
   * from being read.
   */
  turnMs(): number {
    const now = this.clock.monotonic();
    if (this.#turnSince === undefined) {
      this.#turnSince = now;
      this.clock.afterPendingEvents(() => (this.#turnSince = undefined));
    }
    return now - this.#turnSince;
  }

  /** Calls `run` at `at`, of the time that `now` returns, together with all others of that time. */
  at(at: number, run: () => void): Timer {
    const call = new Call(run, this);
    this.#setAt(call, at);
    return call;
  }

  /** Calls `run` after `delayMs`, and up to `grainMs` later: those in the same grain share one run of the timer. */
  add(delayMs: number, run: () => void, grainMs = 1): Timer {
    const call = new Call(run, this);
    this.set(call, delayMs, grainMs);
    return call;
  }

  /** Like `add`. Replaces the time that it may have. */
  set(timed: Timed, delayMs: number, grainMs = 1): void {
    this.delete(timed);
    this.#setAt(timed, Math.ceil((this.clock.monotonic() + delayMs) / grainMs) * grainMs);
  }

  /** Does nothing for one that has run or was deleted before. */
  delete(timed: Timed): void {
    const due = this.#due.get(timed.dueAt);
    if (!due?.delete(timed) || due.size > 0) return;
    this.#due.delete(timed.dueAt);
    if (this.keepsAlive && this.#due.size === 0) this.close();
  }

  /** Drops all of them. */
  close(): void {
    // One of them may be running.
    for (const due of this.#due.values()) due.clear();
    this.#due.clear();
    this.#timer?.cancel();
    this.#timerAt = Infinity;
  }

  #setAt(timed: Timed, at: number): void {
    const due = this.#due.get(at);
    timed.dueAt = at;
    if (due) due.add(timed);
    else this.#due.set(at, new Set([timed]));
    if (at < this.#timerAt) this.#setTimer(at);
  }

  #setTimer(at: number): void {
    this.#timer?.cancel();
    this.#timerAt = at;
    // Node.js rounds down to whole milliseconds: without this the timer would find its time not yet due.
    const delayMs = Math.ceil(Math.max(0, at - this.clock.monotonic()));
    this.#timer = this.clock.after(delayMs, () => this.#run());
    if (!this.keepsAlive) this.#timer.unref?.();
  }

  #run(): void {
    this.#timerAt = Infinity;
    const now = this.clock.monotonic();
    const times = [...this.#due.keys()].filter((at) => at <= now).sort((a, b) => a - b);
    let left = MAX_AT_ONCE;
    try {
      for (const at of times)
        for (const timed of this.#due.get(at) ?? []) {
          if (left-- === 0) return;
          this.delete(timed);
          timed.due();
        }
    } finally {
      let next = Infinity;
      for (const at of this.#due.keys()) next = Math.min(next, at);
      if (next < this.#timerAt) this.#setTimer(next);
    }
  }
}
