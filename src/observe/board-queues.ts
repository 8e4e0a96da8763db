import { isUtf8 } from "node:buffer";
import { keyText } from "../etcd/watch.js";
import { delayedBy, delayKeyOf, prefixEnd, prefixOf } from "../keys.js";
import { checkName } from "../base/options/check.js";
import type { SeenEntry } from "../lock/queue/seen-entry.js";
import type { Clock, Timer } from "../base/util/clock.js";
import { type BoardEvent, LiveQueue, NameHistory, older, type Place } from "./live-queue.js";
import type { QueueChange } from "./queue-watch.js";

/** Items in order. To insert or remove one moves those behind it, which takes microseconds for tens of thousands. */
class SortedList<T> {
  readonly #items: T[] = [];

  constructor(private readonly compare: (a: T, b: T) => number) {}

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

const FOLDER = /\/(read|write)$/;
/** A name of 1024 bytes behind a prefix of 256, in the folder of the writers. A foreign key may have more than a million. */
const MAX_DIRECTORY = 1024 + 256 + "/write".length;

/** The path of the queue that a key belongs to directly; undefined if no queue can have it. `prefix`: of the cluster. */
export function pathIn(key: string | Buffer, prefix: string): string | undefined {
  const length = Math.max(0, key.lastIndexOf("/"));
  if (length > MAX_DIRECTORY) return undefined;
  const directory = typeof key === "string" ? key.slice(0, length) : key.subarray(0, length);
  if (typeof directory !== "string" && !isUtf8(directory)) return undefined;
  // The readers of `a` have their keys where a mutex `a/read` would have them.
  const name = directory.toString().slice(prefix.length).replace(FOLDER, "");
  try {
    return `${prefix}${checkName(name)}`;
  } catch {
    return undefined;
  }
}

const byRevision = (a: SeenEntry, b: SeenEntry): number =>
  a.createRevision === b.createRevision ? 0 : a.createRevision < b.createRevision ? -1 : 1;
const byBytes = (a: string, b: string): number => (a === b ? 0 : a < b ? -1 : 1);

/** Names without entries of which the counts are kept: a lock that is taken again and again has none in between. */
const MAX_PAST = 1000;

/** How many keys each lease has. */
class LeaseKeys extends Map<bigint, number> {
  add(leaseId: bigint, keys: number): void {
    const sum = (this.get(leaseId) ?? 0) + keys;
    if (sum === 0) this.delete(leaseId);
    else this.set(leaseId, sum);
  }
}

/** What a key was and is: undefined if it was or is not there. */
type KeyChange = readonly [was: SeenEntry | undefined, is: SeenEntry | undefined];

/** Keys that have changed. */
export interface KeyChanges {
  readonly revision: bigint;
  /** A read shows it, which may collapse several revisions. */
  readonly isRead: boolean;
  /** Monotonic milliseconds; undefined: the first picture, in which nothing happened. */
  readonly at: number | undefined;
  /** By their bytes in latin1. */
  readonly keys: ReadonlyMap<string, KeyChange>;
}

/** A change that is being taken over. */
interface Turn {
  readonly at: number | undefined;
  readonly touch: (queue: LiveQueue) => void;
}

/** The queues of all names that start with `prefix`. A change costs what it changes, however many other queues there are. */
export class Queues {
  /** By their paths, as everything here. */
  readonly live = new Map<string, LiveQueue>();
  grants = 0;
  /** The histories of the names that have no entries now, the oldest first. */
  readonly #past = new Map<string, NameHistory>();
  /** By their keys in latin1. */
  readonly #places = new Map<string, Place>();
  /** Delay keys whose entries are there, too, in latin1: an entry stands for its delay key until it is gone. */
  readonly #hidden = new Map<string, SeenEntry>();
  /** What the keys of each live queue begin with, in latin1: a queue and those of the names nested in it are neighbors. */
  readonly #starts = new SortedList<string>(byBytes);
  /** The keys that may come under another queue while they are there, in latin1: those that are not directly under their name. */
  readonly #strays = new SortedList<string>(byBytes);
  /** By what their keys begin with. */
  readonly #byStart = new Map<string, LiveQueue>();
  /** Above all: it has no entries. */
  readonly #top = new LiveQueue({ name: "", path: "", parent: undefined }, new NameHistory());
  readonly #leases = new LeaseKeys();

  /** `clusterPrefix`: that of the cluster, with which `prefix` begins. */
  constructor(
    private readonly prefix: string,
    private readonly clusterPrefix: string,
    /** The path of the only queue: all keys count in it, and in no other. */
    private readonly only?: string,
  ) {}

  historyOf(path: string): readonly BoardEvent[] {
    return (this.live.get(path)?.history ?? this.#past.get(path))?.events ?? [];
  }

  /**
   * Takes a change over, and returns the names whose queues have changed. It may take long: it yields how much it has done, in
   * places of queues.
   */
  *apply({ keys, revision, isRead, at }: KeyChanges): Generator<number, ReadonlySet<string>> {
    const touched: LiveQueue[] = [];
    const turn: Turn = {
      at,
      touch: (queue) => {
        if (!queue.isTouched) touched.push(queue);
        queue.isTouched = true;
      },
    };
    const deleted = new LeaseKeys();
    const gone: [string, SeenEntry][] = [];
    const added: [string, SeenEntry][] = [];
    for (const [key, [was, is]] of keys) {
      if (was) this.#leases.add(was.leaseId, -1);
      if (is) this.#leases.add(is.leaseId, 1);
      if (was && is?.createRevision === was.createRevision) yield this.#update(key, is, turn);
      else {
        if (was && !this.#hidden.delete(key)) gone.push([key, was]);
        if (was) deleted.add(was.leaseId, 1);
        if (is) added.push([key, is]);
      }
    }
    for (const [key, entry] of gone) yield this.#remove(key, entry, turn);
    // In the order of the queues, in which every place is the last one. A delay key is beside its entry.
    added.sort(([one, a], [other, b]) => byRevision(a, b) || byBytes(one, other));
    const delays: typeof added = [];
    for (const [key, entry] of added) {
      if (delayedBy(key) !== undefined) delays.push([key, entry]);
      else yield this.#add(key, entry, turn);
    }
    for (const [key, entry] of delays) {
      const twin = this.#places.get(delayedBy(key) ?? "");
      if (twin?.entry.createRevision === entry.createRevision) this.#hidden.set(key, entry);
      else yield this.#add(key, entry, turn);
    }
    const names = new Set<string>();
    for (const queue of touched) {
      queue.isTouched = false;
      names.add(queue.name);
      if (queue.direct === 0) this.#end(queue);
      const { began, ended } = queue.settle(at);
      if (at !== undefined) {
        for (const entry of ended) {
          const lives = entry.leaseId !== 0n && this.#leases.has(entry.leaseId);
          const together = isRead ? undefined : (deleted.get(entry.leaseId) ?? 0);
          queue.history.add({ kind: lives ? "released" : "ended", entry, at, revision, together });
        }
        for (const entry of began)
          queue.history.add({ kind: "granted", entry, at, revision, together: undefined });
        this.grants += began.length;
      }
      yield 1 + began.length + ended.length;
    }
    return names;
  }

  #update(key: string, entry: SeenEntry, { touch }: Turn): number {
    const place = this.#places.get(key);
    if (!place) {
      this.#hidden.set(key, entry);
      return 1;
    }
    const before = place.entry;
    place.entry = entry;
    return this.#each(place, (queue) => {
      queue.replaced(place, before);
      touch(queue);
    });
  }

  #remove(key: string, entry: SeenEntry, { at, touch }: Turn): number {
    const place = this.#places.get(key);
    if (!place) return 1;
    this.#places.delete(key);
    const delayKey = delayKeyOf(key) ?? "";
    const delay = this.#hidden.get(delayKey);
    if (delay?.createRevision === entry.createRevision) {
      this.#hidden.delete(delayKey);
      this.#places.set(delayKey, place);
      if (!isDirect(key, place.own)) {
        this.#strays.remove(key);
        this.#strays.set(delayKey);
      }
      [place.entry, place.text] = [delay, delayKey];
      place.isDelay = true;
      return this.#each(place, (queue) => {
        queue.replaced(place, entry, at);
        touch(queue);
      });
    }
    place.isGone = true;
    if (place.own) place.own.direct--;
    if (!isDirect(key, place.own)) this.#strays.remove(key);
    return this.#each(place, (queue) => {
      queue.remove(place);
      touch(queue);
    });
  }

  #add(key: string, entry: SeenEntry, { touch }: Turn): number {
    const path = this.#pathOf(entry);
    const own = path === undefined ? undefined : (this.live.get(path) ?? this.#begin(path));
    const home = own && isDirect(key, own) ? own : this.#above(key);
    const place: Place = { entry, text: key, home, own, isGone: false, isDelay: entry.isDelay };
    this.#places.set(key, place);
    if (own) own.direct++;
    if (!isDirect(key, own)) this.#strays.set(key);
    return this.#each(place, (queue) => {
      queue.add(place);
      touch(queue);
    });
  }

  /** Runs it for each queue that it counts in, and returns how many these are. */
  #each(place: Place, run: (queue: LiveQueue) => void): number {
    let count = 1;
    for (let queue = place.home; queue.parent; queue = queue.parent, count++) run(queue);
    return count;
  }

  /** The queue that a key belongs to directly, if its path starts with the prefix. */
  #pathOf({ bytes }: SeenEntry): string | undefined {
    if (this.only !== undefined) return this.only;
    const path = pathIn(bytes, this.clusterPrefix);
    return path?.startsWith(this.prefix) ? path : undefined;
  }

  /** The nearest queue that a key counts in, or that what its keys begin with counts in. */
  #above(text: string): LiveQueue {
    const neighbor = this.#starts.items[this.#starts.position(text) - 1];
    let queue = (neighbor !== undefined && this.#byStart.get(neighbor)) || this.#top;
    while (queue.parent && !text.startsWith(startOf(queue))) queue = queue.parent;
    return queue;
  }

  /** A new queue, with the keys of the names nested in it. */
  #begin(path: string): LiveQueue {
    const start = startOf({ path });
    const parent = this.#above(start);
    const end = prefixEnd(start);
    const nested: LiveQueue[] = [];
    for (let n = this.#starts.position(start); ;) {
      const text = this.#starts.items[n];
      const queue = text !== undefined && text < end ? this.#byStart.get(text) : undefined;
      if (text === undefined || queue === undefined) break;
      nested.push(queue);
      n = this.#starts.position(prefixEnd(text));
    }
    const strays = this.#straysIn(start, parent);
    const line = [...nested.map((queue) => queue.places()), strays].flat();
    // In runs that are in order already, which makes it fast.
    line.sort(older);
    const name = path.slice(this.clusterPrefix.length);
    const history = this.#past.get(path) ?? new NameHistory();
    const queue = new LiveQueue({ name, path, parent }, history, line);
    for (const each of nested) each.parent = queue;
    queue.adopt([...strays].sort(older));
    this.#starts.set(start);
    this.#byStart.set(start, queue);
    this.#past.delete(path);
    this.live.set(path, queue);
    return queue;
  }

  /** The strays under this, whose nearest queue is `home`. */
  #straysIn(start: string, home: LiveQueue): readonly Place[] {
    const { items } = this.#strays;
    const found: Place[] = [];
    const end = this.#strays.position(prefixEnd(start));
    for (let n = this.#strays.position(start); n < end; n++) {
      const place = this.#places.get(items[n] ?? "");
      if (place?.home === home) found.push(place);
    }
    return found;
  }

  /** The name itself has no more keys. */
  #end(queue: LiveQueue): void {
    const { path, parent = this.#top } = queue;
    const start = startOf(queue);
    for (const place of this.#straysIn(start, queue)) place.home = parent;
    this.#starts.remove(start);
    this.#byStart.delete(start);
    const end = prefixEnd(start);
    for (let n = this.#starts.position(start); ;) {
      const text = this.#starts.items[n];
      const nested = text !== undefined && text < end ? this.#byStart.get(text) : undefined;
      if (text === undefined || nested === undefined) break;
      nested.parent = parent;
      n = this.#starts.position(prefixEnd(text));
    }
    this.live.delete(path);
    queue.clear();
    this.#past.set(path, queue.history);
    const [oldest] = this.#past.keys();
    if (this.#past.size > MAX_PAST && oldest !== undefined) this.#past.delete(oldest);
  }
}

/** In one turn of the event loop, in places of queues: a key that nests in 500 names has 500. It takes a few milliseconds. */
const SLICE = 10_000;

/** Runs it to its end, in slices. */
export async function inSlices<T>(work: Generator<number, T>, clock: Clock): Promise<T> {
  for (let left = SLICE; ;) {
    const { done, value } = work.next();
    if (done) return value;
    left -= value;
    if (left > 0) continue;
    left = SLICE;
    await new Promise<void>((resolve) => void clock.afterPendingEvents(resolve));
  }
}

/** What waits here at most, in keys. Of a flood that comes faster than it is taken over, the last state is enough. */
const MAX_WAITING = 20_000;

interface WaitingChange extends KeyChanges {
  readonly keys: Map<string, KeyChange>;
}

/**
 * Takes changes over in order: at once, as far as one turn of the event loop may do so much, and the others in the next ones. It tells of
 * them once in a turn, after the events that have arrived together, and never in the middle of a change.
 */
export class Intake {
  #changes: WaitingChange[] = [];
  /** Keys in them. */
  #waiting = 0;
  #running: { readonly work: Generator<number, ReadonlySet<string>>; readonly revision: bigint } | undefined;
  /** What this turn may still do. */
  #left = SLICE;
  #turn: Timer | undefined;
  /** The turn has come to tell of the changes, and one was under way. */
  #isDue = false;
  /** Changes that were not told yet: the names whose queues they have changed, and the last revision. */
  #news: { readonly names: Set<string>; revision: bigint } | undefined;
  #isFirst = true;
  #stopped = false;

  /** @param told called with the names whose queues have changed */
  constructor(
    private readonly queues: Queues,
    private readonly clock: Clock,
    private readonly told: (names: ReadonlySet<string>, revision: bigint) => void,
  ) {}

  add({ keys: now, before, revision, isRead }: QueueChange<SeenEntry>): void {
    const at = this.#isFirst ? undefined : this.clock.monotonic();
    this.#isFirst = false;
    const keys = new Map([...before].map(([key, was]): [string, KeyChange] => [key, [was, now.get(key)]]));
    this.#changes.push({ revision, isRead, at, keys });
    this.#waiting += keys.size;
    if (this.#waiting > MAX_WAITING && this.#changes.length > 1) {
      const all = together(this.#changes);
      [this.#changes, this.#waiting] = [[all], all.keys.size];
    }
    this.#work();
  }

  stop(): void {
    this.#stopped = true;
    this.#turn?.cancel();
  }

  #work(): void {
    while (this.#left > 0 && !this.#stopped) {
      const change = this.#running ? undefined : this.#changes.shift();
      if (change) {
        this.#waiting -= change.keys.size;
        this.#running = { work: this.queues.apply(change), revision: change.revision };
      }
      if (!this.#running) break;
      const { work, revision } = this.#running;
      const { done, value } = work.next();
      this.#left -= done ? 1 : value;
      if (!done) continue;
      this.#running = undefined;
      this.#news ??= { names: new Set(), revision };
      for (const name of value) this.#news.names.add(name);
      this.#news.revision = revision;
      if (this.#isDue) this.#tell();
    }
    if (!this.#stopped) this.#turn ??= this.clock.afterPendingEvents(() => this.#next());
  }

  #next(): void {
    this.#turn = undefined;
    this.#left = SLICE;
    if (this.#running) this.#isDue = true;
    else this.#tell();
    if (this.#running || this.#changes.length > 0) this.#work();
  }

  #tell(): void {
    const news = this.#news;
    this.#news = undefined;
    this.#isDue = false;
    if (news) this.told(news.names, news.revision);
  }
}

/** All of these changes as one, as if a read had shown them. The keys of the first one become those of all, and are not copied. */
function together([first, ...others]: readonly WaitingChange[]): WaitingChange {
  const { keys } = first!;
  for (const change of others)
    for (const [key, [before, is]] of change.keys) {
      const [was] = keys.get(key) ?? [before];
      if (was || is) keys.set(key, [was, is]);
      else keys.delete(key);
    }
  const { revision, at } = others.at(-1)!;
  return { revision, at, isRead: true, keys };
}

/** Whether nothing can nest between the key and its queue. */
const isDirect = (key: string, own: LiveQueue | undefined): boolean =>
  own !== undefined && key.lastIndexOf("/") === startOf(own).length - 1;

/** What the keys of a queue begin with, in latin1. */
const startOf = ({ path }: Pick<LiveQueue, "path">): string => keyText(prefixOf(path));
