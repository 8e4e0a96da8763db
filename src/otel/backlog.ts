import type { Clock, Timer } from "../async/clock.js";
import { guard } from "./subscriptions.js";

const MOST = 256;
const DELAY_MS = 50;

/**
 * Does the work of subscribers later, many messages at a time. Alternating with the messages of a lock, the same work takes
 * three times as much processor time: neither its code nor its data is in the caches of the processor then.
 */
export class Backlog {
  #due: (() => void)[] = [];
  #timer: Timer | undefined;

  constructor(private readonly clock: Pick<Clock, "after">) {}

  add(run: () => void): void {
    this.#due.push(run);
    if (this.#due.length >= MOST) this.flush();
    else this.#timer ??= this.#later();
  }

  /** Does what is due, in the order in which it was added. */
  flush(): void {
    this.#timer?.cancel();
    this.#timer = undefined;
    for (const run of this.#due.splice(0)) guard(run);
  }

  #later(): Timer {
    const timer = this.clock.after(DELAY_MS, () => this.flush());
    timer.unref?.();
    return timer;
  }
}
