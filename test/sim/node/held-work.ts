import type { Scheduler } from "../../../src/testing/memory/event-queue.js";
import type { Random } from "../../../src/testing/memory/random.js";

/** The phases of Node.js's event loop that matter here: timers, sockets, `setImmediate`. */
export type Phase = "timer" | "delivery" | "immediate";

/** Runs what is due in a process: now, after a pause, or never. */
export class HeldWork {
  readonly #held: Readonly<Record<Phase, (() => void)[]>> = { timer: [], delivery: [], immediate: [] };
  #state: "running" | "paused" | "killed" = "running";
  /** Held work that is scheduled and has not run yet. */
  #flushing = 0;

  constructor(
    private readonly scheduler: Scheduler,
    private readonly random: Random,
  ) {}

  get paused(): boolean {
    return this.#state === "paused";
  }

  get killed(): boolean {
    return this.#state === "killed";
  }

  add(phase: Phase, run: () => void): void {
    // What arrives now must not overtake what arrived during the pause.
    if (this.#state === "running" && this.#flushing > 0)
      this.scheduler.after(0, () => this.#runOrHold(phase, run));
    else this.#runOrHold(phase, run);
  }

  #runOrHold(phase: Phase, run: () => void): void {
    if (this.#state === "running") run();
    else if (this.#state === "paused") this.#held[phase].push(run);
  }

  pause(): void {
    if (this.#state === "running") this.#state = "paused";
  }

  /**
   * A process that is continued may read its sockets before or after it runs its timers: that depends on where it was stopped.
   * `setImmediate` comes after the sockets.
   */
  resume(): void {
    if (this.#state !== "paused") return;
    this.#state = "running";
    const socketsFirst = this.random.chance(0.5);
    const order: readonly Phase[] = socketsFirst
      ? ["delivery", "immediate", "timer"]
      : ["timer", "delivery", "immediate"];
    for (const phase of order) for (const run of this.#held[phase].splice(0)) this.#flush(phase, run);
  }

  kill(): void {
    this.#state = "killed";
    for (const held of Object.values(this.#held)) held.length = 0;
  }

  #flush(phase: Phase, run: () => void): void {
    this.#flushing++;
    this.scheduler.after(0, () => {
      this.#flushing--;
      this.#runOrHold(phase, run);
    });
  }
}
