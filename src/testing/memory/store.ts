import type { KeyValue, WatchEvent } from "../../etcd/port.js";
import { COMPACTED, FUTURE_REVISION, type Refusal } from "./protocol.js";

/** A key as etcd keeps it. */
export interface StoredKeyValue extends KeyValue {
  /** How often the key was put since its creation; 0 in the event of its deletion. */
  readonly version: bigint;
  /** A value that is no text, as another client than leasehold may put it. The port has its text. */
  readonly bytes?: Buffer | undefined;
}

interface StoredEvent extends WatchEvent {
  readonly kv: StoredKeyValue;
}

/** What one revision changed, in the order of the operations. */
export interface Change {
  readonly revision: bigint;
  readonly events: readonly StoredEvent[];
  /** The key of each event, one character per byte. */
  readonly names: readonly string[];
  /** The lease that ended with it, and whose keys it has deleted. */
  readonly leaseEnded?: bigint;
}

export interface Put {
  readonly key: string | Buffer;
  /** Bytes, if they come from a client that may send others than text. */
  readonly value: string | Buffer;
  readonly leaseId: bigint;
}

/** The value as it was put. */
export const bytesOfValue = ({ bytes, value }: StoredKeyValue): Buffer => bytes ?? Buffer.from(value);

/** How much a change adds to the weight of a store: 1 for each key, and more for a long value. */
const weightOf = ({ events }: Change): number => {
  let weight = events.length;
  for (const { kv } of events) weight += kv.value.length >>> 12;
  return weight;
};

/** The keys, with the revisions since the last compaction: etcd's multi-version store (storage/mvcc/kvstore.go, kvstore_txn.go). */
export class Store {
  readonly #index = new KeyIndex();
  /** From the compacted revision on, or from 2. */
  readonly #history: Change[] = [];
  #weight = 0;
  readonly #listeners: ((change: Change) => void)[] = [];
  /** What the write that runs has changed. */
  #events: StoredEvent[] = [];
  #names: string[] = [];
  #revision = 1n;
  #compacted = -1n;

  /** The present revision; an empty etcd has 1. */
  get revision(): bigint {
    return this.#revision;
  }

  /** The revision of the last compaction; -1 before the first. */
  get compacted(): bigint {
    return this.#compacted;
  }

  /** Of the changes that it keeps: about their number. */
  get weight(): number {
    return this.#weight;
  }

  /** The latest revision whose compaction leaves changes of this weight. */
  revisionBefore(weight: number): bigint {
    let at = this.#history.length;
    for (let left = 0; at > 0 && left < weight; at--) left += weightOf(this.#history[at - 1]!);
    return this.#history[at]?.revision ?? this.#revision;
  }

  /** The present keys, in the order of their bytes. */
  get keys(): readonly StoredKeyValue[] {
    return this.#index.living.map(({ states }) => states.at(-1)!.kv!);
  }

  /** The changes from a revision on, as far as they are not compacted. */
  since(revision: bigint): readonly Change[] {
    const first = this.#history[0]?.revision ?? revision;
    return this.#history.slice(revision > first ? Number(revision - first) : 0);
  }

  /** A key as it is now, also inside of the running write. */
  present(key: string | Buffer): StoredKeyValue | undefined {
    return this.#index.present(bytesOf(key));
  }

  /** Calls `listener` at the end of each write that changed something, before its revision is the present one. */
  onChange(listener: (change: Change) => void): void {
    this.#listeners.push(listener);
  }

  /** The revision that a read inside the running write sees: its own changes are visible to it. */
  get readRevision(): bigint {
    return this.#events.length > 0 ? this.#revision + 1n : this.#revision;
  }

  /** Puts and deletions inside `run` have one revision. Without any, there is no new revision. `leaseEnded`: see `Change`. */
  write<Result>(run: () => Result, leaseEnded?: bigint): Result {
    const result = run();
    if (this.#events.length > 0) {
      const change = {
        ...{ revision: this.#revision + 1n, events: this.#events, names: this.#names },
        ...(leaseEnded !== undefined && { leaseEnded }),
      };
      this.#events = [];
      this.#names = [];
      this.#written(change);
    }
    return result;
  }

  /** Makes the change that another store with the same keys has made. */
  repeat(change: Change): void {
    const { revision, events, names } = change;
    for (let n = 0; n < events.length; n++) {
      const { kind, kv } = events[n]!;
      const name = names[n]!;
      if (kind === "PUT") this.#index.put(name, kv);
      else this.#index.delete(name, revision);
    }
    this.#written(change);
  }

  #written(change: Change): void {
    this.#history.push(change);
    this.#weight += weightOf(change);
    for (const listener of this.#listeners) listener(change);
    this.#revision = change.revision;
  }

  /** Only inside `write()`. */
  put({ key, value, leaseId }: Put): void {
    const revision = this.#revision + 1n;
    const name = bytesOf(key);
    const before = this.#index.present(name);
    const text = textOf(value);
    const kv: StoredKeyValue = {
      ...(typeof value !== "string" && !Buffer.from(text).equals(value) && { bytes: value }),
      key: this.#index.bytesOf(name),
      value: text,
      createRevision: before?.createRevision ?? revision,
      modRevision: revision,
      version: (before?.version ?? 0n) + 1n,
      leaseId,
    };
    this.#index.put(name, kv);
    this.#changed(name, { kind: "PUT", kv });
  }

  /** Only inside `write()`. A deletion that finds nothing changes nothing. */
  delete(key: string | Buffer): void {
    const name = bytesOf(key);
    if (!this.#index.present(name)) return;
    const revision = this.#revision + 1n;
    this.#index.delete(name, revision);
    // The event of a deletion has the key and the revision only (storage/mvcc/watchable_store_txn.go).
    const kv = {
      ...{ key: this.#index.bytesOf(name), value: "", leaseId: 0n },
      ...{ createRevision: 0n, modRevision: revision, version: 0n },
    };
    this.#changed(name, { kind: "DELETE", kv });
  }

  #changed(name: string, event: StoredEvent): void {
    this.#events.push(event);
    this.#names.push(name);
  }

  /** The keys of an interval, in the order of their bytes. Revision 0 or less is the present one. */
  read(interval: Interval, revision = 0n): Refusal | StoredKeyValue[] {
    const present = this.readRevision;
    if (revision > present) return FUTURE_REVISION;
    const at = revision <= 0n ? present : revision;
    if (at < this.#compacted) return COMPACTED;
    return at === present ? this.#index.rangePresent(interval) : this.#index.rangeAt(interval, at);
  }

  /** What a key was at a revision; undefined: it was not there, or that revision is compacted. */
  at(key: string | Buffer, revision: bigint): StoredKeyValue | undefined {
    return revision < this.#compacted ? undefined : this.#index.at(bytesOf(key), revision);
  }

  /** The rejection of a read at `revision` in a transaction (checkRange in etcdserver/txn). */
  checkRevision(revision = 0n): Refusal | undefined {
    if (revision === 0n) return undefined;
    if (revision > this.#revision) return FUTURE_REVISION;
    return revision < this.#compacted ? COMPACTED : undefined;
  }

  compact(revision: bigint): Refusal | undefined {
    if (revision <= this.#compacted) return COMPACTED;
    if (revision > this.#revision) return FUTURE_REVISION;
    this.#compacted = revision;
    this.#index.compact(revision);
    const kept = this.#history.findIndex((change) => change.revision >= revision);
    for (const change of this.#history.splice(0, kept === -1 ? Infinity : kept))
      this.#weight -= weightOf(change);
    return undefined;
  }
}

/** One state of a key. */
interface KeyState {
  readonly revision: bigint;
  /** `undefined`: the key was deleted. */
  readonly kv: StoredKeyValue | undefined;
}

/** One key and its states, oldest first. */
export interface IndexedKey {
  readonly name: string;
  readonly bytes: Buffer;
  states: KeyState[];
}

const nameOf = ({ name }: IndexedKey): string => name;

/** All keys that exist, or existed after the last compaction, in the order of their bytes (storage/mvcc/index.go). */
export class KeyIndex {
  readonly #byName = new Map<string, IndexedKey>();
  #all: IndexedKey[] = [];
  readonly #living: IndexedKey[] = [];

  /** The present keys. */
  get living(): readonly IndexedKey[] {
    return this.#living;
  }

  present(name: string): StoredKeyValue | undefined {
    return this.#byName.get(name)?.states.at(-1)?.kv;
  }

  put(name: string, kv: StoredKeyValue): void {
    const key = this.#keyOf(name, kv.key);
    if (!key.states.at(-1)?.kv) this.#living.splice(lowerBound(this.#living, name, nameOf), 0, key);
    key.states.push({ revision: kv.modRevision, kv });
  }

  delete(name: string, revision: bigint): void {
    const key = this.#byName.get(name)!;
    key.states.push({ revision, kv: undefined });
    this.#living.splice(lowerBound(this.#living, name, nameOf), 1);
  }

  /** The bytes of a key, which all of its states share. */
  bytesOf(name: string): Buffer {
    return this.#byName.get(name)?.bytes ?? Buffer.from(name, "latin1");
  }

  #keyOf(name: string, bytes: Buffer): IndexedKey {
    let key = this.#byName.get(name);
    if (!key) {
      key = { name, bytes, states: [] };
      this.#byName.set(name, key);
      this.#all.splice(lowerBound(this.#all, name, nameOf), 0, key);
    }
    return key;
  }

  /** The keys of an interval as they are now, in order. */
  rangePresent(interval: Interval): StoredKeyValue[] {
    return select(this.#living, interval, ({ states }) => states.at(-1)!.kv);
  }

  /** The keys of an interval as they were at `revision`, in order. */
  rangeAt(interval: Interval, revision: bigint): StoredKeyValue[] {
    return select(this.#all, interval, (key) => stateAt(key, revision)?.kv);
  }

  at(name: string, revision: bigint): StoredKeyValue | undefined {
    const key = this.#byName.get(name);
    return key && stateAt(key, revision)?.kv;
  }

  /** Forgets the states that were over at `revision`. */
  compact(revision: bigint): void {
    for (const key of this.#all) {
      const last = key.states.findLastIndex((state) => state.revision <= revision);
      const first = key.states[last]?.kv ? last : last + 1;
      if (first > 0) key.states = key.states.slice(first);
      if (key.states.length === 0) this.#byName.delete(key.name);
    }
    this.#all = this.#all.filter(({ states }) => states.length > 0);
  }
}

const stateAt = ({ states }: IndexedKey, revision: bigint): KeyState | undefined =>
  states.findLast((state) => state.revision <= revision);

function select(
  sorted: readonly IndexedKey[],
  { key, end }: Interval,
  of: (key: IndexedKey) => StoredKeyValue | undefined,
): StoredKeyValue[] {
  const found: StoredKeyValue[] = [];
  for (let i = lowerBound(sorted, key, nameOf); i < sorted.length; i++) {
    const item = sorted[i]!;
    if (end === undefined ? item.name !== key : end !== "" && item.name >= end) break;
    const one = of(item);
    if (one !== undefined) found.push(one);
  }
  return found;
}

/**
 * Keys as strings with one character per byte ("binary" strings): JavaScript compares them as etcd compares bytes, which
 * UTF-16 strings do not guarantee, and they are keys of a Map.
 */

const ASCII = /^[\0-\x7f]*$/;

export function bytesOf(key: string | Buffer): string {
  if (typeof key !== "string") return key.toString("latin1");
  return ASCII.test(key) ? key : Buffer.from(key).toString("latin1");
}

/** The characters that etcd returns for text: an unpaired surrogate becomes U+FFFD on its way. */
const textOf = (value: string | Buffer): string =>
  typeof value === "string" && ASCII.test(value) ? value : Buffer.from(value as string).toString();

/** The first byte string that is not before `key`; all of `sorted` are in order. */
export function lowerBound<Item>(
  sorted: readonly Item[],
  key: string,
  nameOf: (item: Item) => string,
): number {
  let low = 0;
  let high = sorted.length;
  while (low < high) {
    const middle = (low + high) >>> 1;
    if (nameOf(sorted[middle]!) < key) low = middle + 1;
    else high = middle;
  }
  return low;
}

/** A range of keys. */
export interface Interval {
  readonly key: string;
  /** `undefined`: the key alone. `""`: everything from the key on. */
  readonly end: string | undefined;
}

/**
 * Decodes a range: no end means one key, and "\0" everything from the key on. `emptyEnd` is what an empty end means; default:
 * none.
 */
export function intervalOf(key: string | Buffer, end: string | Buffer | undefined, emptyEnd?: ""): Interval {
  if (end === undefined) return { key: bytesOf(key), end };
  const limit = bytesOf(end);
  if (limit === "") return { key: bytesOf(key), end: emptyEnd };
  return { key: bytesOf(key), end: limit === "\0" ? "" : limit };
}

export function contains({ key, end }: Interval, name: string): boolean {
  if (end === undefined) return name === key;
  return name >= key && (end === "" || name < end);
}
