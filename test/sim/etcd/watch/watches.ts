import type { WatchEvent } from "../../../../src/etcd/port.js";
import type { Scheduler } from "../../kernel/kernel.js";
import type { Random } from "../../kernel/random.js";
import type { Quirks } from "../quirks.js";
import { shuffled } from "../shuffle.js";
import type { Change, Store } from "../store.js";
import { batchFor, type EventBatch } from "./event-batch.js";
import { send, type Watcher } from "./watcher.js";
import { WatcherGroup } from "./watcher-group.js";

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
  #syncs = false;
  #retries = false;

  constructor(options: WatchesOptions) {
    this.#options = options;
    this.#phase = options.scheduler.now + options.random.next() * SYNC_MS;
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
    const runs = Math.floor((now - this.#phase) / SYNC_MS + 1e-6) + 1;
    this.#syncAfter(this.#phase + runs * SYNC_MS - now);
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
      if (size > 0) this.#retryAfter(size < before ? 0 : VICTIMS_MS);
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
