import type { Timer } from "../../base/util/clock.js";

/** Time in milliseconds since some moment, fractional. */
export interface Scheduler {
  readonly now: number;
  /** Runs at that virtual time, after everything that was scheduled before for the same time. A time in the past means now. */
  at(time: number, run: () => void): Timer;
  after(ms: number, run: () => void): Timer;
}

/** One event. Cancelled events stay in the heap until their time, or until most events of the heap are cancelled. */
export class ScheduledEvent implements Timer {
  /** `undefined` once the event has run or was cancelled. */
  run: (() => void) | undefined;

  constructor(
    readonly time: number,
    readonly sequence: number,
    private readonly queue: EventQueue,
  ) {}

  cancel(): void {
    if (this.run === undefined) return;
    this.run = undefined;
    this.queue.cancelled();
  }
}

/** So many cancelled events are no burden. */
const FEW = 1024;

/** A binary heap by time, and for equal times by the order of creation. The times are in a separate array, because most steps compare them. */
export class EventQueue {
  readonly #heap: ScheduledEvent[] = [];
  readonly #times: number[] = [];
  #live = 0;
  #sequence = 0;

  /** The number of events that are neither run nor cancelled. */
  get live(): number {
    return this.#live;
  }

  add(time: number, run: () => void): ScheduledEvent {
    const event = new ScheduledEvent(time, this.#sequence++, this);
    event.run = run;
    this.#live++;
    this.#up(event);
    return event;
  }

  cancelled(): void {
    this.#live--;
    if (this.#heap.length > FEW && this.#live < this.#heap.length / 2) this.#removeCancelled();
  }

  /** The next event, which stays in the queue. */
  peek(): ScheduledEvent | undefined {
    let first = this.#heap[0];
    while (first !== undefined && first.run === undefined) {
      this.#remove();
      first = this.#heap[0];
    }
    return first;
  }

  /** Removes the event that `peek` has returned, and returns what it runs. */
  take(event: ScheduledEvent): () => void {
    const { run } = event;
    event.run = undefined;
    this.#live--;
    this.#remove();
    return run!;
  }

  /** What is in order is a heap. */
  #removeCancelled(): void {
    const live = this.#heap.filter(({ run }) => run !== undefined);
    live.sort((a, b) => a.time - b.time || a.sequence - b.sequence);
    this.#heap.length = this.#times.length = 0;
    for (const event of live) {
      this.#heap.push(event);
      this.#times.push(event.time);
    }
  }

  /** The newest event has the highest sequence: it stays behind all events of its time. */
  #up(event: ScheduledEvent): void {
    const heap = this.#heap;
    const times = this.#times;
    const { time } = event;
    let index = heap.length;
    heap.push(event);
    times.push(time);
    while (index > 0) {
      const parent = (index - 1) >> 1;
      if (time >= times[parent]!) break;
      heap[index] = heap[parent]!;
      times[index] = times[parent]!;
      index = parent;
    }
    heap[index] = event;
    times[index] = time;
  }

  /** Removes the first event. */
  #remove(): void {
    const heap = this.#heap;
    const times = this.#times;
    const last = heap.pop()!;
    const time = times.pop()!;
    const { length } = heap;
    if (length === 0) return;
    let index = 0;
    for (let child = 1; child < length; child = 2 * index + 1) {
      if (child + 1 < length && this.#isBefore(child + 1, child)) child++;
      const other = times[child]!;
      if (other > time || (other === time && heap[child]!.sequence > last.sequence)) break;
      heap[index] = heap[child]!;
      times[index] = other;
      index = child;
    }
    heap[index] = last;
    times[index] = time;
  }

  #isBefore(a: number, b: number): boolean {
    const before = this.#times[a]! - this.#times[b]!;
    return before < 0 || (before === 0 && this.#heap[a]!.sequence < this.#heap[b]!.sequence);
  }
}
