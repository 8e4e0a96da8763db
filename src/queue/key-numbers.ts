import { entryKey } from "../keys.js";
import type { Lease } from "../session/lease.js";
import type { QueueEntry } from "./entry.js";
import { LatePutSweeper } from "../session/late-put-sweeper.js";

const keysOf = new WeakMap<Lease, Map<string, KeyNumbers>>();

/**
 * The numbers of one session's keys in one directory, whichever queue uses them: the readers of `a` have their keys in the
 * directory of a mutex `a/read`.
 */
export class KeyNumbers {
  /** Released numbers, used before new ones. */
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
    // A late put may create a key with a released number, and an adopted entry has brought its own number.
    const last = this.#free.findLastIndex((n) => !this.#isTaken(n));
    if (last >= 0) return this.#free.splice(last, 1)[0] as number;
    do this.#highest++;
    while (this.#isTaken(this.#highest));
    return this.#highest;
  }

  take(entry: QueueEntry): void {
    if (this.#sweep.take(entry)) this.#used++;
  }

  /** Frees the number, unless a late put may still create its key. */
  release(entry: QueueEntry): void {
    if (!this.#sweep.release(entry)) return;
    // Until now, a late put of this key was taken for this entry's.
    if (entry.inDoubt) this.doubt(entry);
    this.#free.push(entry.n);
    // Names come and go (one per user, for example): keep only what is in use.
    if (--this.#used === 0) keysOf.get(this.lease)?.delete(this.directory);
  }

  /** The key may exist, or may still be put, without being this entry's: no other entry gets it for a while. */
  doubt(entry: QueueEntry): void {
    this.#sweep.doubt(entry.key);
  }

  #isTaken(n: number): boolean {
    return this.#sweep.isTaken(entryKey(this.directory, this.lease.leaseId, n));
  }
}
