import type { Clock, Moment, Timer } from "../../async/clock.js";
import { Stalls, type TimerName } from "./stalls.js";

/** The timers of a lease, whose lateness shows when this process did not run. */
export class LeaseTimers {
  readonly stalls = new Stalls();
  readonly #timers: Partial<Record<TimerName, Timer>> = {};

  constructor(private readonly clock: Clock) {}

  /** Calls `run`, with the time then, `delayMs` after `now`. The timer of that name must have run. */
  // eslint-disable-next-line max-params -- as a clock's `after`, with a name and the present
  set(name: TimerName, now: Moment, delayMs: number, run: (now: Moment) => void): void {
    const afterMs = Math.max(0, delayMs);
    this.stalls.scheduled(name, now.monotonic + afterMs);
    this.#timers[name] = this.clock.after(afterMs, () => {
      const then = this.clock.now();
      this.stalls.observe(then.monotonic);
      run(then);
    });
  }

  cancel(): void {
    for (const timer of Object.values(this.#timers)) timer.cancel();
  }
}
