import { KeyNumbers } from "./key-numbers.js";
import { KeyWatchSchedule } from "../session/key-watch-schedule.js";
import { LatePutSweeper } from "../session/late-put-sweeper.js";
import type { Lease } from "../session/lease.js";
import { Queue } from "./queue.js";

const tables = new WeakMap<Lease, LockTable>();

/** What one session keeps of its locks: a queue for each name in use, the numbers of its keys, the watches of held keys. */
export class LockTable {
  readonly keyNumbers: KeyNumbers;
  readonly keyWatches: KeyWatchSchedule;
  readonly #queues = new Map<string, Queue>();

  private constructor(readonly lease: Lease) {
    const sweeper = LatePutSweeper.of(lease);
    this.keyNumbers = new KeyNumbers(lease, sweeper);
    this.keyWatches = new KeyWatchSchedule(lease, sweeper.audit);
    // The variable keeps the function out of V8's old space: see `EtcdClient`.
    const entries: Lease["entries"] = () => [...this.#queues.values()].flatMap(({ own }) => own.joined);
    lease.entries = entries;
  }

  static of(lease: Lease): LockTable {
    const table = tables.get(lease) ?? new LockTable(lease);
    tables.set(lease, table);
    return table;
  }

  queue(name: string): Queue {
    const queue = this.#queues.get(name) ?? new Queue(this, name);
    this.#queues.set(name, queue);
    return queue;
  }

  /** Names come and go (one per user, for example): only queues in use are kept. */
  forget(name: string): void {
    this.#queues.delete(name);
  }
}
