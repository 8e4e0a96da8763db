import { isUtf8 } from "node:buffer";
import { keyText } from "../etcd/watch.js";
import { delayedBy, delayKeyOf, prefixEnd, prefixOf } from "../keys.js";
import {
  byAge,
  holdersIn,
  kindOfQueue,
  type QueueKind,
  type SeenEntry,
  splitQueue,
  withoutDelayKeys,
} from "../queue/seen-entry.js";
import { pathIn } from "./list.js";
import type { QueueChange } from "./queue-watch.js";

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

  /** Replaces an equal item. */
  set(item: T): void {
    this.#replace(item, item);
  }

  remove(item: T): void {
    this.#replace(item);
  }

  #replace(item: T, ...others: readonly T[]): void {
    const at = this.position(item);
    const there = this.#items[at];
    const isThere = there !== undefined && this.compare(there, item) === 0;
    this.#items.splice(at, isThere ? 1 : 0, ...others);
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

/** The longest path, in bytes: a name of 1024 behind a prefix of 256. A foreign key may have more than a million, all slashes. */
const MAX_PATH = 1280;

/** The paths of all queues that a key may count in: its directories, the nearest last. */
export function directoriesOf(key: string | Buffer): readonly string[] {
  const bytes = typeof key === "string" ? key : key.toString("latin1", 0, MAX_PATH + 1);
  const directories: string[] = [];
  for (
    let slash = bytes.indexOf("/");
    slash !== -1 && slash <= MAX_PATH;
    slash = bytes.indexOf("/", slash + 1)
  ) {
    const directory = bytes.slice(0, slash);
    if (typeof key === "string") directories.push(directory);
    else if (isUtf8(Buffer.from(directory, "latin1")))
      directories.push(Buffer.from(directory, "latin1").toString());
  }
  return directories;
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
  readonly entry: SeenEntry;
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
  /** The latest event last. */
  readonly events: BoardEvent[] = [];

  add(event: BoardEvent): void {
    if (event.kind === "granted") this.grants++;
    this.events.push(event);
    if (this.events.length > MAX_EVENTS) this.events.shift();
  }
}

/** A holder, and when the board saw that it had become one, in monotonic milliseconds. */
interface Holding {
  readonly entry: SeenEntry;
  readonly at: number | undefined;
}

/** The same after a modification of the key, such as that of a leader who proclaims. */
const idOf = ({ createRevision, bytes }: SeenEntry): string => `${createRevision} ${keyText(bytes)}`;

const isTwin = (entry: SeenEntry, other: SeenEntry | undefined): boolean =>
  entry.createRevision === other?.createRevision;

/** The queue of a name now. The object changes with the queue; the arrays do not. */
export type BoardQueue = Pick<
  LiveQueue,
  "name" | "kind" | "holders" | "waiters" | "waiterCount" | "grants" | "grantedAt"
>;

/** The entries of one name, and who of them holds. */
class LiveQueue {
  /** In the order of the queue. */
  holders: readonly SeenEntry[] = [];
  /** Keys that belong to the name itself. Those of nested names alone make no queue of it. */
  direct = 0;
  readonly name: string;
  readonly path: string;
  #entries: SortedList<SeenEntry>;
  #holding = new Map<string, Holding>();
  /** The delay keys of clients that have died. */
  readonly #delays = new Set<string>();

  constructor(
    { name, path }: Pick<LiveQueue, "name" | "path">,
    readonly history: NameHistory,
    entries: Iterable<SeenEntry>,
  ) {
    this.name = name;
    this.path = path;
    this.#entries = new SortedList(byAge, entries);
  }

  get kind(): QueueKind {
    return kindOfQueue(this.path, this.#entries.items);
  }

  /** The next one first. Made when it is read, from all entries of the queue: see `waiterCount`. */
  get waiters(): readonly SeenEntry[] {
    return splitQueue(this.path, this.#entries.items).waiters;
  }

  get waiterCount(): number {
    return this.#entries.items.length - this.holders.length;
  }

  /** Entries that became holders since the board began. */
  get grants(): number {
    return this.history.grants;
  }

  /** Monotonic milliseconds at which the board saw that it had become a holder; undefined if it held before the board began. */
  grantedAt(holder: SeenEntry): number | undefined {
    return this.#holding.get(idOf(holder))?.at;
  }

  set(entry: SeenEntry): this {
    this.#entries.set(entry);
    return this;
  }

  /** The entry of this delay key is gone: its client has died. The key takes the place, and is no grant when it comes first. */
  delay(key: SeenEntry): void {
    this.#delays.add(idOf(key));
    this.set(key);
  }

  remove(entry: SeenEntry): this {
    this.#entries.remove(entry);
    const id = idOf(entry);
    if (!this.#holding.has(id)) this.#delays.delete(id);
    return this;
  }

  clear(): void {
    this.#entries = new SortedList<SeenEntry>(byAge);
  }

  /** All changes of a revision are made: finds the holders, and returns which of them began to hold and which hold no more. */
  settle(at: number | undefined): {
    readonly began: readonly SeenEntry[];
    readonly ended: readonly SeenEntry[];
  } {
    const before = this.#holding;
    this.holders = holdersIn(this.path, this.#entries.items);
    this.#holding = new Map();
    const began: SeenEntry[] = [];
    for (const entry of this.holders) {
      const id = idOf(entry);
      if (!before.has(id)) began.push(entry);
      this.#holding.set(id, { entry, at: before.has(id) ? before.get(id)?.at : at });
      before.delete(id);
    }
    const lives = (entry: SeenEntry): boolean => !this.#delays.has(idOf(entry));
    const ended = [...before.values()].map(({ entry }) => entry).filter(lives);
    for (const id of before.keys()) this.#delays.delete(id);
    return { began: began.filter(lives), ended };
  }
}

const byBytes = (a: string, b: string): number => (a === b ? 0 : a < b ? -1 : 1);

/** How many keys each lease has. */
class LeaseKeys extends Map<bigint, number> {
  add(leaseId: bigint, keys: number): void {
    const sum = (this.get(leaseId) ?? 0) + keys;
    if (sum === 0) this.delete(leaseId);
    else this.set(leaseId, sum);
  }
}

/** To sort all keys anew takes less time than to move so many of them one by one. */
const MANY = 500;

/** The queues of all names that start with `prefix`. A change costs what it changes, however many other queues there are. */
export class Queues {
  /** By their paths, as everything here. */
  readonly live = new Map<string, LiveQueue>();
  grants = 0;
  /** The histories of the names that have no entries now, the oldest first. */
  readonly #past = new Map<string, NameHistory>();
  /** In latin1. The keys of a name and of the names nested in it are neighbors in the order of bytes. */
  #sorted = new SortedList<string>(byBytes);
  readonly #leases = new LeaseKeys();

  /** `clusterPrefix`: that of the cluster, with which `prefix` begins. */
  constructor(
    private readonly prefix: string,
    private readonly clusterPrefix: string,
  ) {}

  historyOf(path: string): readonly BoardEvent[] {
    return (this.live.get(path)?.history ?? this.#past.get(path))?.events ?? [];
  }

  /**
   * Takes a change over, and returns the names whose queues have changed. `at`: monotonic milliseconds; undefined: the first
   * picture, in which nothing happened.
   */
  apply(change: QueueChange<SeenEntry>, at: number | undefined): ReadonlySet<string> {
    const { keys, before, revision, isRead } = change;
    const gone: SeenEntry[] = [];
    const added: SeenEntry[] = [];
    const updated: SeenEntry[] = [];
    for (const [key, was] of before) {
      const is = keys.get(key);
      if (was) this.#leases.add(was.leaseId, -1);
      if (is) this.#leases.add(is.leaseId, 1);
      if (is && is.createRevision === was?.createRevision) updated.push(is);
      else {
        if (was) gone.push(was);
        if (is) added.push(is);
      }
    }
    if (gone.length + added.length > MANY) this.#sorted = new SortedList(byBytes, keys.keys());
    else {
      for (const { bytes } of gone) this.#sorted.remove(keyText(bytes));
      for (const { bytes } of added) this.#sorted.set(keyText(bytes));
    }
    const touched = new Set<LiveQueue>();
    const deleted = new LeaseKeys();
    /** An entry stands for its delay key, too, until it is gone. */
    const isHidden = (entry: SeenEntry): boolean =>
      isTwin(entry, keys.get(delayedBy(keyText(entry.bytes)) ?? ""));
    for (const entry of gone) {
      deleted.add(entry.leaseId, 1);
      const own = this.live.get(this.#pathOf(entry) ?? "");
      if (own) own.direct--;
      const delay = keys.get(delayKeyOf(keyText(entry.bytes)) ?? "");
      for (const queue of this.#queuesOf(entry)) {
        touched.add(queue.remove(entry));
        if (delay && isTwin(entry, delay)) queue.delay(delay);
      }
    }
    for (const entry of added) {
      const path = this.#pathOf(entry);
      if (path !== undefined) (this.live.get(path) ?? this.#begin(path, keys)).direct++;
    }
    for (const entry of [...added, ...updated].filter((each) => !isHidden(each)))
      for (const queue of this.#queuesOf(entry)) touched.add(queue.set(entry));
    for (const queue of touched) {
      if (queue.direct === 0) this.#end(queue);
      const { began, ended } = queue.settle(at);
      if (at === undefined) continue;
      for (const entry of ended) {
        const lives = entry.leaseId !== 0n && this.#leases.has(entry.leaseId);
        const together = isRead ? undefined : (deleted.get(entry.leaseId) ?? 0);
        queue.history.add({ kind: lives ? "released" : "ended", entry, at, revision, together });
      }
      for (const entry of began)
        queue.history.add({ kind: "granted", entry, at, revision, together: undefined });
      this.grants += began.length;
    }
    return new Set([...touched].map(({ name }) => name));
  }

  /** The queue that a key belongs to directly, if its path starts with the prefix. */
  #pathOf({ bytes }: SeenEntry): string | undefined {
    const path = pathIn(Buffer.from(bytes), this.clusterPrefix);
    return path?.startsWith(this.prefix) ? path : undefined;
  }

  #queuesOf({ bytes }: SeenEntry): readonly LiveQueue[] {
    return directoriesOf(bytes).flatMap((path) => this.live.get(path) ?? []);
  }

  /** A new queue, with the keys of the names nested in it. */
  #begin(path: string, keys: ReadonlyMap<string, SeenEntry>): LiveQueue {
    const start = Buffer.from(prefixOf(path)).toString("latin1");
    const [from, end] = [this.#sorted.position(start), this.#sorted.position(prefixEnd(start))];
    const name = path.slice(this.clusterPrefix.length);
    const found = this.#sorted.items.slice(from, end).flatMap((key) => keys.get(key) ?? []);
    const entries = withoutDelayKeys(found.sort(byAge));
    const queue = new LiveQueue({ name, path }, this.#past.get(path) ?? new NameHistory(), entries);
    this.#past.delete(path);
    this.live.set(path, queue);
    return queue;
  }

  /** The name itself has no more keys. */
  #end(queue: LiveQueue): void {
    this.live.delete(queue.path);
    queue.clear();
    this.#past.set(queue.path, queue.history);
    const [oldest] = this.#past.keys();
    if (this.#past.size > MAX_PAST && oldest !== undefined) this.#past.delete(oldest);
  }
}
