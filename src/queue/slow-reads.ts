import type { Clock, Timer } from "../async/clock.js";

/** The average time after which a wait reads without a reason. */
export const SLOW_READ_MS = 30_000;
/** Reads due in the same grain share one run of the timer. */
const GRAIN_MS = 500;

/** A wait that reads occasionally, in case an event was lost. */
export interface SlowReader {
  read(): void;
}

const ofClock = new WeakMap<Clock, SlowReads>();

/** One timer for the slow reads of all waits: a process may have thousands. */
export class SlowReads {
  /** The grain in which each reader is due. */
  readonly #due = new Map<SlowReader, number>();
  #timer: Timer | undefined;
  /** The grain for which the timer is set. */
  #next = Infinity;

  private constructor(private readonly clock: Clock) {}

  static of(clock: Clock): SlowReads {
    const reads = ofClock.get(clock) ?? new SlowReads(clock);
    ofClock.set(clock, reads);
    return reads;
  }

  /** Schedules one read, after 22.5 to 37.5 s: waits that began together do not read together. */
  add(reader: SlowReader): void {
    const delayMs = SLOW_READ_MS * (0.75 + this.clock.random() / 2);
    const grain = Math.floor((this.clock.monotonic() + delayMs) / GRAIN_MS);
    this.#due.set(reader, grain);
    if (grain < this.#next) this.#schedule(grain);
  }

  delete(reader: SlowReader): void {
    if (this.#due.delete(reader) && this.#due.size === 0) this.#schedule(Infinity);
  }

  #schedule(grain: number): void {
    this.#timer?.cancel();
    this.#next = grain;
    const delayMs = grain * GRAIN_MS - this.clock.monotonic();
    this.#timer = grain === Infinity ? undefined : this.clock.after(Math.max(0, delayMs), () => this.#run());
  }

  #run(): void {
    const now = this.#next;
    const due: SlowReader[] = [];
    let next = Infinity;
    for (const [reader, grain] of this.#due) {
      if (grain <= now) due.push(reader);
      else next = Math.min(next, grain);
    }
    for (const reader of due) this.#due.delete(reader);
    this.#schedule(next);
    for (const reader of due) reader.read();
  }
}
