import { isUtf8 } from "node:buffer";
import { keyText } from "../etcd/watch.js";
import { prefixEnd, prefixOf } from "../keys.js";
import {
  byAge,
  contenderAt,
  entryIn,
  type InspectedKey,
  type Judged,
  kindOfQueue,
  type QueueKind,
  type Split,
  splitQueue,
  type ValueFacts,
} from "./entry.js";
import type { QueueSnapshot } from "./queue-watch.js";

/** Items in order. To insert or remove one moves those behind it, which takes microseconds for tens of thousands. */
class SortedList<T> {
  readonly #items: T[];

  constructor(
    private readonly compare: (a: T, b: T) => number,
    items: Iterable<T> = [],
  ) {
    this.#items = [...items].sort(compare);
  }

  get items(): readonly T[] {
    return this.#items;
  }

  /** The item that is equal to this one in the order. */
  find(item: T): T | undefined {
    const there = this.#items[this.position(item)];
    return there !== undefined && this.compare(there, item) === 0 ? there : undefined;
  }

  /** Replaces an equal item. */
  set(item: T): void {
    const at = this.position(item);
    this.#items.splice(at, this.find(item) === undefined ? 0 : 1, item);
  }

  remove(item: T): void {
    if (this.find(item) !== undefined) this.#items.splice(this.position(item), 1);
  }

  /** Index of the first item that is not before this one. */
  position(item: T): number {
    let [low, high] = [0, this.#items.length];
    while (low < high) {
      const middle = (low + high) >>> 1;
      if (this.compare(this.#items[middle] as T, item) < 0) low = middle + 1;
      else high = middle;
    }
    return low;
  }
}

/** The longest name, in bytes. A foreign key may have more than a million, all slashes. */
const MAX_NAME = 1024;

/** The names of all queues that a key may count in: its directories, the nearest last. */
export function directoriesOf(key: string | Buffer): readonly string[] {
  const bytes = typeof key === "string" ? key : key.toString("latin1", 0, MAX_NAME + 1);
  const directories: string[] = [];
  for (
    let slash = bytes.indexOf("/");
    slash !== -1 && slash <= MAX_NAME;
    slash = bytes.indexOf("/", slash + 1)
  ) {
    const directory = bytes.slice(0, slash);
    if (typeof key === "string") directories.push(directory);
    else if (isUtf8(Buffer.from(directory, "latin1"))) directories.push(textOf(directory));
  }
  return directories;
}

const textOf = (latin1: string): string => Buffer.from(latin1, "latin1").toString();

/** How many keys each lease has on the board, and how many of them the last change has deleted. */
class LeaseKeys {
  readonly #living = new Map<bigint, number>();
  readonly #deleted = new Map<bigint, number>();

  /** A new change begins. */
  begin(): void {
    this.#deleted.clear();
  }

  put(leaseId: bigint): void {
    this.#living.set(leaseId, this.living(leaseId) + 1);
  }

  drop(leaseId: bigint): void {
    const living = this.living(leaseId) - 1;
    if (living === 0) this.#living.delete(leaseId);
    else this.#living.set(leaseId, living);
  }

  delete(leaseId: bigint): void {
    this.drop(leaseId);
    this.#deleted.set(leaseId, this.deleted(leaseId) + 1);
  }

  living(leaseId: bigint): number {
    return this.#living.get(leaseId) ?? 0;
  }

  deleted(leaseId: bigint): number {
    return this.#deleted.get(leaseId) ?? 0;
  }
}

/** A key in a queue. Its size is bounded, whatever other clients have written. */
export interface BoardEntry {
  /** The complete key, with U+FFFD in the place of bytes that are no text. */
  readonly key: string;
  readonly createRevision: bigint;
  /** 0n: no lease. */
  readonly leaseId: bigint;
  /** `undefined` for entries made by other clients (Go, etcdctl). */
  readonly owner: string | undefined;
  /** When it joined the queue, by the clock of its client. */
  readonly since: Date | undefined;
  /** Monotonic milliseconds at which the board saw that it had become a holder; undefined if it held before the board began. */
  readonly grantedAt: number | undefined;
}

/** What is kept of a key, wherever it counts. */
export interface BoardKey extends Pick<InspectedKey, "key" | "createRevision" | "modRevision"> {
  /** The name that it belongs to directly, if that starts with the prefix. */
  readonly name: string | undefined;
  readonly value: ValueFacts;
}

/** A key as one queue sees it: its own, or that of a name above its own. */
interface PlacedEntry extends BoardEntry, Judged {
  grantedAt: number | undefined;
  readonly facts: Judged["facts"] & { readonly kind: QueueKind };
}

/** `prefix`: of the cluster. */
function placedIn(name: string, key: BoardKey, prefix: string): PlacedEntry {
  const inspected = entryIn(name, key, key.value);
  const now = { prefix, state: "waiting", ttlRemainingMs: undefined } as const;
  const { key: text, revision, leaseId, owner, since } = contenderAt(name, inspected, now);
  const { place, facts } = inspected;
  return {
    ...{ key: text, createRevision: revision, leaseId, owner, since },
    ...{ grantedAt: undefined, place, facts: { permits: facts.permits, kind: facts.kind } },
  };
}

/**
 * `granted`: the entry became a holder. `released`: a holder's key was deleted while other keys of its lease stayed, so the
 * lease lived: a release, or a deletion by another client. `ended`: a holder's key was deleted, and no other key of its
 * lease is on the board: a release, or the end of the lease. The keys of etcd do not tell which one.
 */
type BoardEventKind = "granted" | "released" | "ended";

/** What the board saw of one entry. */
export interface BoardEvent {
  readonly kind: BoardEventKind;
  readonly entry: BoardEntry;
  /** Monotonic milliseconds. */
  readonly at: number;
  readonly revision: bigint;
  /**
   * So many keys of its lease were deleted at this revision; undefined for `granted`, and after an outage whose revisions
   * etcd has compacted. With `ended` and more than one, most often the lease ended: it expired, or its session was
   * closed. A client that releases several locks in one request looks the same.
   */
  readonly together: number | undefined;
}

/** Events that are kept of each name. */
const MAX_EVENTS = 8;
/** Names without entries of which the counts are kept: a lock that is taken again and again has none in between. */
const MAX_PAST = 1000;

/** What happened to the queue of a name. */
class NameHistory {
  grants = 0;
  lastGrantAt: number | undefined;
  readonly #events: BoardEvent[] = [];

  /** The latest event last. */
  get events(): readonly BoardEvent[] {
    return this.#events;
  }

  add(event: BoardEvent): void {
    if (event.kind === "granted") {
      this.grants++;
      this.lastGrantAt = event.at;
    }
    this.#events.push(event);
    if (this.#events.length > MAX_EVENTS) this.#events.shift();
  }
}

/** The histories of the names that have no entries now, the oldest first. */
class PastNames {
  readonly #names = new Map<string, NameHistory>();

  keep(name: string, history: NameHistory): void {
    this.#names.delete(name);
    this.#names.set(name, history);
    const [oldest] = this.#names.keys();
    if (this.#names.size > MAX_PAST && oldest !== undefined) this.#names.delete(oldest);
  }

  get(name: string): NameHistory | undefined {
    return this.#names.get(name);
  }

  take(name: string): NameHistory {
    const history = this.#names.get(name) ?? new NameHistory();
    this.#names.delete(name);
    return history;
  }
}

/** The queue of a name now. The object changes with the queue; the arrays do not. */
export interface BoardQueue {
  readonly name: string;
  readonly kind: QueueKind;
  /** In the order of the queue. */
  readonly holders: readonly BoardEntry[];
  /** The next one first. Made when it is read, from all entries of the queue: see `waiterCount`. */
  readonly waiters: readonly BoardEntry[];
  readonly waiterCount: number;
  /** Entries that became holders since the board began. */
  readonly grants: number;
  /** Monotonic milliseconds of the last of them. */
  readonly lastGrantAt: number | undefined;
  /** Revision of the last change; that of the read for a queue which has not changed since. */
  readonly changedAt: bigint;
}

/** How a queue has changed at one revision. */
interface HolderChange {
  readonly began: readonly PlacedEntry[];
  readonly ended: readonly PlacedEntry[];
}

/** The entries of one name, and who of them holds. */
class LiveQueue implements BoardQueue {
  changedAt = 0n;
  holders: readonly PlacedEntry[] = [];
  /** Keys that belong to the name itself. Those of nested names alone make no queue of it. */
  direct = 0;
  #entries: SortedList<PlacedEntry>;
  #split: Split<PlacedEntry> | undefined;

  constructor(
    readonly name: string,
    readonly history: NameHistory,
    entries: Iterable<PlacedEntry>,
  ) {
    this.#entries = new SortedList(byAge, entries);
  }

  get kind(): QueueKind {
    return kindOfQueue(this.#entries.items);
  }

  get waiters(): readonly PlacedEntry[] {
    this.#split ??= splitQueue(this.#entries.items);
    return this.#split.waiters;
  }

  get waiterCount(): number {
    return this.#entries.items.length - this.holders.length;
  }

  get grants(): number {
    return this.history.grants;
  }

  get lastGrantAt(): number | undefined {
    return this.history.lastGrantAt;
  }

  set(entry: PlacedEntry): void {
    // A modified key, such as that of a leader who proclaims, holds on.
    entry.grantedAt = this.#entries.find(entry)?.grantedAt;
    this.#entries.set(entry);
  }

  remove(entry: PlacedEntry): void {
    this.#entries.remove(entry);
  }

  /** The name itself has no more keys. */
  clear(): void {
    this.#entries = new SortedList<PlacedEntry>(byAge);
  }

  /** All changes of a revision are made: finds the holders. */
  settle(revision: bigint): HolderChange {
    const before = this.holders;
    this.#split = undefined;
    this.changedAt = revision;
    this.holders = splitQueue(this.#front()).holders;
    return { began: without(this.holders, before), ended: without(before, this.holders) };
  }

  /** The entries that may hold. Who holds depends only on the entries before it, and these may be thousands. */
  #front(): readonly PlacedEntry[] {
    const entries = this.#entries.items;
    const first = entries.findIndex(({ place }) => place !== "reader" && place !== "below readers");
    const readers = first === -1 ? entries.length : first;
    return entries.slice(0, Math.max(readers, entries[0]?.facts.permits ?? 1));
  }
}

function without(entries: readonly PlacedEntry[], others: readonly PlacedEntry[]): readonly PlacedEntry[] {
  const idOf = ({ key, createRevision }: PlacedEntry): string => `${createRevision} ${key}`;
  const ids = new Set(others.map(idOf));
  return entries.filter((entry) => !ids.has(idOf(entry)));
}

/** A key that has changed. */
interface Change {
  /** The entry that is gone; another one may have the same key. */
  readonly gone: BoardKey | undefined;
  readonly put: BoardKey | undefined;
  /** `put` is the same entry with a new value. */
  readonly isUpdate: boolean;
}

/** One step of the board. */
interface Step {
  readonly revision: bigint;
  /** Monotonic milliseconds; undefined: the first picture, in which nothing happened. */
  readonly at: number | undefined;
  /** It is one revision of etcd. A read may collapse several. */
  readonly isOneRevision: boolean;
}

const byBytes = (a: string, b: string): number => (a === b ? 0 : a < b ? -1 : 1);

/** The queues of all names. A change costs what it changes, however many other queues there are. */
export class Queues {
  readonly live = new Map<string, LiveQueue>();
  grants = 0;
  readonly #past = new PastNames();
  #keys = new Map<string, BoardKey>();
  /** In latin1. The keys of a name and of the names nested in it are neighbors in the order of bytes. */
  #sorted = new SortedList<string>(byBytes);
  readonly #leases = new LeaseKeys();

  /** `prefix`: of the cluster. */
  constructor(private readonly prefix: string) {}

  historyOf(name: string): readonly BoardEvent[] {
    return (this.live.get(name)?.history ?? this.#past.get(name))?.events ?? [];
  }

  /**
   * Takes over the keys of a revision, and returns the names whose queues have changed. `changed`: the only keys that may
   * have; undefined: any of them. `at`: see `Step`.
   */
  apply(
    { keys, revision }: QueueSnapshot<BoardKey>,
    changed: ReadonlySet<string> | undefined,
    at: number | undefined,
  ): ReadonlySet<string> {
    const changes = this.#take(keys, changed ?? new Set([...this.#keys.keys(), ...keys.keys()]));
    const touched = new Set<LiveQueue>();
    for (const { gone } of changes) if (gone) this.#remove(gone, touched);
    for (const change of changes) if (change.put) this.#put(change.put, change.isUpdate, touched);
    const step = { revision, at, isOneRevision: changed !== undefined };
    for (const queue of touched) this.#settle(queue, step);
    return new Set([...touched].map(({ name }) => name));
  }

  /** Brings the keys up to date, the queues not yet. */
  #take(keys: ReadonlyMap<string, BoardKey>, changed: ReadonlySet<string>): readonly Change[] {
    const changes: Change[] = [];
    this.#leases.begin();
    for (const key of changed) {
      const [before, put] = [this.#keys.get(key), keys.get(key)];
      if (before?.modRevision === put?.modRevision) continue;
      const isUpdate = before?.createRevision === put?.createRevision;
      changes.push({ gone: isUpdate ? undefined : before, put, isUpdate });
      if (before) this.#leases[isUpdate ? "drop" : "delete"](before.value.leaseId);
      if (put) this.#leases.put(put.value.leaseId);
      if (put) this.#keys.set(key, put);
      else this.#keys.delete(key);
    }
    this.#sort(changes);
    return changes;
  }

  #sort(changes: readonly Change[]): void {
    const moved = changes.filter(({ isUpdate }) => !isUpdate);
    if (moved.length > MANY) return void (this.#sorted = new SortedList(byBytes, this.#keys.keys()));
    for (const { gone } of moved) if (gone) this.#sorted.remove(keyText(gone.key));
    for (const { put } of moved) if (put) this.#sorted.set(keyText(put.key));
  }

  #remove(key: BoardKey, touched: Set<LiveQueue>): void {
    const own = key.name === undefined ? undefined : this.live.get(key.name);
    if (own) own.direct--;
    for (const queue of this.#queuesOf(key)) {
      queue.remove(placedIn(queue.name, key, this.prefix));
      touched.add(queue);
    }
  }

  #put(key: BoardKey, isUpdate: boolean, touched: Set<LiveQueue>): void {
    const own = key.name === undefined ? undefined : (this.live.get(key.name) ?? this.#begin(key.name));
    if (own && !isUpdate) own.direct++;
    for (const queue of this.#queuesOf(key)) {
      queue.set(placedIn(queue.name, key, this.prefix));
      touched.add(queue);
    }
  }

  #queuesOf({ key }: BoardKey): readonly LiveQueue[] {
    return directoriesOf(key).flatMap((name) => this.live.get(name) ?? []);
  }

  /** A new queue, with the keys of the names nested in it. */
  #begin(name: string): LiveQueue {
    const start = Buffer.from(prefixOf(name)).toString("latin1");
    const [from, end] = [this.#sorted.position(start), this.#sorted.position(prefixEnd(start))];
    const keys = this.#sorted.items.slice(from, end).flatMap((key) => this.#keys.get(key) ?? []);
    const entries = keys.map((key) => placedIn(name, key, this.prefix));
    const queue = new LiveQueue(name, this.#past.take(name), entries);
    this.live.set(name, queue);
    return queue;
  }

  #settle(queue: LiveQueue, step: Step): void {
    if (queue.direct === 0) {
      this.live.delete(queue.name);
      this.#past.keep(queue.name, queue.history);
      queue.clear();
    }
    const { began, ended } = queue.settle(step.revision);
    if (step.at === undefined) return;
    for (const entry of ended) queue.history.add(this.#end(entry, { ...step, at: step.at }));
    for (const entry of began) {
      entry.grantedAt = step.at;
      queue.history.add({
        kind: "granted",
        entry,
        at: step.at,
        revision: step.revision,
        together: undefined,
      });
    }
    this.grants += began.length;
  }

  #end(entry: PlacedEntry, { at, revision, isOneRevision }: Step & { readonly at: number }): BoardEvent {
    const kind = entry.leaseId !== 0n && this.#leases.living(entry.leaseId) > 0 ? "released" : "ended";
    const together = isOneRevision ? this.#leases.deleted(entry.leaseId) : undefined;
    return { kind, entry, at, revision, together };
  }
}

/** To sort all keys anew takes less time than to move so many of them one by one. */
const MANY = 500;
