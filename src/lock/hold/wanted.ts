import type { Contender } from "../../contender.js";
import type { Range, WatchEvent } from "../../etcd/port.js";
import type { Watch, WatchListener } from "../../etcd/watch-hub.js";
import type { Timer } from "../../base/util/clock.js";
import { inOwnContext, queueMicrotask, tellOutside } from "../../base/util/own-context.js";
import type { JoinedEntry } from "../queue/entry.js";
import { type LockMode, otherRanges, queueRange, type RangeResult } from "../queue/lock-mode.js";
import type { Queue } from "../queue/queue.js";
import { byAge, SeenEntry, splitQueue, withoutDelayKeys } from "../queue/seen-entry.js";

/** After the first waiter, its holder is told of one later waiter in this time at most. */
const TELL_MS = 1000;
/** A read returns so many keys beside those that may hold: more are dead, or of names below, only by misuse. */
const BESIDE = 64;

/** A hold, as far as it matters to whoever tells it that it is wanted. */
interface Holding {
  readonly held: boolean;
  readonly revision: bigint;
}

export interface WantedListener {
  told(waiter: Contender): void;
  /** The hold has ended, or etcd has refused the watch: there is nothing more to tell. */
  over(error?: Error): void;
}

const demands = new WeakMap<Queue, Demand>();

/**
 * Who waits behind the holds of one session in one queue. All of them wait for the same entries: whoever waits, waits for each of them.
 * In etcd's queue, a join is all that it takes to ask a holder to leave. The watch begins when the first hold asks, and ends with the last
 * hold that has asked.
 */
export class Demand implements WatchListener {
  readonly #asking = new Map<Holding, Set<WantedListener>>();
  readonly #mode: LockMode;
  #watch: Watch | undefined;
  #refused: Error | undefined;
  /** Waits, and was there by the latest event and answer. */
  #waiter: SeenEntry | undefined;
  /** The latest event: no older answer counts. */
  #atLeast = 0n;
  /** The latest answer: an event from before it, which a lagging member reports, is known. 0n: there is none of this watch's time. */
  #seenAt = 0n;
  #looking = false;
  #lookAgain = false;
  /** The last one that the holds were told of. */
  #told: SeenEntry | undefined;
  #toldMs = -Infinity;
  /** To be told when the time for the next one has come. */
  #next: SeenEntry | undefined;
  #timer: Timer | undefined;

  /** That of the queue of a hold's entry. */
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

  /** Whether an entry is known to wait. */
  wanted(hold: Holding): boolean {
    this.#begin(hold);
    return this.#isBehind(this.#waiter, hold);
  }

  /** Returns the function that ends it. The listener is called after this has returned. */
  listen(hold: Holding, listener: WantedListener): () => void {
    const listeners = this.#begin(hold);
    listeners.add(listener);
    const known = this.#waiter;
    const first = (): void => {
      if (!listeners.has(listener)) return;
      if (this.#refused) listener.over(this.#refused);
      else if (this.#isBehind(known, hold) && hold.held) this.#call(listener, known);
    };
    if (known || this.#refused) inOwnContext(() => queueMicrotask(first));
    return () => void listeners.delete(listener);
  }

  /** The hold has ended. */
  ended(hold: Holding): void {
    const listeners = this.#asking.get(hold);
    if (!listeners) return;
    this.#asking.delete(hold);
    if (this.#asking.size === 0) {
      demands.delete(this.queue);
      this.#watch?.cancel();
      this.#watch = undefined;
      this.#timer?.cancel();
    }
    for (const listener of listeners) listener.over();
  }

  #begin(hold: Holding): Set<WantedListener> {
    const listeners = this.#asking.get(hold) ?? new Set();
    this.#asking.set(hold, listeners);
    if (!this.#watch && !this.#refused) inOwnContext(() => this.interrupted());
    return listeners;
  }

  interrupted(): void {
    if (this.#over) return;
    const { watches } = this.queue.lease.services;
    // The next member, or an etcd that was restored, may be at an earlier revision.
    this.#atLeast = this.#seenAt = 0n;
    this.#watch = watches.watch({ ...queueRange(this.queue.path), events: "ALL" }, this);
  }

  /** Who joined before the watch began is not reported. */
  created(): void {
    void this.#look();
  }

  refused(error: Error): void {
    this.#refused = error;
    this.#waiter = undefined;
    for (const listeners of this.#asking.values()) for (const listener of listeners) listener.over(error);
  }

  events(events: readonly WatchEvent[]): void {
    let joined: SeenEntry | undefined;
    let changed = false;
    for (const { kind, kv } of events) {
      if (kv.modRevision <= this.#seenAt) continue;
      if (kv.modRevision > this.#atLeast) this.#atLeast = kv.modRevision;
      const isNew = kind === "PUT" && kv.createRevision === kv.modRevision;
      const entry = isNew ? new SeenEntry(kv) : undefined;
      if (entry && this.#mayWait(entry)) joined = entry;
      else if (kind === "DELETE") changed ||= this.#left(kv.key.toString());
    }
    // Who waits for a permit, only a read shows: whatever changes may have freed one.
    if (changed || this.#mode.permits !== undefined || (joined && this.#seenAt === 0n)) void this.#look();
    else if (joined && !this.#looking) this.#waits(joined, this.#waiter ?? joined);
    else if (joined) this.#lookAgain = true;
  }

  /** Whether it was the one that is known to wait. */
  #left(key: string): boolean {
    if (this.#next?.key === key) this.#next = undefined;
    return this.#waiter?.key === key;
  }

  get #over(): boolean {
    return this.#asking.size === 0;
  }

  #isBehind(entry: SeenEntry | undefined, { revision }: Holding): entry is SeenEntry {
    return entry !== undefined && entry.createRevision > revision;
  }

  /** A key of a name below waits for nobody here, and neither does a dead entry. Readers wait for no reader. */
  #mayWait(entry: SeenEntry): boolean {
    for (const hold of this.#asking.keys()) if (!this.#isBehind(entry, hold)) return false;
    const place = entry.placeIn(this.queue.path);
    if (entry.isDelay || place === "below" || place === "below readers") return false;
    return !(this.#mode.folder === "/read" && place === "reader");
  }

  /** Never rejects: it ends with the session, as its holds do. */
  async #look(): Promise<void> {
    this.#lookAgain = true;
    if (this.#looking) return;
    this.#looking = true;
    const { client } = this.queue.lease.services;
    while (this.#lookAgain && !this.#over) {
      this.#lookAgain = false;
      const watch = this.#watch;
      try {
        const { ranges, header } = await client.ranges(
          this.#reads,
          this.queue.lease.policy("read the queue"),
        );
        if (header.revision < this.#atLeast || watch !== this.#watch) this.#lookAgain = true;
        else if (!this.#over) this.#found(this.#waiterIn(ranges), header.revision);
      } catch {
        break;
      }
    }
    this.#looking = false;
  }

  get #reads(): readonly Range[] {
    const { path } = this.queue;
    const oldest = { order: "oldest first", limit: (this.#mode.permits ?? 1) + BESIDE } as const;
    if (this.#mode.folder === "/read") return otherRanges(path).map((range) => ({ ...oldest, ...range }));
    return [{ ...oldest, ...queueRange(path) }];
  }

  #waiterIn(results: readonly RangeResult[]): SeenEntry | undefined {
    const seen = results.flatMap(({ kvs }) => kvs.map((kv) => new SeenEntry(kv))).sort(byAge);
    const { path } = this.queue;
    const waiters = this.#mode.folder === "/read" ? withoutDelayKeys(seen) : splitQueue(path, seen).waiters;
    return waiters.find((entry) => this.#mayWait(entry));
  }

  #found(waiter: SeenEntry | undefined, revision: bigint): void {
    this.#seenAt = revision;
    if (waiter) return this.#waits(waiter, waiter);
    this.#waiter = this.#told = this.#next = undefined;
    this.#toldMs = -Infinity;
  }

  /** `first`: known to wait. */
  #waits(entry: SeenEntry, first: SeenEntry): void {
    this.#waiter = first;
    if (this.#told?.createRevision === entry.createRevision && this.#told.key === entry.key) return;
    this.#next = entry;
    const { clock } = this.queue.lease.services;
    const leftMs = this.#toldMs + TELL_MS - clock.monotonic();
    if (leftMs <= 0) return this.#tell();
    this.#timer ??= this.queue.lease.services.timers.add(leftMs, () => this.#tell());
  }

  #tell(): void {
    this.#timer?.cancel();
    this.#timer = undefined;
    const waiter = this.#next;
    if (!waiter) return;
    this.#next = undefined;
    this.#told = waiter;
    this.#toldMs = this.queue.lease.services.clock.monotonic();
    for (const [hold, listeners] of this.#asking)
      for (const listener of listeners)
        if (this.#isBehind(waiter, hold) && hold.held) this.#call(listener, waiter);
  }

  #call(listener: WantedListener, waiter: SeenEntry): void {
    listener.told(waiter.contenderIn(this.entry.name, "waiting"));
  }
}

/** A listener of a user. What it throws is an uncaught exception, as of any event listener. */
export const listenerOf = (call: (waiter: Contender) => void): WantedListener => ({
  told: (waiter) =>
    tellOutside(() => {
      try {
        call(waiter);
      } catch (error) {
        process.nextTick(() => {
          throw error;
        });
      }
    }),
  over: () => undefined,
});

type Result = IteratorResult<Contender, undefined>;
const DONE: Result = { done: true, value: undefined };

/** Of those that a slow loop has missed, it gets the latest. */
export class Waiters implements AsyncIterableIterator<Contender, undefined>, WantedListener {
  readonly #pending: { resolve: (result: Result) => void; reject: (error: Error) => void }[] = [];
  #latest: Contender | undefined;
  #over = false;
  #error: Error | undefined;
  readonly #stop: () => void;

  constructor(listen: (listener: WantedListener) => () => void) {
    this.#stop = listen(this);
  }

  told(waiter: Contender): void {
    const pending = this.#pending.shift();
    if (pending) pending.resolve({ done: false, value: waiter });
    else this.#latest = waiter;
  }

  over(error?: Error): void {
    if (this.#over) return;
    this.#over = true;
    this.#latest = undefined;
    for (const { resolve, reject } of this.#pending.splice(0)) {
      if (error) reject(error);
      else resolve(DONE);
      error = undefined;
    }
    this.#error = error;
  }

  next(): Promise<Result> {
    const [latest, error] = [this.#latest, this.#error];
    this.#latest = this.#error = undefined;
    if (latest) return Promise.resolve({ done: false, value: latest });
    if (error) return Promise.reject(error);
    if (this.#over) return Promise.resolve(DONE);
    return new Promise((resolve, reject) => this.#pending.push({ resolve, reject }));
  }

  return(): Promise<Result> {
    this.#stop();
    this.over();
    return Promise.resolve(DONE);
  }

  [Symbol.asyncIterator](): this {
    return this;
  }
}
