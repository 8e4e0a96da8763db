import { entryKey } from "../keys.js";
import type { Lease } from "../session/lease.js";
import type { QueueEntry } from "./entry.js";
import { LatePutSweeper } from "../session/late-put-sweeper.js";

const keysOf = new WeakMap<Lease, Map<string, KeyNumbers>>();

/** The numbers of one session's keys in one directory, whichever queue they are used in: the readers of `a` are where a mutex `a/read` is. */
export class KeyNumbers {
  /** Numbers that were given back, to be used before new ones. */
  readonly #free: number[] = [];
  #highest = 0;
  #used = 0;
  readonly #sweep: LatePutSweeper;

  private constructor(
    private readonly lease: Lease,
    private readonly directory: string,
  ) {
    this.#sweep = LatePutSweeper.of(lease);
  }

  static of(lease: Lease, directory: string): KeyNumbers {
    const byDirectory = keysOf.get(lease) ?? new Map<string, KeyNumbers>();
    keysOf.set(lease, byDirectory);
    const keys = byDirectory.get(directory) ?? new KeyNumbers(lease, directory);
    byDirectory.set(directory, keys);
    return keys;
  }

  nextNumber(): number {
    // A late put may come under one that was given back, and an adopted place came with its number.
    const last = this.#free.findLastIndex((n) => !this.#isTaken(n));
    if (last >= 0) return this.#free.splice(last, 1)[0] as number;
    do this.#highest++;
    while (this.#isTaken(this.#highest));
    return this.#highest;
  }

  take(entry: QueueEntry): void {
    if (this.#sweep.take(entry)) this.#used++;
  }

  /** The number is free again, unless a late put may still come under it. */
  release(entry: QueueEntry): void {
    if (!this.#sweep.release(entry)) return;
    // What was put since was taken for this place until now.
    if (entry.unanswered > 0) this.doubt(entry);
    this.#free.push(entry.n);
    // Names come and go (one a user, say): what is not needed is not kept.
    if (--this.#used === 0) keysOf.get(this.lease)?.delete(this.directory);
  }

  /** A key may come under the number, or is there, that is not this place's: for a while it is given to no other place. */
  doubt(entry: QueueEntry): void {
    this.#sweep.doubt(entry.key);
  }

  #isTaken(n: number): boolean {
    return this.#sweep.isTaken(entryKey(this.directory, this.lease.leaseId, n));
  }
}
