import type { Clock, Moment, Timer } from "../../../src/base/util/clock.js";

interface Due {
  readonly at: number;
  readonly run: () => void;
}

const EPOCH = Date.UTC(2031, 4, 5);

/** Lets the callbacks of every promise that is already settled run, and the callbacks that these cause. */
export const settle = (): Promise<void> => new Promise((resolve) => setImmediate(resolve));

/** Time and randomness that change only under the test's control. */
export class FakeClock implements Clock {
  /** The return value of `random()`. */
  nextRandom = 0;
  /** Events waiting in the sockets: delivered before the callbacks given to `afterPendingEvents`. */
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

  pace(delayMs: number, run: () => void): Timer {
    return this.after(delayMs, run);
  }

  afterPendingEvents(run: () => void): Timer {
    this.#afterEvents.add(run);
    return { cancel: () => void this.#afterEvents.delete(run) };
  }

  /** The number of pending timers. */
  get timers(): number {
    return this.#timers.size + this.#afterEvents.size;
  }

  /** Only the clock that counts suspend moves forward (or back): the machine slept, or the wall clock was set. */
  sleep(ms: number): void {
    this.#suspend += ms;
  }

  /** The process is stopped: both clocks move forward, and no timer has run yet. A timer may call it, too. */
  freeze(ms: number): void {
    this.#monotonic += ms;
    this.#suspend += ms;
  }

  /** Runs the timers due within the next `ms`, each at its own time. Promises settle afterwards. */
  advance(ms: number): void {
    const until = this.#monotonic + ms;
    for (let due = this.#next(until); due; due = this.#next(until)) {
      this.#run(due);
      this.#runAfterEvents();
    }
    this.freeze(Math.max(0, until - this.#monotonic));
  }

  /** Like `advance()`, but promises settle after each timer: for code that awaits between two of them. */
  async pass(ms: number): Promise<void> {
    const until = this.#monotonic + ms;
    await settle();
    for (let due = this.#next(until); due; due = this.#next(until)) {
      this.#run(due);
      this.#runAfterEvents();
      await settle();
    }
    this.freeze(Math.max(0, until - this.#monotonic));
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
    // After a freeze a timer runs late: time must not go back to its due time.
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
