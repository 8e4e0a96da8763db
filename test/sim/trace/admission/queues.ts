import { count, type TraceStats } from "../checked.js";
import { Evidence } from "./evidence.js";
import { nameOf, SharedQueue } from "./places.js";
import { Writes } from "./writes.js";

/** The queues of a run by name, and what they share. */
export class SharedQueues {
  readonly stats: TraceStats = { steps: 0, largest: 1, counts: {} };
  readonly writes = new Writes();
  readonly evidence = new Evidence();
  /** The leases whose sessions are over for their clients. */
  readonly over = new Set<string>();
  readonly #names = new Map<string, SharedQueue>();

  /** `locks`: the prefix of the names. */
  constructor(readonly locks: string) {}

  get all(): Iterable<SharedQueue> {
    return this.#names.values();
  }

  of(name: string): SharedQueue {
    const queue = this.#names.get(name) ?? new SharedQueue();
    this.#names.set(name, queue);
    return queue;
  }

  /** The queue that a key belongs to. */
  ofKey(key: string): SharedQueue {
    return this.of(nameOf(key));
  }

  count(step: string): void {
    this.stats.steps++;
    count(this.stats, step);
  }
}
