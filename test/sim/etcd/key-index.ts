import type { KeyValue } from "../../../src/etcd/port.js";
import { lowerBound, type Interval } from "./bytes.js";

/** One state of a key: etcd numbers the changes of a key since its creation. */
export interface KeyState {
  readonly revision: bigint;
  /** `undefined`: the key was deleted. */
  readonly kv: KeyValue | undefined;
  /** 1 for the put that creates the key. */
  readonly version: bigint;
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

  present(name: string): KeyState | undefined {
    const state = this.#byName.get(name)?.states.at(-1);
    return state?.kv && state;
  }

  put(name: string, state: KeyState & { readonly kv: KeyValue }): void {
    const key = this.#keyOf(name, state.kv.key);
    if (!key.states.at(-1)?.kv) this.#living.splice(lowerBound(this.#living, name, nameOf), 0, key);
    key.states.push(state);
  }

  delete(name: string, revision: bigint): void {
    const key = this.#byName.get(name)!;
    key.states.push({ revision, kv: undefined, version: 0n });
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
  rangePresent(interval: Interval): KeyValue[] {
    return select(this.#living, interval, ({ states }) => states.at(-1)!.kv);
  }

  /** The keys of an interval as they were at `revision`, in order. */
  rangeAt(interval: Interval, revision: bigint): KeyValue[] {
    return select(this.#all, interval, (key) => stateAt(key, revision)?.kv);
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
  stateOf: (key: IndexedKey) => KeyValue | undefined,
): KeyValue[] {
  const found: KeyValue[] = [];
  for (let i = lowerBound(sorted, key, nameOf); i < sorted.length; i++) {
    const item = sorted[i]!;
    if (end === undefined ? item.name !== key : end !== "" && item.name >= end) break;
    const kv = stateOf(item);
    if (kv) found.push(kv);
  }
  return found;
}
