import { entryKey } from "../keys.js";
import { KeyWatchSchedule } from "../session/key-audit.js";
import type { Lease } from "../session/lease.js";
import type { JoinedEntry, QueueEntry } from "./entry.js";
import { Joiner } from "./join.js";
import { Queue } from "./queue.js";

/** The numbers of the keys in one directory. */
interface Numbers {
  /** Released numbers, used before new ones. */
  readonly free: number[];
  highest: number;
  used: number;
}

/**
 * The numbers of one session's keys, by the directory of the keys, whichever queue uses them: the readers of `a` have their
 * keys in the directory of a mutex `a/read`.
 */
export class KeyNumbers {
  readonly #byDirectory = new Map<string, Numbers>();

  constructor(private readonly lease: Lease) {}

  next(directory: string): number {
    const numbers = this.#in(directory);
    const isTaken = (n: number): boolean =>
      this.lease.sweeper.isTaken(entryKey(directory, this.lease.leaseId, n));
    // A late put may create a key with a released number, and an adopted entry has brought its own number.
    const last = numbers.free.findLastIndex((n) => !isTaken(n));
    if (last >= 0) return numbers.free.splice(last, 1)[0] as number;
    do numbers.highest++;
    while (isTaken(numbers.highest));
    return numbers.highest;
  }

  take(entry: QueueEntry): void {
    if (this.lease.sweeper.take(entry)) this.#in(entry.directory).used++;
  }

  /** Frees the number, unless a late put may still create its key. */
  release(entry: QueueEntry): void {
    if (!this.lease.sweeper.release(entry)) return;
    // Until now, a late put of this key was taken for this entry's.
    if (entry.inDoubt) this.doubt(entry);
    const { directory, n } = entry;
    const numbers = this.#in(directory);
    numbers.free.push(n);
    // Names come and go (one per user, for example): keep only what is in use.
    if (--numbers.used === 0) this.#byDirectory.delete(directory);
  }

  /** The key may exist, or may still be put, without being this entry's: no other entry gets it for a while. */
  doubt(entry: QueueEntry): void {
    this.lease.sweeper.doubt(entry.key);
  }

  #in(directory: string): Numbers {
    const known = this.#byDirectory.get(directory);
    if (known) return known;
    const numbers = { free: [], highest: 0, used: 0 };
    this.#byDirectory.set(directory, numbers);
    return numbers;
  }
}

/** What one session keeps of its locks: a queue for each name in use, the numbers of its keys, the watches of held keys. */
export class LockTable {
  readonly keyNumbers: KeyNumbers;
  readonly keyWatches: KeyWatchSchedule;
  readonly joiner = new Joiner(this);
  readonly #queues = new Map<string, Queue>();

  private constructor(readonly lease: Lease) {
    this.keyNumbers = new KeyNumbers(lease);
    this.keyWatches = new KeyWatchSchedule(lease, lease.sweeper.audit);
  }

  static of(lease: Lease): LockTable {
    return (lease.locks ??= new LockTable(lease));
  }

  /** Those in all queues, as far as etcd has confirmed them. */
  entries(): readonly JoinedEntry[] {
    return [...this.#queues.values()].flatMap(({ own }) => own.joined);
  }

  queue(name: string): Queue {
    const known = this.#queues.get(name);
    if (known) return known;
    const queue = new Queue(this, name);
    this.#queues.set(name, queue);
    return queue;
  }

  /** Names come and go (one per user, for example): only queues in use are kept. */
  forget(name: string): void {
    this.#queues.delete(name);
  }
}
