import type { Frame } from "../protocol.js";

/** The virtual time that is shown: goes on between two frames, and never beyond the next event. */
export class Moment {
  #frame: Pick<Frame, "now" | "rate" | "next"> = { now: 0, rate: 0, next: 0 };
  #received = 0;

  set(frame: Frame): void {
    this.#frame = frame;
    this.#received = performance.now();
  }

  get now(): number {
    const { now, rate, next } = this.#frame;
    return Math.min(Math.max(now, next), now + (performance.now() - this.#received) * rate);
  }
}
