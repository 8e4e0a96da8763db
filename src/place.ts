import { placeKey, prefixEnd, prefixOf, type PlaceValue } from "./keys.js";
import type { KeyValue, Operation, Range, Txn } from "./etcd/rpc.js";
import type { Lease } from "./lease.js";

/** One key of ours in a queue: (key, create revision), never a key alone. */
export class Place {
  readonly key: string;
  readonly value: string;
  /** Create revision; 0n until etcd has told it. */
  revision = 0n;
  /** Attempts to put the key that were sent and not answered: each may be applied yet. */
  unanswered = 0;

  constructor(
    readonly lease: Lease,
    readonly name: string,
    /** The n of `name/<lease>-n`. */
    readonly n: number,
    /** A campaign puts its candidate's value, and an adopted place keeps the one it has. */
    value?: string,
  ) {
    this.key = placeKey(name, lease.leaseId, n);
    this.value = value ?? JSON.stringify(this.#newValue());
  }

  is(kv: KeyValue): boolean {
    return kv.createRevision === this.revision && kv.key.toString() === this.key;
  }

  #newValue(): PlaceValue {
    const { clock } = this.lease.connection;
    return { owner: this.lease.owner, since: clock.date().toISOString(), id: clock.randomId().toString(36) };
  }
}

const queueRange = (name: string): { readonly key: string; readonly end: string } => {
  const prefix = prefixOf(name);
  return { key: prefix, end: prefixEnd(prefix) };
};

/** How many of the last places a join or a read tells: enough to see whether the predecessor is the holder. */
const LAST = 4;

const put = ({ key, value, lease }: Place): Operation => ({
  kind: "put",
  key,
  value,
  leaseId: lease.leaseId,
});
const own = ({ key }: Place): Operation => ({ kind: "range", key });
const first = (name: string): Operation => ({
  kind: "range",
  ...queueRange(name),
  order: "oldest first",
  limit: 1,
});

/** Puts the key unless it is there, and tells the last places and how many there are: alone = held, in one RPC. */
export const joinTxn = (place: Place): Txn => ({
  roots: [place.name],
  when: [{ kind: "created at", key: place.key, revision: 0n }],
  then: [put(place), { kind: "range", ...queueRange(place.name), order: "newest first", limit: LAST }],
  otherwise: [own(place)],
});

/** The same for a session that has a place under the name already: it knows its predecessor. */
export const joinBehindTxn = (place: Place): Txn => ({
  roots: [place.name],
  when: [{ kind: "created at", key: place.key, revision: 0n }],
  then: [put(place)],
  otherwise: [own(place)],
});

/** Puts the key if nothing is in the queue. Refused, it writes nothing and nobody hears of it. */
export const tryTxn = (place: Place): Txn => ({
  roots: [place.name],
  when: [{ kind: "nothing in", ...queueRange(place.name) }],
  then: [put(place)],
  otherwise: [own(place)],
});

/** Deletes exactly this place. `tellFirst` asks who is first after it. */
export function leaveTxn(place: Place, { tellFirst }: { readonly tellFirst: boolean }): Txn {
  const tell = tellFirst ? [first(place.name)] : [];
  return {
    roots: [place.name],
    // Before its create revision is known, its value says that it is ours.
    when: [
      place.revision === 0n
        ? { kind: "value is", key: place.key, value: place.value }
        : { kind: "created at", key: place.key, revision: place.revision },
    ],
    then: [{ kind: "delete", key: place.key }, ...tell],
    otherwise: tell,
  };
}

/** The last places up to and including `place`. */
export const lastPlaces = (place: Place): Range => ({
  ...queueRange(place.name),
  order: "newest first",
  limit: LAST,
  maxCreateRevision: place.revision,
});

/** The place just below ours. */
export interface Predecessor {
  readonly key: Buffer;
  readonly revision: bigint;
  /** It is known that nobody is below it. */
  holder: boolean;
}

export type Position = "first" | "gone" | { readonly predecessor: Predecessor; readonly ahead: number };

/** Where `place` stands, by an answer to `lastPlaces`. */
export function positionOf(place: Place, kvs: readonly KeyValue[], more: boolean): Position {
  const [mine, below, ...rest] = kvs;
  if (!mine || !place.is(mine)) return "gone";
  if (!below) return "first";
  const ahead = 1 + rest.length + (more ? 1 : 0);
  return { predecessor: { key: below.key, revision: below.createRevision, holder: ahead === 1 }, ahead };
}
