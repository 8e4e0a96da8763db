import type { Clock, Timer } from "./clock.js";

/** One time limit in `Deadlines`. */
export interface Deadline {
  cancel(): void;
}

class Entry implements Deadline {
  previous: Entry | undefined;
  next: Entry | undefined;

  constructor(
    readonly at: number,
    readonly run: () => void,
    private readonly list: Deadlines,
  ) {}

  cancel(): void {
    this.list.remove(this);
  }
}

/**
 * The time limits of many calls under one timer. The list is sorted by time; limits of the same length, the usual case, are
 * added at its end at once. The timer is not reset when a limit is cancelled: it finds nothing due then. It does not keep
 * the process alive.
 */
export class Deadlines {
  #first: Entry | undefined;
  #last: Entry | undefined;
  #timer: Timer | undefined;
  #timerAt = Infinity;

  constructor(private readonly clock: Clock) {}

  /** The time of the clock that the limits go by. */
  now(): number {
    return this.clock.monotonic();
  }

  /** Calls `run` after `delayMs`, unless the limit is cancelled before. */
  add(delayMs: number, run: () => void): Deadline {
    const entry = new Entry(this.clock.monotonic() + delayMs, run, this);
    let previous = this.#last;
    while (previous !== undefined && previous.at > entry.at) previous = previous.previous;
    this.#insertBehind(previous, entry);
    if (entry.at < this.#timerAt) this.#setTimer(entry.at);
    return entry;
  }

  /** Does nothing for an entry that has run or was removed before. */
  remove(entry: Entry): void {
    const { previous, next } = entry;
    if (previous === undefined && this.#first !== entry) return;
    if (previous === undefined) this.#first = next;
    else previous.next = next;
    if (next === undefined) this.#last = previous;
    else next.previous = previous;
    entry.previous = entry.next = undefined;
  }

  /** Drops every limit. */
  close(): void {
    this.#first = this.#last = undefined;
    this.#timer?.cancel();
    this.#timerAt = Infinity;
  }

  #insertBehind(previous: Entry | undefined, entry: Entry): void {
    const next = previous === undefined ? this.#first : previous.next;
    entry.previous = previous;
    entry.next = next;
    if (previous === undefined) this.#first = entry;
    else previous.next = entry;
    if (next === undefined) this.#last = entry;
    else next.previous = entry;
  }

  #setTimer(at: number): void {
    this.#timer?.cancel();
    this.#timerAt = at;
    // Node.js rounds down to whole milliseconds: without this a timer would find its limit not yet due.
    this.#timer = this.clock.after(Math.max(0, at - this.clock.monotonic()) + 1, () => this.#due());
    this.#timer.unref?.();
  }

  #due(): void {
    this.#timerAt = Infinity;
    const now = this.clock.monotonic();
    for (let entry = this.#first; entry !== undefined && entry.at <= now; entry = this.#first) {
      this.remove(entry);
      entry.run();
    }
    if (this.#first !== undefined && this.#first.at < this.#timerAt) this.#setTimer(this.#first.at);
  }
}
