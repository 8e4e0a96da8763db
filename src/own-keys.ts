import type { KeyValue } from "./etcd/rpc.js";
import type { Lease } from "./lease.js";
import type { Place } from "./place.js";
import { Sweep } from "./sweep.js";

const keysOf = new WeakMap<Lease, Map<string, OwnKeys>>();

/** The keys of one session in one directory, whichever queue they are used in: the readers of `a` are where a mutex `a/read` is. */
export class OwnKeys {
  /** Numbers that must not be given to a new place: in use, in doubt, or somebody else's. */
  readonly #taken = new Set<number>();
  /** Numbers that were given back, to be used before new ones. */
  readonly #free: number[] = [];
  #highest = 0;
  /** Places whose put is under way, or done. */
  readonly #made = new Map<string, Place>();
  #sweep: Sweep | undefined;

  private constructor(
    private readonly lease: Lease,
    private readonly directory: string,
  ) {}

  static of(lease: Lease, directory: string): OwnKeys {
    const byDirectory = keysOf.get(lease) ?? new Map<string, OwnKeys>();
    keysOf.set(lease, byDirectory);
    const keys = byDirectory.get(directory) ?? new OwnKeys(lease, directory);
    byDirectory.set(directory, keys);
    return keys;
  }

  nextNumber(): number {
    for (;;) {
      const n = this.#free.pop() ?? ++this.#highest;
      // An adopted place came with its number.
      if (!this.#taken.has(n)) return n;
    }
  }

  take(place: Place): void {
    this.#taken.add(place.n);
    this.#made.set(place.key, place);
  }

  /** The number is free again, unless a late put may still come under it. */
  release(place: Place): void {
    this.#made.delete(place.key);
    // What was put since was taken for this place until now.
    if (place.unanswered > 0) return this.doubt(place).read();
    if (this.#taken.delete(place.n)) this.#free.push(place.n);
    // Names come and go (one a user, say): what is not needed is not kept.
    if (this.#taken.size === 0) keysOf.get(this.lease)?.delete(this.directory);
  }

  /** A put of this place may be applied yet: until the lease is over its key is not used again, and swept. */
  doubt(place: Place): Sweep {
    this.#taken.add(place.n);
    this.#sweep ??= new Sweep(this.lease, this.directory, (kv) => this.#isOurs(kv));
    return this.#sweep;
  }

  /** The key is another process's with the same lease. Its number stays taken. */
  stranger(place: Place): void {
    this.#made.delete(place.key);
    if (place.unanswered > 0) this.doubt(place);
  }

  #isOurs(kv: KeyValue): boolean {
    if (this.lease.adopted?.has(this.directory, kv)) return true;
    const place = this.#made.get(kv.key.toString());
    // Not confirmed yet: its value tells.
    if (place?.revision === 0n) return place.value === kv.value;
    return place !== undefined && place.is(kv);
  }
}
