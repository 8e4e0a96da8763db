import type { WatchEvent } from "../../etcd/port.js";
import type { Watch, WatchListener } from "../../etcd/watch-hub.js";
import type { JoinedEntry } from "../queue/entry.js";
import { LockTable } from "../queue/queue.js";
import type { KeyWatchSchedule } from "../session/key-audit.js";
import { askAboutNamesAbove } from "./names-above.js";

/** Watches the key of a hold, which is lost if a client deletes the key, even though the lease goes on. */
export class KeyWatch implements WatchListener {
  readonly #entry: JoinedEntry;
  readonly #holds: KeyWatchSchedule;
  #watch: Watch | undefined;
  /** A read of an older state does not show whether the key still existed when the watch began. */
  #atLeast: bigint;
  #over = false;

  constructor(
    entry: JoinedEntry,
    private readonly onGone: () => void,
    atOnce: boolean,
  ) {
    this.#entry = entry;
    this.#holds = LockTable.of(entry.lease).keyWatches;
    this.#atLeast = entry.revision;
    this.#holds.add(this, atOnce);
  }

  get key(): string {
    return this.#entry.key;
  }

  stop(): void {
    this.#over = true;
    this.#holds.delete(this);
    // A waiter of this process may watch the same key next.
    this.#watch?.keepForReuse();
    this.#watch = undefined;
  }

  watch(): void {
    if (this.#over) return;
    const { watches } = this.#entry.lease.services;
    const shareFrom = this.#entry.revision + 1n;
    this.#watch = watches.watch({ key: this.key, events: "DELETE", shareFrom }, this);
    // A shared one was there before the key. What it reported since then, a read has to explain.
    if (this.#watch.createdAt !== undefined && this.#watch.lastEvent >= shareFrom) this.#holds.read(this);
  }

  /** The hold has lasted for so long that it may stand in the way of others for longer. */
  isLong(): void {
    if (!this.#over) askAboutNamesAbove(this.#entry);
  }

  /** Reads the key, and ends the hold if it is gone. Never rejects. */
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

  async #isThere(): Promise<boolean> {
    const { lease, key } = this.#entry;
    const { watches, client } = lease.services;
    const atLeast = this.#atLeast;
    const near = await watches.read([{ key }], Math.min(lease.ttlMs / 4, client.requestTimeoutMs));
    const recent = near && near.header.revision >= atLeast;
    const answer = recent ? near : await client.ranges([{ key }], lease.policy("read the own key"));
    const found = answer.ranges.flatMap(({ kvs }) => kvs);
    // If this hold is over, a later entry may have the key by now.
    if (found.length === 0) watches.shownGone(key, answer.header.revision);
    return found.some((kv) => this.#entry.is(kv));
  }

  #gone(): void {
    if (this.#over) return;
    this.stop();
    this.onGone();
  }
}
