import type { AdoptedPlace } from "./adopt.js";
import type { KeyValue } from "./etcd/rpc.js";
import type { Lease } from "./lease.js";
import { Place } from "./place.js";
import { Sweep } from "./sweep.js";

/** The places of one session under one name, and the numbers that their keys use up. */
export class OwnPlaces {
  /** Joined and not known to be gone, by create revision. */
  readonly #joined: Place[] = [];
  /** Numbers that must not be given to a new place: in use, in doubt, or somebody else's. */
  readonly #taken = new Set<number>();
  /** Numbers that were given back, to be used before new ones. */
  readonly #free: number[] = [];
  #highest = 0;
  /** Places whose put is under way, by key. */
  readonly #made = new Map<string, Place>();
  #sweep: Sweep | undefined;

  constructor(
    private readonly lease: Lease,
    private readonly name: string,
  ) {}

  get any(): boolean {
    return this.#joined.length > 0;
  }

  get empty(): boolean {
    return this.#taken.size === 0;
  }

  make(value?: string): Place {
    const place = new Place(this.lease, this.name, this.#number(), value);
    this.#taken.add(place.n);
    this.#made.set(place.key, place);
    return place;
  }

  /** A place that an adopted lease had already. */
  adopt({ n, value, revision }: AdoptedPlace): Place {
    const place = new Place(this.lease, this.name, n, value);
    place.revision = revision;
    this.add(place);
    return place;
  }

  /** It is in the queue. */
  add(place: Place): void {
    this.#taken.add(place.n);
    this.#made.set(place.key, place);
    let i = this.#joined.length;
    while (i > 0 && (this.#joined[i - 1]?.revision ?? 0n) > place.revision) i--;
    this.#joined.splice(i, 0, place);
  }

  /** Our last place before `place`: looked up by revision, not by the order of calls. */
  below(place: Place): Place | undefined {
    return this.#joined[this.#joined.indexOf(place) - 1];
  }

  remove(place: Place): void {
    const i = this.#joined.indexOf(place);
    if (i >= 0) this.#joined.splice(i, 1);
  }

  /** Its number is free again, unless a late put may still come under it. */
  release(place: Place): void {
    this.#made.delete(place.key);
    if (place.unanswered === 0) this.#giveBack(place.n);
    // What was put since was taken for this place until now.
    else this.doubt(place).read();
  }

  /** A put of this place may be applied yet: until the lease is over its key is not used again, and swept. */
  doubt(place: Place): Sweep {
    this.#taken.add(place.n);
    this.#sweep ??= new Sweep(this.lease, this.name, (kv) => this.#isOurs(kv));
    return this.#sweep;
  }

  /** The key is another process's with the same lease. Its number stays taken. */
  stranger(place: Place): void {
    this.#made.delete(place.key);
    if (place.unanswered > 0) this.doubt(place);
  }

  #number(): number {
    for (;;) {
      const n = this.#free.pop() ?? ++this.#highest;
      // An adopted place came with its number.
      if (!this.#taken.has(n)) return n;
    }
  }

  #giveBack(n: number): void {
    if (this.#taken.delete(n)) this.#free.push(n);
  }

  #isOurs(kv: KeyValue): boolean {
    const place = this.#made.get(kv.key.toString());
    // Not confirmed yet: its value tells.
    if (place?.revision === 0n) return place.value === kv.value;
    return place !== undefined && place.is(kv);
  }
}
