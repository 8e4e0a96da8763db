import { placeKey } from "../keys.js";
import type { Lease } from "../session/lease.js";
import type { Place } from "./entry.js";
import { Sweep } from "../session/late-put-sweeper.js";

const keysOf = new WeakMap<Lease, Map<string, OwnKeys>>();

/** The numbers of one session's keys in one directory, whichever queue they are used in: the readers of `a` are where a mutex `a/read` is. */
export class OwnKeys {
  /** Numbers that were given back, to be used before new ones. */
  readonly #free: number[] = [];
  #highest = 0;
  #used = 0;
  readonly #sweep: Sweep;

  private constructor(
    private readonly lease: Lease,
    private readonly directory: string,
  ) {
    this.#sweep = Sweep.of(lease);
  }

  static of(lease: Lease, directory: string): OwnKeys {
    const byDirectory = keysOf.get(lease) ?? new Map<string, OwnKeys>();
    keysOf.set(lease, byDirectory);
    const keys = byDirectory.get(directory) ?? new OwnKeys(lease, directory);
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

  take(place: Place): void {
    if (this.#sweep.take(place)) this.#used++;
  }

  /** The number is free again, unless a late put may still come under it. */
  release(place: Place): void {
    if (!this.#sweep.release(place)) return;
    // What was put since was taken for this place until now.
    if (place.unanswered > 0) this.doubt(place);
    this.#free.push(place.n);
    // Names come and go (one a user, say): what is not needed is not kept.
    if (--this.#used === 0) keysOf.get(this.lease)?.delete(this.directory);
  }

  /** A key may come under the number, or is there, that is not this place's: for a while it is given to no other place. */
  doubt(place: Place): void {
    this.#sweep.doubt(place.key);
  }

  #isTaken(n: number): boolean {
    return this.#sweep.isTaken(placeKey(this.directory, this.lease.leaseId, n));
  }
}
