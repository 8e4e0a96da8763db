import type { WatchEvent, WatchRequest } from "../../etcd/port.js";
import type { Scheduler } from "./event-queue.js";
import type { Quirks } from "./quirks.js";
import { type Random, shuffled } from "./random.js";
import { type Change, type Interval, type Store, contains } from "./store.js";

/** How often late watches are served (watchResyncPeriod). */
const SYNC_MS = 100;
/** How many of them at a time (maxWatchersPerSync). */
const MOST_WATCHERS = 512;
/** How often etcd tries to send again what found the buffer of a stream full (syncVictimsLoop). */
const VICTIMS_MS = 10;

export interface WatchesOptions {
  readonly store: Store;
  readonly scheduler: Scheduler;
  readonly random: Random;
  readonly quirks: Quirks;
  /** Instead of both intervals. */
  readonly loopMs?: number | undefined;
}

/**
 * The watches of a member (storage/mvcc/watchable_store.go). A watch is in one of three groups: the synced ones get each
 * change immediately; the unsynced ones began in the past, and a loop serves them; victims wait for a full buffer.
 */
export class Watches {
  readonly #options: WatchesOptions;
  readonly #synced = new WatcherGroup();
  readonly #unsynced = new WatcherGroup();
  #victims = new Map<Watcher, EventBatch>();
  /** When the loop for late watches runs, modulo its interval. */
  readonly #phase: number;
  readonly #syncMs: number;
  #syncs = false;
  #retries = false;

  constructor(options: WatchesOptions) {
    this.#options = options;
    this.#syncMs = options.loopMs ?? SYNC_MS;
    this.#phase = options.scheduler.now + options.random.next() * this.#syncMs;
    options.store.onChange((change) => this.#notify(change));
  }

  /** A watch whose start revision is 0, or has not come yet, is synced. */
  add(watcher: Watcher): void {
    const { revision } = this.#options.store;
    if (watcher.startRevision !== 0n && watcher.startRevision <= revision) {
      this.#unsynced.add(watcher);
      this.#syncLater();
      return;
    }
    watcher.minRevision = revision + 1n > watcher.startRevision ? revision + 1n : watcher.startRevision;
    this.#synced.add(watcher);
  }

  /** How many watches there are. */
  get size(): number {
    return this.#synced.size + this.#unsynced.size + this.#victims.size;
  }

  /** The timers of the process are gone, and so are its streams. */
  restarted(): void {
    this.#syncs = this.#retries = false;
  }

  remove(watcher: Watcher): void {
    this.#synced.delete(watcher);
    this.#unsynced.delete(watcher);
    this.#victims.delete(watcher);
  }

  /** Sends the answer to a progress request, if there are watches and all of them are synced (progressIfSync). */
  progress(watchers: readonly Watcher[]): void {
    const { store, quirks } = this.#options;
    const { revision } = store;
    const [first] = watchers;
    if (watchers.some((watcher) => !this.#synced.has(watcher))) return;
    if (quirks.progressNeedsStart && watchers.some(({ startRevision }) => revision < startRevision)) return;
    first?.channel.push({ watchId: -1, events: [], revision, compacted: false });
  }

  #notify({ revision, events, names }: Change): void {
    if (this.#synced.size === 0) return;
    const batches = new Map<Watcher, WatchEvent[]>();
    for (let n = 0; n < events.length; n++)
      for (const watcher of this.#synced.of(names[n]!)) {
        if (revision < watcher.minRevision) continue;
        const batch = batches.get(watcher);
        if (batch) batch.push(events[n]!);
        else batches.set(watcher, [events[n]!]);
      }
    if (batches.size === 0) return;
    for (const [watcher, batch] of shuffled([...batches], this.#options.random)) {
      watcher.minRevision = revision + 1n;
      if (send(watcher, { events: batch, revision, compacted: false })) continue;
      this.#synced.delete(watcher);
      this.#makeVictim(watcher, { events: batch });
    }
  }

  #syncLater(): void {
    if (this.#syncs) return;
    const { now } = this.#options.scheduler;
    // Rounded, so that the sum of fractions never gives the present run of the loop once more.
    const runs = Math.floor((now - this.#phase) / this.#syncMs + 1e-6) + 1;
    this.#syncAfter(this.#phase + runs * this.#syncMs - now);
  }

  #syncAfter(ms: number): void {
    this.#syncs = true;
    this.#options.scheduler.after(ms, () => {
      this.#syncs = false;
      const before = this.#unsynced.size;
      const chosen = shuffled(this.#unsynced.all, this.#options.random).slice(0, MOST_WATCHERS);
      for (const watcher of chosen) this.#sync(watcher);
      const { size } = this.#unsynced;
      if (size === 0) return;
      // etcd goes on immediately if there were too many for one run.
      if (size < before) this.#syncAfter(0);
      else this.#syncLater();
    });
  }

  #sync(watcher: Watcher): void {
    const { store, quirks } = this.#options;
    const { revision } = store;
    if (watcher.minRevision < store.compacted) return this.#endCompacted(watcher);
    const batch = batchFor(watcher, store, quirks);
    watcher.minRevision = batch.moreFrom ?? later(revision + 1n, watcher.minRevision);
    if (batch.events.length > 0 && !send(watcher, { events: batch.events, revision, compacted: false })) {
      this.#unsynced.delete(watcher);
      this.#makeVictim(watcher, batch);
    } else if (batch.moreFrom === undefined) {
      this.#unsynced.delete(watcher);
      this.#synced.add(watcher);
    }
  }

  /** The header of this answer has revision 0. If the buffer is full, the watch stays unsynced. */
  #endCompacted(watcher: Watcher): void {
    const { watchId, channel } = watcher;
    if (channel.push({ watchId, events: [], revision: 0n, compacted: true })) this.#unsynced.delete(watcher);
  }

  #makeVictim(watcher: Watcher, batch: EventBatch): void {
    this.#victims.set(watcher, batch);
    this.#retryAfter(0);
  }

  #retryAfter(ms: number): void {
    if (this.#retries) return;
    this.#retries = true;
    this.#options.scheduler.after(ms, () => {
      this.#retries = false;
      const before = this.#victims.size;
      this.#moveVictims();
      const { size } = this.#victims;
      if (size > 0) this.#retryAfter(size < before ? 0 : (this.#options.loopMs ?? VICTIMS_MS));
    });
  }

  #moveVictims(): void {
    for (const [watcher, { events }] of shuffled([...this.#victims], this.#options.random)) {
      if (!send(watcher, { events, revision: watcher.minRevision - 1n, compacted: false })) continue;
      this.#victims.delete(watcher);
      if (watcher.minRevision > this.#options.store.revision) this.#synced.add(watcher);
      else {
        this.#unsynced.add(watcher);
        this.#syncLater();
      }
    }
  }
}

const later = (a: bigint, b: bigint): bigint => (a > b ? a : b);

/** What a watch sends to its stream. */
export interface WatchResponse {
  /** -1: the answer to a progress request. */
  readonly watchId: number;
  readonly events: readonly WatchEvent[];
  readonly revision: bigint;
  /** Set when the watch ends because the revision that it needs is compacted. */
  readonly compacted: boolean;
}

/** The buffer of a stream, which its watches share. Returns false if it is full. */
export interface Channel {
  push(response: WatchResponse): boolean;
}

/** One watch of one stream (storage/mvcc/watchable_store.go). */
export interface Watcher {
  readonly watchId: number;
  readonly interval: Interval;
  readonly startRevision: bigint;
  /** The revision of the next event that it takes. */
  minRevision: bigint;
  readonly events: WatchRequest["events"];
  readonly channel: Channel;
}

/** Without the events that the watch leaves out; if none is left, nothing is sent. Returns false if the buffer is full. */
export function send({ watchId, events: wanted, channel }: Watcher, answer: Omit<WatchResponse, "watchId">) {
  const events = wanted === "ALL" ? answer.events : answer.events.filter(({ kind }) => kind === wanted);
  if (events.length === 0 && answer.events.length > 0) return true;
  return channel.push({ watchId, events, revision: answer.revision, compacted: answer.compacted });
}

const NONE: readonly Watcher[] = [];

/** Watches by what they watch (storage/mvcc/watcher_group.go). */
export class WatcherGroup {
  readonly #all = new Set<Watcher>();
  /** The watches of one key, by its name. */
  readonly #ofKeys = new Map<string, Set<Watcher>>();
  readonly #ofRanges = new Set<Watcher>();

  get size(): number {
    return this.#all.size;
  }

  /** In the order in which they were added. */
  get all(): readonly Watcher[] {
    return [...this.#all];
  }

  has(watcher: Watcher): boolean {
    return this.#all.has(watcher);
  }

  add(watcher: Watcher): void {
    this.#all.add(watcher);
    const { key, end } = watcher.interval;
    if (end !== undefined) this.#ofRanges.add(watcher);
    else {
      const others = this.#ofKeys.get(key);
      if (others) others.add(watcher);
      else this.#ofKeys.set(key, new Set([watcher]));
    }
  }

  /** Returns false if the group does not have the watch. */
  delete(watcher: Watcher): boolean {
    if (!this.#all.delete(watcher)) return false;
    this.#ofRanges.delete(watcher);
    const { key } = watcher.interval;
    const others = this.#ofKeys.get(key);
    if (others?.delete(watcher) && others.size === 0) this.#ofKeys.delete(key);
    return true;
  }

  /** The watches of a key. */
  of(name: string): readonly Watcher[] {
    const ofKey = this.#ofKeys.get(name);
    if (ofKey === undefined && this.#ofRanges.size === 0) return NONE;
    const found = ofKey === undefined ? [] : [...ofKey];
    for (const watcher of this.#ofRanges) if (contains(watcher.interval, name)) found.push(watcher);
    return found;
  }
}

/** A late watch gets the events of at most so many revisions at a time (storage/mvcc/watcher_group.go). */
const MOST_REVISIONS = 1000;

/** Events for one watch, in order. */
export interface EventBatch {
  readonly events: readonly WatchEvent[];
  /** The revision of the first event that did not fit. */
  readonly moreFrom?: bigint;
}

/** The events that a late watch gets now (syncWatchers in storage/mvcc/watchable_store.go). */
export function batchFor(watcher: Watcher, store: Store, quirks: Quirks): EventBatch {
  const events: WatchEvent[] = [];
  let revisions = 0;
  for (const change of store.since(watcher.minRevision)) {
    const found = change.events.filter(
      (_, i) => contains(watcher.interval, change.names[i]!) && isThere(change, i, { store, quirks }),
    );
    if (found.length === 0) continue;
    if (++revisions > MOST_REVISIONS) return { events, moreFrom: change.revision };
    events.push(...found);
  }
  return { events };
}

/** Of its own revision, a compaction keeps the last change of each key only. */
function isThere({ revision, events, names }: Change, at: number, given: { store: Store; quirks: Quirks }) {
  if (revision !== given.store.compacted) return true;
  if (names.indexOf(names[at]!, at + 1) !== -1) return false;
  return events[at]!.kind === "PUT" || given.quirks.compactionKeepsDeletions;
}
