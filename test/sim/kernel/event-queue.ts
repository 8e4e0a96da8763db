import type { Timer } from "../../../src/async/clock.js";

/** One event. Cancelled events stay in the heap until their time. */
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

const isBefore = (a: ScheduledEvent, b: ScheduledEvent): boolean =>
  a.time < b.time || (a.time === b.time && a.sequence < b.sequence);

/** A binary heap by time, and for equal times by the order of creation. */
export class EventQueue {
  readonly #heap: ScheduledEvent[] = [];
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

  #up(event: ScheduledEvent): void {
    const heap = this.#heap;
    let index = heap.length;
    heap.push(event);
    while (index > 0) {
      const parent = (index - 1) >> 1;
      if (!isBefore(event, heap[parent]!)) break;
      heap[index] = heap[parent]!;
      index = parent;
    }
    heap[index] = event;
  }

  /** Removes the first event. */
  #remove(): void {
    const heap = this.#heap;
    const last = heap.pop()!;
    if (heap.length === 0) return;
    let index = 0;
    for (let child = 1; child < heap.length; child = 2 * index + 1) {
      if (child + 1 < heap.length && isBefore(heap[child + 1]!, heap[child]!)) child++;
      if (!isBefore(heap[child]!, last)) break;
      heap[index] = heap[child]!;
      index = child;
    }
    heap[index] = last;
  }
}
