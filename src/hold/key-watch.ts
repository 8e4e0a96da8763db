import type { KeyValue } from "../etcd/port.js";
import type { Watch, WatchListener } from "../etcd/watch/hub.js";
import { KeyWatchSchedule, type LongHold } from "./key-watch-schedule.js";
import type { QueueEntry } from "../queue/entry.js";

/** Watches the key of a holder, who loses the lock when somebody deletes it, though the lease goes on. */
export class KeyWatch implements LongHold, WatchListener {
  readonly #holds: KeyWatchSchedule;
  #watch: Watch | undefined;
  /** A read of an older state does not show whether the key outlived the beginning of the watch. */
  #atLeast: bigint;
  #over = false;

  /**
   * `watch` is the one that the wait had on the key, if there was one. `deletedAt`: the hold rests on this deletion
   * alone, no read has seen our key since, so one is sent beside the handle.
   */
  constructor(
    private readonly entry: QueueEntry,
    watch: Watch | undefined,
    deletedAt: bigint | undefined,
    private readonly onGone: () => void,
  ) {
    this.#holds = KeyWatchSchedule.of(entry.lease);
    this.#watch = watch;
    this.#atLeast = entry.revision;
    if (watch) this.#takeOver(watch);
    else this.#holds.addUnwatched(this);
    if (deletedAt === undefined || watch?.over) return;
    // Of a place that took its turn together with ours, it may have been before ours was put.
    if (deletedAt > this.#atLeast) this.#atLeast = deletedAt;
    // Not in its turn: the caller goes on meanwhile.
    void this.read();
  }

  get key(): string {
    return this.entry.key;
  }

  stop(): void {
    this.#over = true;
    this.#holds.delete(this);
    // The next place of this session will most likely have the same key.
    this.#watch?.keepForReuse();
    this.#watch = undefined;
  }

  watch(): void {
    if (this.#over) return;
    const { watches } = this.entry.lease.connection;
    this.#watch = watches.watch({ key: this.key, events: "DELETE" }, this);
  }

  async read(): Promise<void> {
    // Refused, or the session is over: the one changes nothing, the other has been told.
    const there = await this.#isThere().catch(() => true);
    if (!there) this.#gone();
  }

  /** Deleted before the watch began? Only a read after it can tell. */
  created(revision: bigint): void {
    if (this.#over) return;
    if (revision > this.#atLeast) this.#atLeast = revision;
    this.#holds.read(this);
  }

  event(kv: KeyValue): void {
    if (kv.modRevision > this.entry.revision) this.#gone();
  }

  interrupted(): void {
    this.watch();
  }

  /** The slow look goes on, and the deadline holds in any case. */
  refused(): void {}

  #takeOver(watch: Watch): void {
    this.#holds.addWatched(this);
    // Its stream broke in the moment of the grant: nobody was there to hear of it.
    if (watch.over) this.watch();
    else watch.listener = this;
  }

  async #isThere(): Promise<boolean> {
    const { lease, key } = this.entry;
    const { watches, client } = lease.connection;
    const atLeast = this.#atLeast;
    const near = await watches.read([{ key }], Math.min(lease.ttlMs / 4, client.requestTimeoutMs));
    const recent = near && near.header.revision >= atLeast;
    const { ranges } = recent ? near : await client.ranges([{ key }], lease.policy("read the own key"));
    return ranges.some(({ kvs }) => kvs.some((kv) => this.entry.is(kv)));
  }

  #gone(): void {
    if (this.#over) return;
    this.stop();
    this.onGone();
  }
}
