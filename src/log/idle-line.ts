import type { Timer } from "../async/clock.js";
import type { LineContext } from "./context.js";

/** How long nothing happens before a program probably forgot to close its cluster. */
const IDLE_MS = 5000;

/**
 * One line for a program that does not end: an open session keeps its process alive. One timer for a cluster, not for a lock:
 * while there is something to do, `used` notes the time only.
 */
export class IdleLine {
  #timer: Timer | undefined;
  #usedAt = 0;
  #written = false;

  constructor(
    private readonly context: LineContext,
    /** Whether a session is open, and nothing is held or waited for. */
    private readonly isIdle: () => boolean,
  ) {}

  /** A session was opened, or a call for a lock or a hold has ended. */
  used(): void {
    if (this.#written) return;
    this.#usedAt = this.context.clock.monotonic();
    if (this.#timer === undefined) this.#wait(IDLE_MS);
  }

  close(): void {
    this.#written = true;
    this.#timer?.cancel();
  }

  #wait(ms: number): void {
    this.#timer = this.context.clock.after(ms, () => this.#look());
    this.#timer.unref?.();
  }

  #look(): void {
    this.#timer = undefined;
    const leftMs = this.#usedAt + IDLE_MS - this.context.clock.monotonic();
    if (leftMs > 0) return this.#wait(leftMs);
    // The next end of a hold, or of a call, starts the timer again.
    if (!this.isIdle()) return;
    this.#written = true;
    const what = "no lock has been held or waited for in 5 s, and the open session keeps the process alive";
    this.context.write("debug", `${what}: call cluster.close() when you are done`);
  }
}
