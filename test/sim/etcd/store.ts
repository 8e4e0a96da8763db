import type { KeyValue, WatchEvent } from "../../../src/etcd/port.js";
import { bytesOf, textOf, type Interval } from "./bytes.js";
import { KeyIndex } from "./key-index.js";
import { COMPACTED, FUTURE_REVISION } from "./refusals.js";
import type { Refusal } from "./types.js";

/** What one revision changed, in the order of the operations. */
export interface Change {
  readonly revision: bigint;
  readonly events: readonly WatchEvent[];
  /** The key of each event, one character per byte. */
  readonly names: readonly string[];
}

export interface Put {
  readonly key: string | Buffer;
  readonly value: string;
  readonly leaseId: bigint;
}

/** The keys, with all of their revisions: etcd's multi-version store (storage/mvcc/kvstore.go, kvstore_txn.go). */
export class Store {
  readonly #index = new KeyIndex();
  readonly #history: Change[] = [];
  readonly #listeners: ((change: Change) => void)[] = [];
  /** What the write that runs has changed. */
  #events: WatchEvent[] = [];
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

  /** Each change since the start, compacted or not: the first has revision 2, and none is left out. */
  get history(): readonly Change[] {
    return this.#history;
  }

  /** The present keys, in the order of their bytes. */
  get keys(): readonly KeyValue[] {
    return this.#index.living.map(({ states }) => states.at(-1)!.kv!);
  }

  /** The changes from a revision on. */
  since(revision: bigint): readonly Change[] {
    return this.#history.slice(Number(revision < 2n ? 0n : revision - 2n));
  }

  /** How often a present key was put since its creation; 0: there is no such key. */
  versionOf(key: string | Buffer): bigint {
    return this.#index.present(bytesOf(key))?.version ?? 0n;
  }

  /** Calls `listener` at the end of each write that changed something, before its revision is the present one. */
  onChange(listener: (change: Change) => void): void {
    this.#listeners.push(listener);
  }

  /** The revision that a read inside the running write sees: its own changes are visible to it. */
  get #readRevision(): bigint {
    return this.#events.length > 0 ? this.#revision + 1n : this.#revision;
  }

  /** Puts and deletions inside `run` have one revision. Without any, there is no new revision. */
  write<Result>(run: () => Result): Result {
    const result = run();
    if (this.#events.length > 0) {
      const change = { revision: this.#revision + 1n, events: this.#events, names: this.#names };
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
      const version = (this.#index.present(name)?.version ?? 0n) + 1n;
      if (kind === "PUT") this.#index.put(name, { revision, kv, version });
      else this.#index.delete(name, revision);
    }
    this.#written(change);
  }

  #written(change: Change): void {
    this.#history.push(change);
    for (const listener of this.#listeners) listener(change);
    this.#revision = change.revision;
  }

  /** Only inside `write()`. */
  put({ key, value, leaseId }: Put): void {
    const revision = this.#revision + 1n;
    const name = bytesOf(key);
    const before = this.#index.present(name);
    const kv = {
      key: this.#index.bytesOf(name),
      value: textOf(value),
      createRevision: before?.kv?.createRevision ?? revision,
      modRevision: revision,
      leaseId,
    };
    this.#index.put(name, { revision, kv, version: (before?.version ?? 0n) + 1n });
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
      ...{ createRevision: 0n, modRevision: revision },
    };
    this.#changed(name, { kind: "DELETE", kv });
  }

  #changed(name: string, event: WatchEvent): void {
    this.#events.push(event);
    this.#names.push(name);
  }

  /** The keys of an interval, in the order of their bytes. Revision 0 or less is the present one. */
  read(interval: Interval, revision = 0n): Refusal | KeyValue[] {
    const present = this.#readRevision;
    if (revision > present) return FUTURE_REVISION;
    const at = revision <= 0n ? present : revision;
    if (at < this.#compacted) return COMPACTED;
    return at === present ? this.#index.rangePresent(interval) : this.#index.rangeAt(interval, at);
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
    return undefined;
  }
}
