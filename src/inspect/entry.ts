import { compactKey } from "../etcd/watch/watch.js";
import type { KeyValue } from "../etcd/port.js";
import { parseEntryValue, prefixOf } from "../keys.js";

/** What made the queue of a name, as far as its keys and values show. */
export type QueueKind = "mutex" | "rwlock" | "semaphore" | "election" | "unknown";

/**
 * Where a key is in its queue: in the folder of the readers or of the writers, directly under the name, or deeper, in the
 * queue of a nested name. "below readers": deeper, in the folder of the readers.
 */
type Place = "reader" | "writer" | "direct" | "below readers" | "below";

/** What is kept of a key in a queue. Its size is bounded, whatever the value is. */
export interface InspectedKey {
  readonly key: string | Buffer;
  readonly createRevision: bigint;
  readonly modRevision: bigint;
  readonly place: Place;
  readonly facts: Facts;
}

/** Fields that need a read with values: etcd 3.7 omits the lease from a keys-only read (etcd-io/etcd#22209). */
interface Facts {
  readonly leaseId: bigint;
  readonly owner: string | undefined;
  readonly since: string | undefined;
  readonly permits: number | undefined;
  readonly kind: QueueKind;
}

const UNREAD: Facts = {
  leaseId: 0n,
  owner: undefined,
  since: undefined,
  permits: undefined,
  kind: "unknown",
};

/** Longer texts are no times. */
const MAX_SINCE = 40;
/** In UTF-16 code units, each of which is at least one byte; a `Contender` has fewer bytes of it. */
const MAX_OWNER = 256;

/** The last part of the keys of this library, of Go's client, etcdctl and jetcd. */
const LEASE_AND_NUMBER = /^[1-9a-f][0-9a-f]{0,15}(-[1-9][0-9]*)?$/;

/** A key whose value was not read. */
export function keyOf(name: string, kv: KeyValue): InspectedKey {
  const { createRevision, modRevision } = kv;
  const key = compactKey(kv.key);
  return { key, createRevision, modRevision, place: placeOf(name, key), facts: UNREAD };
}

export const isRead = ({ facts }: InspectedKey): boolean => facts !== UNREAD;

/** A key with its value. */
export const entryOf = (name: string, kv: KeyValue): InspectedKey => withValue(name, keyOf(name, kv), kv);

export const withValue = (
  name: string,
  entry: InspectedKey,
  kv: Pick<KeyValue, "value" | "leaseId">,
): InspectedKey => ({ ...entry, facts: factsAt(name, entry, factsOf(kv)) });

/** What a value says, wherever its key is. Its size is bounded. */
export interface ValueFacts extends Omit<Facts, "kind"> {
  /** It has the form that this library writes. */
  readonly isOurs: boolean;
  readonly isEmpty: boolean;
}

export function factsOf({ value, leaseId }: Pick<KeyValue, "value" | "leaseId">): ValueFacts {
  const { owner, since, permits, id } = parseEntryValue(value);
  return {
    leaseId,
    owner: owner === undefined ? undefined : compact(owner.slice(0, MAX_OWNER)),
    since: since === undefined || since.length > MAX_SINCE ? undefined : compact(since),
    permits,
    isOurs: owner !== undefined && since !== undefined && id !== undefined,
    isEmpty: value === "",
  };
}

/** A key that has been read, as the queue of `name` sees it: that of its own name, or of one above it. */
export function entryIn(
  name: string,
  { key, createRevision, modRevision }: Pick<InspectedKey, "key" | "createRevision" | "modRevision">,
  value: ValueFacts,
): InspectedKey {
  const entry = { key, createRevision, modRevision, place: placeOf(name, key), facts: UNREAD };
  return { ...entry, facts: factsAt(name, entry, value) };
}

function factsAt(name: string, entry: InspectedKey, value: ValueFacts): Facts {
  const { leaseId, owner, since, permits } = value;
  return { leaseId, owner, since, permits, kind: kindOf(name, entry, value) };
}

function kindOf(name: string, { key, place }: InspectedKey, value: ValueFacts): QueueKind {
  const below = key.toString().slice(prefixOf(name).length);
  const last = below.slice(below.lastIndexOf("/") + 1);
  if (value.leaseId === 0n || !LEASE_AND_NUMBER.test(last)) return "unknown";
  if (place === "reader" || place === "writer") return "rwlock";
  if (place !== "direct") return "unknown";
  if (value.permits !== undefined) return "semaphore";
  // Go's mutex, etcdctl lock and jetcd write an empty value; a candidate's value is what it wants to tell.
  return value.isOurs || value.isEmpty ? "mutex" : "election";
}

function placeOf(name: string, key: string | Buffer): Place {
  const [first, second, ...deeper] = key.toString().slice(prefixOf(name).length).split("/", 3);
  if (second === undefined) return "direct";
  if (first === "read") return deeper.length > 0 ? "below readers" : "reader";
  return first === "write" && deeper.length === 0 ? "writer" : "below";
}

/** A part of a longer string would keep all of it in memory. */
const compact = (text: string): string => Buffer.from(text, "utf16le").toString("utf16le");
