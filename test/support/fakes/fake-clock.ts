import type { Clock, Moment, Timer } from "../../../src/async/clock.js";

interface Due {
  readonly at: number;
  readonly run: () => void;
}

const EPOCH = Date.UTC(2031, 4, 5);

/** Lets every promise that is already settled run its callbacks, and theirs. */
export const settle = (): Promise<void> => new Promise((resolve) => setImmediate(resolve));

/** Time and randomness that move only when a test says so. */
export class FakeClock implements Clock {
  /** What `random()` returns. */
  nextRandom = 0;
  /** What waits in the sockets: delivered before what was handed to `afterPendingEvents`. */
  pendingEvents: () => void = () => {};
  #monotonic = 1_000_000;
  #suspend = 7_000_000;
  #lastId = 0x1000n;
  readonly #timers = new Set<Due>();
  readonly #afterEvents = new Set<() => void>();

  now(): Moment {
    return { monotonic: this.#monotonic, suspend: this.#suspend };
  }

  monotonic(): number {
    return this.#monotonic;
  }

  date(): Date {
    return new Date(EPOCH + this.#monotonic);
  }

  random(): number {
    return this.nextRandom;
  }

  randomId(): bigint {
    return ++this.#lastId;
  }

  after(delayMs: number, run: () => void): Timer {
    const due = { at: this.#monotonic + delayMs, run };
    this.#timers.add(due);
    return { cancel: () => void this.#timers.delete(due) };
  }

  afterPendingEvents(run: () => void): Timer {
    this.#afterEvents.add(run);
    return { cancel: () => void this.#afterEvents.delete(run) };
  }

  /** How many timers wait. */
  get timers(): number {
    return this.#timers.size + this.#afterEvents.size;
  }

  /** The clock that counts suspend goes on (or back) by itself: the machine slept, or somebody set the wall clock. */
  sleep(ms: number): void {
    this.#suspend += ms;
  }

  /** The process stands still: both clocks go on, and no timer has run yet. */
  freeze(ms: number): void {
    this.#monotonic += ms;
    this.#suspend += ms;
  }

  /** Runs what is due within the next `ms`, each timer at its own time. Promises settle afterwards. */
  advance(ms: number): void {
    const until = this.#monotonic + ms;
    for (let due = this.#next(until); due; due = this.#next(until)) {
      this.#run(due);
      this.#runAfterEvents();
    }
    this.freeze(until - this.#monotonic);
  }

  /** The same, but promises settle after each timer: for code that awaits between two of them. */
  async pass(ms: number): Promise<void> {
    const until = this.#monotonic + ms;
    await settle();
    for (let due = this.#next(until); due; due = this.#next(until)) {
      this.#run(due);
      this.#runAfterEvents();
      await settle();
    }
    this.freeze(until - this.#monotonic);
    await settle();
  }

  #next(until: number): Due | undefined {
    const due = [...this.#timers].filter(({ at }) => at <= until);
    return due.reduce<Due | undefined>(
      (first, each) => (first && first.at <= each.at ? first : each),
      undefined,
    );
  }

  #run(due: Due): void {
    this.#timers.delete(due);
    // After a freeze a timer is late: time never goes back for it.
    this.freeze(Math.max(0, due.at - this.#monotonic));
    due.run();
  }

  #runAfterEvents(): void {
    if (this.#afterEvents.size === 0) return;
    const runs = [...this.#afterEvents];
    this.pendingEvents();
    for (const run of runs) if (this.#afterEvents.delete(run)) run();
  }
}
