import type { Clock, Timer } from "./clock.js";

/** What a turn of the event loop runs at most: a grain may have thousands. */
const MAX_AT_ONCE = 250;

/** Something that `Timers` calls, in one of them at a time. It has its own place there, so that thousands cost no memory. */
export abstract class Timed {
  dueAt = 0;
  /** Decides between those that are due at the same time. */
  order = 0;
  place = -1;

  abstract due(): void;
}

class Call extends Timed implements Timer {
  constructor(
    private readonly run: () => void,
    private readonly timers: Timers,
  ) {
    super();
  }

  due(): void {
    this.run();
  }

  cancel(): void {
    this.timers.delete(this);
  }
}

const isBefore = (a: Timed, b: Timed): boolean =>
  a.dueAt === b.dueAt ? a.order < b.order : a.dueAt < b.dueAt;

/**
 * Many times under one timer of the clock: a heap, in which adding costs nothing for those of equal length, and at most its
 * logarithm for others. The timer isn't reset when its first time is cancelled: it finds nothing due then.
 */
export class Timers {
  readonly #heap: Timed[] = [];
  #added = 0;
  #timer: Timer | undefined;
  #timerAt = Infinity;

  /** `keepsAlive`: the process does not end while any is there. */
  constructor(
    private readonly clock: Clock,
    private readonly keepsAlive = false,
  ) {}

  /** The time of the clock that they go by. */
  now(): number {
    return this.clock.monotonic();
  }

  /** Calls `run` after `delayMs`, and up to `grainMs` later: those in the same grain share one run of the timer. */
  add(delayMs: number, run: () => void, grainMs = 0): Timer {
    const call = new Call(run, this);
    this.set(call, delayMs, grainMs);
    return call;
  }

  /** Like `add`, for an object that has a place of its own. Replaces its time if it has one. */
  set(timed: Timed, delayMs: number, grainMs = 0): void {
    this.delete(timed);
    const dueAt = this.clock.monotonic() + delayMs;
    timed.dueAt = grainMs === 0 ? dueAt : Math.ceil(dueAt / grainMs) * grainMs;
    timed.order = this.#added++;
    this.#put(timed, this.#heap.length);
    if (timed.dueAt < this.#timerAt) this.#setTimer(timed.dueAt);
  }

  /** Does nothing for one that has run or was deleted before. */
  delete(timed: Timed): void {
    const { place } = timed;
    if (place < 0) return;
    timed.place = -1;
    const last = this.#heap.pop() as Timed;
    if (last !== timed) this.#put(last, place);
    if (this.keepsAlive && this.#heap.length === 0) this.#cancelTimer();
  }

  /** Drops all of them. */
  close(): void {
    for (const timed of this.#heap) timed.place = -1;
    this.#heap.length = 0;
    this.#cancelTimer();
  }

  /** Moves `timed` from a free place up or down to its own. */
  #put(timed: Timed, free: number): void {
    const heap = this.#heap;
    let place = free;
    const swap = (other: Timed): void => {
      const from = other.place;
      heap[place] = other;
      other.place = place;
      place = from;
    };
    while (place > 0) {
      const above = heap[(place - 1) >> 1] as Timed;
      if (isBefore(above, timed)) break;
      swap(above);
    }
    for (;;) {
      const left = heap[2 * place + 1];
      const right = heap[2 * place + 2];
      const below = left && right && isBefore(right, left) ? right : left;
      if (below === undefined || isBefore(timed, below)) break;
      swap(below);
    }
    heap[place] = timed;
    timed.place = place;
  }

  #cancelTimer(): void {
    this.#timer?.cancel();
    this.#timer = undefined;
    this.#timerAt = Infinity;
  }

  #setTimer(at: number): void {
    this.#timer?.cancel();
    this.#timerAt = at;
    // Node.js rounds down to whole milliseconds: without this a timer would find its time not yet due.
    const delayMs = Math.ceil(Math.max(0, at - this.clock.monotonic()));
    this.#timer = this.clock.after(delayMs, () => this.#due());
    if (!this.keepsAlive) this.#timer.unref?.();
  }

  #due(): void {
    this.#timerAt = Infinity;
    const now = this.clock.monotonic();
    try {
      for (let n = 0; n < MAX_AT_ONCE; n++) {
        const first = this.#heap[0];
        if (first === undefined || first.dueAt > now) break;
        this.delete(first);
        first.due();
      }
    } finally {
      const next = this.#heap[0];
      if (next !== undefined && next.dueAt < this.#timerAt) this.#setTimer(next.dueAt);
    }
  }
}
