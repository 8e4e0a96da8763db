import type { Clock } from "../../../src/base/util/clock.js";
import type { LabTime } from "../../lab/runner/time.js";

/** The times of a history, in nanoseconds. As on a machine, no two are equal, though virtual time stands still within an event. */
export class HistoryClock {
  #last = 0n;

  constructor(private readonly kernel: { readonly now: number }) {}

  readonly next = (): bigint => {
    const now = BigInt(Math.round(this.kernel.now * 1e6));
    this.#last = now > this.#last ? now : this.#last + 1n;
    return this.#last;
  };

  /** Later than each time that `next` has returned, or that one, and earlier than the next one. */
  readonly before = (): bigint => {
    const now = BigInt(Math.round(this.kernel.now * 1e6));
    return now > this.#last ? now - 1n : this.#last;
  };
}

/** The time of one simulated process: its delays run on its own clock. */
export function nodeTime(history: HistoryClock, clock: Clock): LabTime {
  return {
    now: history.next,
    delay: (ms) => new Promise((resolve) => clock.after(ms, () => resolve(undefined))),
    after: (ms, run) => {
      const timer = clock.after(ms, run);
      return () => timer.cancel();
    },
    turn: (run) => void clock.afterPendingEvents(run),
  };
}
