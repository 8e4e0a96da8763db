import { AsyncResource } from "node:async_hooks";
import type { Clock, Timer } from "../async/clock.js";
import { guard } from "./subscriptions.js";

const MOST = 256;
const DELAY_MS = 50;

/**
 * Runs the work of subscribers later, in batches. Between two messages of a lock, the same work takes several times as much
 * processor time, because its code and data are not in the caches of the processor. `scripts/otel-cost.js` measures the cost.
 */
export class Backlog {
  readonly #due: (() => void)[] = [];
  #timer: Timer | undefined;
  /** Without it, the work for one caller would run in the async context of another. */
  readonly #context = new AsyncResource("leasehold/otel");

  /** `flushed` is called after each flush. */
  constructor(
    private readonly clock: Pick<Clock, "after">,
    private readonly flushed: () => void,
  ) {}

  add(run: () => void): void {
    this.#due.push(run);
    if (this.#due.length >= MOST) this.flush();
    else this.#timer ??= this.#later();
  }

  /** Runs all entries in the order in which they were added. */
  flush(): void {
    this.#timer?.cancel();
    this.#timer = undefined;
    this.#context.runInAsyncScope(() => this.#run());
  }

  /** A flush that an entry starts continues with the remaining entries. */
  #run(): void {
    for (let left = this.#due.length; left > 0; left--) {
      const run = this.#due.shift();
      if (run) guard(run);
    }
    guard(this.flushed);
  }

  #later(): Timer {
    const timer = this.clock.after(DELAY_MS, () => this.flush());
    timer.unref?.();
    return timer;
  }
}
