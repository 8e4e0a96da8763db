import { rangeError, typeError } from "../../base/options/check.js";
import { checkSlot } from "./options.js";

/** More that are due together are a mistake: marks of so many are hardly kept. */
const MAX_DUE = 10_000;

/** The ticks of an iterable that are due, one after the other. */
export class DueTicks {
  readonly #ticks: Generator<number, void>;
  readonly #nowMs: () => number;
  /** One that has been taken, and is not due yet; undefined at the end. */
  #ahead: number | undefined;
  /** So many have been taken since none was due. */
  #count = 0;

  constructor(slots: Iterable<number | Date>, nowMs: () => number) {
    if (typeof (slots as Partial<Iterable<unknown>> | undefined)?.[Symbol.iterator] !== "function")
      throw typeError("slots", "an iterable, or a function that returns one", slots);
    this.#ticks = ascending(slots);
    this.#nowMs = nowMs;
    this.#ahead = this.#take();
  }

  /** Another tick is due. */
  get hasNext(): boolean {
    return this.#ahead !== undefined && this.#ahead <= this.#nowMs();
  }

  /** The next ones, `limit` at most. */
  next(limit: number): readonly number[] {
    const ticks: number[] = [];
    while (ticks.length < limit && this.#ahead !== undefined && this.hasNext) {
      if (++this.#count > MAX_DUE)
        throw rangeError(
          "slots",
          `at most ${MAX_DUE} that are due: begin later`,
          `more, from ${ticks[0]} on`,
        );
      ticks.push(this.#ahead);
      this.#ahead = this.#take();
    }
    if (!this.hasNext) this.#count = 0;
    return ticks;
  }

  /** No more are taken. */
  close(): void {
    this.#ticks.return();
  }

  /** As with `for`: what failed counts, and not what the iterator throws at its end. */
  failed(): void {
    try {
      this.close();
    } catch {
      // The caller gets the first error.
    }
  }

  #take(): number | undefined {
    return this.#ticks.next().value ?? undefined;
  }
}

function* ascending(slots: Iterable<number | Date>): Generator<number, void> {
  let before = -1;
  for (const value of slots) {
    const slot = checkSlot(value instanceof Date ? value.getTime() : value);
    if (slot <= before) throw rangeError("slots", `ascending, so above ${before}`, slot);
    yield (before = slot);
  }
}
