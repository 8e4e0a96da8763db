import type { Contender } from "../../contender.js";
import type { KeyValue, Range, WatchEvent } from "../../etcd/port.js";
import type { Watch, WatchListener } from "../../etcd/watch-hub.js";
import type { Clock, Timer } from "../../base/util/clock.js";
import { MAX_PERMITS, sessionRange } from "../../keys.js";
import { inOwnContext } from "../../base/util/own-context.js";
import type { JoinedEntry } from "./entry.js";
import { type LockMode, otherRanges, queueRange, type RangeResult } from "./lock-mode.js";
import type { Queue } from "./queue.js";
import { byAge, SeenEntry, splitQueue, withoutDelayKeys } from "./seen-entry.js";

/** The time between two calls of a listener, unless nobody waited in between. */
const TELL_MS = 1000;
/** The least time between two reads of a semaphore, which may change all the time. */
export const LOOK_MS = 100;
/** The number of keys that a read returns beside those that may hold. More of them are dead, or of nested names, only by misuse. */
const BESIDE = 64;
/** The number of waiters that are remembered after the holders were told of them, so that none is told twice. */
const TOLD = 64;

/** The part of a hold that `Demand` needs. */
interface Holding {
  readonly held: boolean;
  readonly revision: bigint;
  /** For a key that may stay with its session. */
  readonly tenure?: DemandedKey;
}

/** A key that leaves when another session wants the lock. It hears of each change at once. */
interface DemandedKey {
  readonly entry: JoinedEntry;
  /** An entry of another session waits behind it. */
  demanded(isShown?: boolean): void;
  /** A read after the watch has shown the key, and nobody of another session behind it. */
  clear(): void;
  /** The key is gone, or what happens to it may go unnoticed from here on. */
  unwatched(): void;
}

export interface WantedListener {
  told(waiter: Contender): void;
  /** The hold has ended, or etcd has refused to show the queue: there is nothing more to tell. */
  over(error?: Error): void;
}

/** What a read has shown. */
interface Seen {
  /** Oldest first. */
  readonly waiters: readonly SeenEntry[];
  /** No limit has cut the answer off. */
  readonly isAll: boolean;
  readonly shown: readonly KeyValue[];
  readonly revision: bigint;
}

const demands = new WeakMap<Queue, Demand>();

/**
 * Who waits behind the holds of one session in one queue. A waiter waits for each of these holds, so they share one answer.
 * In etcd's queue, a join is all that it takes to ask a holder to leave. The watch begins when the first hold asks, and ends with the last
 * hold that has asked. A read shows who waits, when the watch is there and when the first waiter has left; between two reads, each new key
 * is a waiter.
 */
export class Demand implements WatchListener {
  /**
   * By hold, its listeners, each with the create revision of the last waiter that it was told of. undefined: it is told of nobody until
   * the answer to a read that has begun after it, because whoever was known to wait may have left before the hold began.
   */
  readonly #asking = new Map<Holding, Map<WantedListener, bigint | undefined>>();
  readonly #mode: LockMode;
  #watch: Watch | undefined;
  /** The watch reports each change from here on. No read counts that was sent before. */
  #watching = false;
  #refused: Error | undefined;
  /** The entry that waits, by the latest event and answer. */
  #waiter: SeenEntry | undefined;
  /** The latest event: no older answer counts. */
  #atLeast = 0n;
  /** The revision of the latest answer, which has shown all events up to it: a lagging member may report them later. 0n: none yet. */
  #seenAt = 0n;
  #looking = false;
  #lookAgain = false;
  #lookedMs = -Infinity;
  /** Until the next read. */
  #pause: Timer | undefined;
  /** Create revisions of those that the holds were told of, the latest last. */
  readonly #told = new Set<bigint>();
  #toldMs = -Infinity;
  /** The waiter that the holds are told of next. */
  #next: SeenEntry | undefined;
  #timer: Timer | undefined;

  /** The one demand of a queue and session. `entry`: of the hold that asks. */
  static of(queue: Queue, entry: JoinedEntry): Demand {
    const demand = demands.get(queue) ?? new Demand(queue, entry);
    demands.set(queue, demand);
    return demand;
  }

  private constructor(
    private readonly queue: Queue,
    private readonly entry: JoinedEntry,
  ) {
    this.#mode = entry.mode;
  }

  /** From now on, the `tenure` of `hold` hears of each change, until `ended`. It is asked for once. */
  attend(hold: Holding): void {
    this.#begin(hold);
    if (this.#refused) hold.tenure?.unwatched();
    // A watch that was there before has its answer.
    if (this.#seenAt > 0n) void this.#look();
  }

  /** An event may never come. */
  lookAgain(): void {
    inOwnContext(() => void this.#look());
  }

  /** Whether an entry is known to wait. */
  wanted(hold: Holding): boolean {
    this.#begin(hold);
    return this.#isBehind(this.#waiter, hold);
  }

  /** Returns the function that ends it. The listener is called after this has returned. */
  listen(hold: Holding, listener: WantedListener): () => void {
    const listeners = this.#begin(hold);
    const knows = [...listeners.values()].some((last) => last !== undefined);
    listeners.set(listener, knows ? 0n : undefined);
    const first = (): void => {
      if (this.#refused && listeners.has(listener)) listener.over(this.#refused);
      else if (this.#waiter) this.#call(hold, listener, this.#waiter);
    };
    // A turn later, so that a listener which adds itself again does not keep everything else from running.
    if (this.#refused || (knows && this.#waiter)) inOwnContext(() => this.#clock.after(0, first));
    // It may have left before this hold. If nobody is known to wait, a read follows the next join, or the answer to the watch.
    else if (!knows && this.#waiter) inOwnContext(() => void this.#look());
    return () => void listeners.delete(listener);
  }

  /** The hold has ended. */
  ended(hold: Holding): void {
    const listeners = this.#asking.get(hold);
    if (!listeners) return;
    this.#asking.delete(hold);
    if (this.#over) {
      demands.delete(this.queue);
      this.#stop();
    }
    for (const listener of [...listeners.keys()]) listener.over();
  }

  #stop(): void {
    this.#watch?.cancel();
    this.#watch = this.#waiter = this.#next = undefined;
    this.#timer?.cancel();
    this.#pause?.cancel();
  }

  #begin(hold: Holding): Map<WantedListener, bigint | undefined> {
    const listeners = this.#asking.get(hold) ?? new Map<WantedListener, bigint | undefined>();
    this.#asking.set(hold, listeners);
    if (!this.#watch && !this.#refused) inOwnContext(() => this.interrupted());
    return listeners;
  }

  interrupted(): void {
    if (this.#over) return;
    const { watches } = this.queue.lease.services;
    const moved = this.#watch !== undefined;
    this.#watch = watches.watch({ ...queueRange(this.queue.path), events: "ALL" }, this);
    this.#forget(false);
    if (moved) this.#tenures((tenure) => tenure.unwatched());
  }

  /** The watch does not report an entry that joined before it began: a read shows that one. */
  created(): void {
    this.#forget(true);
    void this.#look();
  }

  /** The next member, or an etcd that was restored, may be at an earlier revision. */
  #forget(watching: boolean): void {
    this.#watching = watching;
    this.#next = undefined;
    this.#atLeast = this.#seenAt = 0n;
  }

  refused(error: Error): void {
    if (this.#over) return;
    this.#refused = error;
    this.#stop();
    this.#tenures((tenure) => tenure.unwatched());
    for (const listeners of this.#asking.values())
      for (const listener of [...listeners.keys()]) listener.over(error);
  }

  events(events: readonly WatchEvent[]): void {
    let joined: SeenEntry[] = [];
    let changed = false;
    for (const { kind, kv } of events) {
      if (kv.modRevision <= this.#seenAt) continue;
      if (kv.modRevision > this.#atLeast) this.#atLeast = kv.modRevision;
      const key = kv.key.toString();
      if (kind === "DELETE") {
        this.#tenures((tenure) => {
          if (tenure.entry.key === key && kv.modRevision > tenure.entry.revision) tenure.unwatched();
        });
        joined = joined.filter((entry) => entry.key !== key);
        if (this.#next?.key === key) this.#next = undefined;
        changed ||= this.#waiter?.key === key;
      } else if (kv.createRevision === kv.modRevision) joined.push(new SeenEntry(kv));
      // A writer of ours that becomes a reader lets the readers in that waited for it.
      else changed ||= this.#waiter !== undefined && this.entry.key === key;
    }
    const newest = withoutDelayKeys(joined).findLast((entry) => this.#mayWait(entry));
    // A permit may be free for it, but that takes a read, and the key is asked for then only if none is.
    if (this.#mode.permits === undefined && joined.some((entry) => this.#isDemand(entry))) this.#demanded();
    // Any change may have freed a permit, so only a read shows who waits for one.
    if (this.#mode.permits !== undefined) return this.#lookSoon();
    if (changed) void this.#look();
    // Before the first answer, a read is under way, whose answer is no older than this event: see `#atLeast`.
    else if (newest && this.#seenAt > 0n) {
      this.#waits(newest, this.#waiter ?? newest);
      if (this.#unread().length > 0) void this.#look();
    }
  }

  get #over(): boolean {
    return this.#asking.size === 0;
  }

  get #clock(): Clock {
    return this.queue.lease.services.clock;
  }

  #isBehind(entry: SeenEntry | undefined, { revision }: Holding): entry is SeenEntry {
    // Of calls with priorities, the oldest key may be that of the last one.
    return entry !== undefined && (entry.createRevision > revision || entry.priority !== undefined);
  }

  /** A key of a name below waits for nobody here, and neither does a dead entry. Readers wait for no reader. */
  #mayWait(entry: SeenEntry): boolean {
    for (const hold of this.#asking.keys()) if (!this.#isBehind(entry, hold)) return false;
    const place = entry.placeIn(this.queue.path);
    if (entry.isDelay || place === "below" || place === "below readers") return false;
    return !(place === "reader" && (this.#mode.folder === "/read" || this.entry.downgraded));
  }

  /** It waits, and is of another session. */
  #isDemand(entry: SeenEntry): boolean {
    const { leaseId, delay } = this.queue.lease;
    return entry.leaseId !== leaseId && entry.leaseId !== delay?.leaseId && this.#mayWait(entry);
  }

  #demanded(): void {
    this.#tenures((tenure) => tenure.demanded());
  }

  #tenures(run: (tenure: DemandedKey) => void): void {
    for (const { tenure } of [...this.#asking.keys()]) if (tenure) run(tenure);
  }

  #lookSoon(): void {
    const leftMs = this.#lookedMs + LOOK_MS - this.#clock.monotonic();
    if (leftMs <= 0) void this.#look();
    else this.#lookIn(leftMs);
  }

  #lookIn(ms: number): void {
    this.#pause ??= this.queue.lease.services.timers.add(ms, () => {
      this.#pause = undefined;
      void this.#look();
    });
  }

  /** Never rejects. */
  async #look(): Promise<void> {
    this.#lookAgain = true;
    if (this.#looking) return;
    this.#looking = true;
    while (this.#lookAgain && this.#watching && !this.#over && !this.#refused) {
      this.#lookAgain = false;
      this.#lookedMs = this.#clock.monotonic();
      const watch = this.#watch;
      const unread = this.#unread();
      try {
        const seen = await this.#read();
        if (seen.revision < this.#atLeast || watch !== this.#watch) this.#lookAgain = true;
        else if (!this.#over) {
          this.#found(seen.waiters[0], seen.revision);
          this.#tellNew(unread);
          this.#attended(seen);
        }
      } catch (error) {
        // The end of the session ends its holds, too.
        if (!this.queue.lease.over) this.refused(error as Error);
      }
    }
    this.#looking = false;
  }

  async #read(): Promise<Seen> {
    const { lease, path } = this.queue;
    const { permits = 1, folder } = this.#mode;
    // A reader's own key is in none of the ranges in which others wait for it.
    const ranges = folder === "/read" ? otherRanges(path) : [queueRange(path)];
    const ours = folder === "/read" ? [sessionRange(this.entry.directory, lease.leaseId)] : [];
    // The number of permits that rules may be a larger one than ours.
    for (let limit = permits + BESIDE; ; limit = MAX_PERMITS + BESIDE) {
      const oldest = ranges.map((range): Range => ({ order: "oldest first", limit, ...range }));
      const policy = lease.policy("read the queue");
      const answer = await lease.services.client.ranges([...oldest, ...ours], policy);
      const results = answer.ranges.slice(0, oldest.length);
      const waiters = this.#waitersIn(results);
      const isAll = !results.some(({ more }) => more);
      if (waiters.length === 0 && !isAll && limit <= MAX_PERMITS) continue;
      const shown = answer.ranges.flatMap(({ kvs }) => kvs);
      return { waiters, isAll, shown, revision: answer.header.revision };
    }
  }

  /** The listeners that have begun since the last read was sent. */
  #unread(): readonly (readonly [Holding, WantedListener])[] {
    return [...this.#asking].flatMap(([hold, listeners]) =>
      [...listeners].flatMap(([listener, last]) => (last === undefined ? [[hold, listener] as const] : [])),
    );
  }

  /** These have begun before the latest read was sent. */
  #tellNew(unread: readonly (readonly [Holding, WantedListener])[]): void {
    for (const [hold, listener] of unread) {
      const { held } = hold;
      const listeners = this.#asking.get(hold);
      if (!listeners?.has(listener)) continue;
      // See `#tell`.
      if (!held) {
        this.#lookIn(TELL_MS);
        continue;
      }
      listeners.set(listener, 0n);
      if (this.#waiter) this.#call(hold, listener, this.#waiter);
    }
  }

  #waitersIn(results: readonly RangeResult[]): readonly SeenEntry[] {
    const seen = results.flatMap(({ kvs }) => kvs.map((kv) => new SeenEntry(kv))).sort(byAge);
    const { path } = this.queue;
    const waiters = this.#mode.folder === "/read" ? withoutDelayKeys(seen) : splitQueue(path, seen).waiters;
    return waiters.filter((entry) => this.#mayWait(entry));
  }

  #attended({ waiters, isAll, shown }: Seen): void {
    const isShown = ({ entry }: DemandedKey): boolean => shown.some((kv) => entry.is(kv));
    if (waiters.some((entry) => this.#isDemand(entry)))
      return this.#tenures((tenure) => tenure.demanded(isShown(tenure)));
    // A stranger may be among those that no answer shows. A caller in line would wait for a key that is never clear.
    this.#tenures((tenure) => {
      if (isAll && isShown(tenure)) tenure.clear();
      else tenure.unwatched();
    });
  }

  #found(waiter: SeenEntry | undefined, revision: bigint): void {
    this.#seenAt = revision;
    if (waiter) return this.#waits(this.#next ?? waiter, waiter);
    this.#waiter = this.#next = undefined;
    // The next waiter is a first one, which is told at once.
    this.#toldMs = -Infinity;
  }

  /** `first` is known to wait, and so is `entry`, of which the holds are told unless they were. */
  #waits(entry: SeenEntry, first: SeenEntry): void {
    this.#waiter = first;
    if (this.#told.has(entry.createRevision)) return;
    this.#next = entry;
    const leftMs = this.#toldMs + TELL_MS - this.#clock.monotonic();
    if (leftMs <= 0) this.#tell();
    else this.#tellIn(leftMs);
  }

  #tellIn(ms: number): void {
    this.#timer ??= this.queue.lease.services.timers.add(ms, () => this.#tell());
  }

  #tell(): void {
    this.#timer?.cancel();
    this.#timer = undefined;
    const waiter = this.#next;
    // The last hold that has asked may have ended when its key was asked for.
    if (!waiter || this.#over) return;
    const holds = [...this.#asking.keys()].filter(({ tenure }) => !tenure);
    // After a suspend, all of them are in doubt until a renewal is answered.
    if (holds.length > 0 && !holds.some(({ held }) => held)) return this.#tellIn(TELL_MS);
    this.#next = undefined;
    this.#told.add(waiter.createRevision);
    const [oldest] = this.#told;
    if (this.#told.size > TOLD && oldest !== undefined) this.#told.delete(oldest);
    this.#toldMs = this.#clock.monotonic();
    for (const [hold, listeners] of [...this.#asking])
      for (const listener of [...listeners.keys()]) this.#call(hold, listener, waiter);
  }

  /** A listener before it may have removed this one, or ended the hold. */
  #call(hold: Holding, listener: WantedListener, waiter: SeenEntry): void {
    // Reads the clocks: a listener of the session's state may run now, too.
    if (!hold.held || !this.#isBehind(waiter, hold)) return;
    const listeners = this.#asking.get(hold);
    const last = listeners?.get(listener);
    if (last === undefined || last === waiter.createRevision) return;
    listeners?.set(listener, waiter.createRevision);
    listener.told(waiter.contenderIn(this.entry.name, "waiting"));
  }
}
