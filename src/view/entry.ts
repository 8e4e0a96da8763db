import { inspect } from "node:util";
import { type Contender, contenderOf } from "../contender.js";
import type { KeyValue } from "../etcd/port.js";
import { compactKey } from "../etcd/watch.js";
import { parseEntryValue, prefixOf } from "../keys.js";
import { printable } from "../util/printable.js";

/** The entries of a queue, in its order. */
export interface Split<E> {
  readonly holders: readonly E[];
  readonly waiters: readonly E[];
}

/** What the judgement is made of. */
export type Judged = Pick<InspectedKey, "place"> & { readonly facts: Pick<InspectedKey["facts"], "permits"> };

/**
 * Who holds, by the rules of the lock modes in queue/: every key under the name counts, of whatever client. A reader holds
 * while only readers are before it; a permit, while fewer keys are before it than the oldest one has in its value (1 if it
 * has none); any other key, while it is the oldest.
 */
export function splitQueue<E extends Judged>(entries: readonly E[]): Split<E> {
  const permits = entries[0]?.facts.permits ?? 1;
  const holders: E[] = [];
  const waiters: E[] = [];
  let onlyReaders = true;
  for (const [rank, entry] of entries.entries()) {
    const { place, facts } = entry;
    const isPermit = place === "direct" && facts.permits !== undefined;
    const limit = isPermit ? permits : 1;
    const holds = place === "reader" ? onlyReaders : rank < limit;
    (holds ? holders : waiters).push(entry);
    onlyReaders &&= place === "reader" || place === "below readers";
  }
  return { holders, waiters };
}

/** By the oldest entry that shows it. */
export const kindOfQueue = (
  entries: readonly { readonly facts: Pick<InspectedKey["facts"], "kind"> }[],
): QueueKind => entries.find(({ facts }) => facts.kind !== "unknown")?.facts.kind ?? "unknown";

/** In the order of their create revisions. A transaction may put several keys at one revision. */
export const inOrder = (entries: readonly InspectedKey[]): InspectedKey[] => [...entries].sort(byAge);

type Aged = Pick<InspectedKey, "createRevision" | "key">;
export const byAge = (a: Aged, b: Aged): number =>
  compare(a.createRevision, b.createRevision) || compare(a.key, b.key);

function compare<T extends bigint | string | Buffer>(a: T, b: T): number {
  if (a === b) return 0;
  return a < b ? -1 : 1;
}

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

/** The queue of a name at one revision of etcd. */
export interface QueueState {
  readonly name: string;
  /** As far as keys and values show; "unknown" also for an empty queue. */
  readonly kind: QueueKind;
  /** In the order of the queue, at most `limit` of them. */
  readonly holders: readonly Contender[];
  /** The next one first, at most `limit` of them. */
  readonly waiters: readonly Contender[];
  /** How many there are, whatever `limit` is. */
  readonly total: { readonly holders: number; readonly waiters: number };
  /** The revision of etcd whose state this is. */
  readonly revision: bigint;
  /** Bigints become decimal strings, dates ISO 8601. */
  toJSON(): Readonly<Record<string, unknown>>;
}

/** What a state is made of. */
interface StateParts {
  readonly name: string;
  /** The prefix of the cluster. */
  readonly prefix: string;
  readonly revision: bigint;
  /** All of them. */
  readonly split: Split<InspectedKey>;
  readonly limit: number;
  /** Milliseconds, by lease; undefined if they were not read. */
  readonly ttls?: ReadonlyMap<bigint, number>;
}

/** The first `limit` holders and the first `limit` waiters. */
export const reported = <E>({ holders, waiters }: Split<E>, limit: number): Split<E> => ({
  holders: holders.slice(0, limit),
  waiters: waiters.slice(0, limit),
});

export function stateOf({ name, prefix, revision, split, limit, ttls }: StateParts): QueueState {
  const { holders, waiters } = reported(split, limit);
  const contenders = (keys: readonly InspectedKey[], state: Contender["state"]): Contender[] =>
    keys.map((key) =>
      contenderAt(name, key, { prefix, state, ttlRemainingMs: ttls?.get(key.facts.leaseId) }),
    );
  const data: StateData = {
    name,
    kind: kindOfQueue([...holders, ...waiters]),
    holders: contenders(holders, "holding"),
    waiters: contenders(waiters, "waiting"),
    total: { holders: split.holders.length, waiters: split.waiters.length },
    revision,
  };
  // Not enumerable, so that logs and comparisons show only the data.
  const toJSON = (): Record<string, unknown> => ({ ...data, revision: revision.toString() });
  Object.defineProperty(data, inspect.custom, { value: () => textOf(data) });
  return Object.defineProperty(data, "toJSON", { value: toJSON }) as QueueState;
}

/** Complete keys that are no text, by the contender that shows them: its `key` has U+FFFD in the place of some bytes. */
const binaryKeys = new WeakMap<Contender, Buffer>();

/** The exact key of a contender that this process has read, without the prefix of the cluster. */
export const exactKey = (contender: Contender, prefix: string): string | Buffer =>
  binaryKeys.get(contender)?.subarray(Buffer.byteLength(prefix)) ?? contender.key.slice(prefix.length);

/** What a contender has besides its key. */
interface Circumstances extends Pick<Contender, "state" | "ttlRemainingMs"> {
  /** The prefix of the cluster. */
  readonly prefix: string;
}

export function contenderAt(
  name: string,
  { key, createRevision, facts: { leaseId, owner, since } }: InspectedKey,
  { prefix, ...now }: Circumstances,
): Contender {
  const place = { name, key: `${prefix}${key.toString()}`, revision: createRevision, leaseId };
  const contender = contenderOf({ ...place, owner, since, ...now });
  if (typeof key !== "string") binaryKeys.set(contender, Buffer.concat([Buffer.from(prefix), key]));
  return contender;
}

type StateData = Omit<QueueState, "toJSON">;

/** What `util.inspect` shows, and so console.log: a line for the queue and one for each contender, without control characters. */
function textOf({ name, kind, holders, waiters, total, revision }: StateData): string {
  const more = total.holders - holders.length + total.waiters - waiters.length;
  return [
    `QueueState "${printable(name, Infinity)}" (${kind}) at revision ${revision}: ${total.holders} holding, ${total.waiters} waiting`,
    ...[...holders, ...waiters].map((contender) => `  ${lineOf(contender)}`),
    ...(more > 0 ? [`  and ${more} more`] : []),
  ].join("\n");
}

function lineOf({ state, owner, since, key, revision, leaseId, ttlRemainingMs }: Contender): string {
  return [
    state,
    owner === undefined ? printable(key) : `${printable(owner)}  ${printable(key)}`,
    `revision ${revision}`,
    `lease ${leaseId.toString(16)}`,
    ...(since === undefined ? [] : [`since ${since.toISOString()}`]),
    ...(ttlRemainingMs === undefined ? [] : [`${ttlRemainingMs / 1000} s left`]),
  ].join("  ");
}
