import type { AdoptedPlace } from "../session/adopted-entries.js";
import { exclusive, type Kind } from "./lock-mode.js";
import type { Lease } from "../session/lease.js";
import { OwnKeys } from "./key-numbers.js";
import { Place } from "./entry.js";

const NONE: readonly Place[] = [];

/** The places of one session under one name, of whatever kind. */
export class OwnPlaces {
  /** Joined and not known to be gone, by create revision. */
  #joined: readonly Place[] = NONE;

  constructor(
    private readonly lease: Lease,
    private readonly name: string,
  ) {}

  /** Oldest first. */
  get joined(): readonly Place[] {
    return this.#joined;
  }

  make(kind: Kind = exclusive, value?: string): Place {
    const keys = OwnKeys.of(this.lease, `${this.name}${kind.folder}`);
    const place = new Place(this.lease, this.name, keys.nextNumber(), kind, value);
    keys.take(place);
    return place;
  }

  /** A place that an adopted lease had already. */
  adopt({ n, value, revision }: AdoptedPlace, kind: Kind = exclusive): Place {
    const place = new Place(this.lease, this.name, n, kind, value);
    place.revision = revision;
    this.add(place);
    return place;
  }

  /** It is in the queue. */
  add(place: Place): void {
    this.#keysOf(place).take(place);
    const later = this.#joined.findIndex(({ revision }) => revision > place.revision);
    const i = later === -1 ? this.#joined.length : later;
    this.#joined = [...this.#joined.slice(0, i), place, ...this.#joined.slice(i)];
  }

  /** Our place that `place` waits for: looked up by revision, not by the order of calls. */
  followedBy(place: Place): Place | undefined {
    return place.kind.follows(place, this.#joined.slice(0, this.#joined.indexOf(place)));
  }

  remove(place: Place): void {
    this.#joined = this.#joined.filter((other) => other !== place);
  }

  /** See OwnKeys. */
  release(place: Place): void {
    this.#keysOf(place).release(place);
  }

  /** See OwnKeys. */
  doubt(place: Place): void {
    this.#keysOf(place).doubt(place);
  }

  /** Its key is there, with another value: of a late put, or of another process that uses the lease. */
  stranger(place: Place): void {
    this.doubt(place);
    this.release(place);
  }

  #keysOf({ directory }: Place): OwnKeys {
    return OwnKeys.of(this.lease, directory);
  }
}
