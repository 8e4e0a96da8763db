import type { WatchEvent } from "../etcd/port.js";
import type { Watch, WatchListener } from "../etcd/watch/hub.js";
import type { KeyWatchSchedule, LongHold } from "../session/key-watch-schedule.js";
import { LockTable } from "../queue/lock-table.js";
import type { JoinedEntry } from "../queue/entry.js";
import type { Grant } from "../queue/waiter.js";

/** Watches the key of a hold, which is lost if a client deletes the key, even though the lease goes on. */
export class KeyWatch implements LongHold, WatchListener {
  readonly #entry: JoinedEntry;
  readonly #holds: KeyWatchSchedule;
  #watch: Watch | undefined;
  /** A read of an older state does not show whether the key still existed when the watch began. */
  #atLeast: bigint;
  #over = false;

  constructor(
    { entry, ownWatch }: Grant,
    private readonly onGone: () => void,
  ) {
    this.#entry = entry;
    this.#holds = LockTable.of(entry.lease).keyWatches;
    this.#watch = ownWatch;
    this.#atLeast = entry.revision;
    if (ownWatch) this.#takeOver(ownWatch);
    else this.#holds.addUnwatched(this);
  }

  get key(): string {
    return this.#entry.key;
  }

  stop(): void {
    this.#over = true;
    this.#holds.delete(this);
    // The next entry of this session will most likely have the same key.
    this.#watch?.keepForReuse();
    this.#watch = undefined;
  }

  watch(): void {
    if (this.#over) return;
    const { watches } = this.#entry.lease.services;
    this.#watch = watches.watch({ key: this.key, events: "DELETE" }, this);
  }

  async read(): Promise<void> {
    // A rejected read changes nothing, and the end of the session has already been reported.
    const there = await this.#isThere().catch(() => true);
    if (!there) this.#gone();
  }

  /** The key may have been deleted before the watch began: only a read of a later state can show that. */
  created(revision: bigint): void {
    if (this.#over) return;
    if (revision > this.#atLeast) this.#atLeast = revision;
    this.#holds.read(this);
  }

  events(events: readonly WatchEvent[]): void {
    if (events.some(({ kv }) => kv.modRevision > this.#entry.revision)) this.#gone();
  }

  interrupted(): void {
    this.watch();
  }

  /** The audit of the schedule continues, and the deadline applies in any case. */
  refused(): void {}

  #takeOver(watch: Watch): void {
    this.#holds.addWatched(this);
    // Its stream broke at the moment of the grant, when the watch had no listener to notify.
    if (watch.over) this.watch();
    else watch.listener = this;
    if (watch.lastEvent <= this.#entry.revision) return;
    // The deletion of our key arrived in one chunk of the socket with the grant, when the watch had no listener.
    this.#atLeast = watch.lastEvent;
    this.#holds.read(this);
  }

  async #isThere(): Promise<boolean> {
    const { lease, key } = this.#entry;
    const { watches, client } = lease.services;
    const atLeast = this.#atLeast;
    const near = await watches.read([{ key }], Math.min(lease.ttlMs / 4, client.requestTimeoutMs));
    const recent = near && near.header.revision >= atLeast;
    const { ranges } = recent ? near : await client.ranges([{ key }], lease.policy("read the own key"));
    return ranges.some(({ kvs }) => kvs.some((kv) => this.#entry.is(kv)));
  }

  #gone(): void {
    if (this.#over) return;
    this.stop();
    this.onGone();
  }
}
