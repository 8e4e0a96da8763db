import type { KeyValue, Range, WatchEvent } from "../etcd/port.js";
import type { Interruption, Watch, WatchListener } from "../etcd/watch-hub.js";
import { atOneRevision, type Keeping, readKeys, type Snapshot } from "../lock/queue/contenders.js";
import type { EtcdServices } from "../lock/session/connection.js";
import type { Timer } from "../base/util/clock.js";

/** Default of `slowReadMs`. */
const SLOW_READ_MS = 30_000;
/** After a watch that begins in the past. */
const SOON_MS = 500;
/** Every event older than a read arrives within this time after it: a dead connection is detected after 8 s. */
const LATEST_EVENT_MS = 10_000;

/** Which keys are watched, and what is kept of them. */
interface QueueWatchTarget<K> extends Keeping<K> {
  readonly services: EtcdServices;
  /** The keys of one queue, or of all queues whose names have a prefix. */
  readonly range: { readonly key: string | Buffer; readonly end: string | Buffer };
  /** The average interval of the reads that check whether the watch has missed an event. */
  readonly slowReadMs?: number;
  /** Waits and holds of this process in the range share the watch. */
  readonly isShared?: boolean;
  /** What the reads are for, as an EtcdUnavailableError names it. */
  readonly what: string;
}

/** What is compared of a key. */
type Revisions = Pick<KeyValue, "createRevision" | "modRevision">;

const revisionsOf = ({ createRevision, modRevision }: KeyValue): Revisions => ({
  createRevision,
  modRevision,
});

/** The keys as they are now. They are valid during the call only. */
export interface QueueChange<K> extends Snapshot<K> {
  /** What the keys that have changed since the last call were then: undefined if they were not there. */
  readonly before: ReadonlyMap<string, K | undefined>;
  /** A read shows it, which may collapse several revisions. */
  readonly isRead: boolean;
}

/** Receives what a `QueueWatch` finds. */
interface QueueListener<K> {
  /** Called after the first read and after every revision that changed a key. */
  readonly changed: (change: QueueChange<K>) => void;
  readonly failed: (error: Error) => void;
}

/**
 * Follows all keys of a range. Of a queue it follows all, not only those of its holders: the next holder was in the queue
 * before, so the deletion that ends a hold also determines the next one. Reads the range, then watches every event after that.
 * When a watch breaks, the next one starts where it ended. Only if etcd has compacted that revision does a new read replace
 * the events in between.
 */
export class QueueWatch<K extends Revisions> implements WatchListener {
  /** In the order of their create revisions: a new key has the highest one. */
  #keys = new Map<string, K>();
  /** Those that the revision being applied has changed, as they were before it. */
  #before = new Map<string, K | undefined>();
  #watch: Watch | undefined;
  /** Every event up to this revision has been applied and reported. */
  #complete = 0n;
  /** The revision whose events are being applied, until all of them have arrived. */
  #applying: bigint | undefined;
  /** The answer to a slow read, until every older event has arrived. */
  #snapshot: Snapshot<Revisions> | undefined;
  /** A watch has begun in the past, and its events have not been compared with a read since. */
  #mayMiss = false;
  /** Runs only while etcd serves the watch. */
  #timer: Timer | undefined;
  readonly #stopped = new AbortController();
  readonly #services: EtcdServices;

  constructor(
    private readonly target: QueueWatchTarget<K>,
    private readonly listener: QueueListener<K>,
  ) {
    this.#services = target.services;
    this.#readFirst();
  }

  stop(): void {
    this.#stopped.abort();
    this.#endWatch();
    // An idle stream must not keep the process alive.
    this.#services.watches.closeIdleStreams();
  }

  created(revision: bigint): void {
    // The member lags behind, or etcd was restored from a backup and would take long to reach the watched revision.
    if (revision < this.#complete) void this.#readSlowly();
    // One that begins in the past may miss a deletion at the very revision that etcd has compacted.
    else {
      this.#mayMiss ||= this.target.isShared === true && revision > this.#complete;
      this.#readLater();
    }
  }

  events(events: readonly WatchEvent[]): void {
    const watch = this.#watch;
    for (const event of events) {
      this.#apply(event);
      // The listener has cancelled the watch, or a read has to replace it.
      if (watch !== this.#watch) return;
    }
    this.#finish();
  }

  #apply({ kv, kind }: WatchEvent): void {
    const { modRevision } = kv;
    if (modRevision !== this.#applying) this.#finish();
    if (modRevision <= this.#complete || !this.#allBefore(modRevision)) return;
    this.#applying = modRevision;
    const key = kv.key.toString("latin1");
    const before = this.#keys.get(key);
    if (!this.#before.has(key)) this.#before.set(key, before);
    if (kind === "DELETE" || before?.createRevision !== kv.createRevision) this.#keys.delete(key);
    if (kind === "PUT") this.#keys.set(key, this.target.keep(kv));
  }

  interrupted(reason: Interruption): void {
    this.#endWatch();
    if (reason === "compacted") this.#readFirst();
    else this.#follow();
  }

  refused(error: Error): void {
    this.#fail(error);
  }

  #readFirst(): void {
    void this.#read(this.target).then(
      (answer) => this.#begin(answer),
      (error: unknown) => this.#fail(error as Error),
    );
  }

  #readAnew(): void {
    this.#endWatch();
    this.#readFirst();
  }

  /** A linearizable read of the whole range. */
  #read<T>(keeping: Keeping<T>, { keysOnly }: Pick<Range, "keysOnly"> = {}): Promise<Snapshot<T>> {
    const { range, what } = this.target;
    const asking = { services: this.#services, policy: { what, signal: this.#stopped.signal } };
    return atOneRevision(() => readKeys(asking, keysOnly ? { ...range, keysOnly } : range, keeping));
  }

  #begin({ revision, keys }: Snapshot<K>): void {
    if (this.#stopped.signal.aborted) return;
    this.#endWatch();
    this.#before = this.#differences(keys);
    this.#keys = keys;
    this.#complete = revision;
    this.#mayMiss = false;
    this.#follow();
    this.#report(true);
  }

  /** The keys that differ from these, as they are now. */
  #differences(others: ReadonlyMap<string, Revisions>): Map<string, K | undefined> {
    const found = new Map<string, K | undefined>();
    for (const key of [...this.#keys.keys(), ...others.keys()]) {
      const ours = this.#keys.get(key);
      if (ours?.modRevision !== others.get(key)?.modRevision) found.set(key, ours);
    }
    return found;
  }

  #follow(): void {
    const { range, isShared = false } = this.target;
    const target = { ...range, events: "ALL", startRevision: this.#complete + 1n, isWide: isShared } as const;
    this.#watch = this.#services.watches.watch(target, this);
  }

  #endWatch(): void {
    this.#watch?.cancel();
    this.#watch = undefined;
    this.#timer?.cancel();
    this.#snapshot = undefined;
    this.#applying = undefined;
  }

  #readLater(isSoon = this.#mayMiss): void {
    const { clock } = this.#services;
    const ms = isSoon ? SOON_MS : (this.target.slowReadMs ?? SLOW_READ_MS);
    this.#timer?.cancel();
    this.#timer = clock.after(ms * (0.75 + clock.random() / 2), () => void this.#readSlowly());
  }

  async #readSlowly(): Promise<void> {
    const [watch, complete] = [this.#watch, this.#complete];
    // Values are needed only if a key differs. If etcd rejects the read, the watch still reports.
    const keeping = { ...this.target, keep: revisionsOf };
    const answer = await this.#read(keeping, { keysOnly: true }).catch(() => undefined);
    if (this.#stopped.signal.aborted || watch !== this.#watch) return;
    if (!answer) return this.#readLater(false);
    const { revision } = answer;
    // A quorum is behind a revision reported before the read: etcd was restored from a backup.
    if (revision < complete) return this.#readAnew();
    // Events newer than the read have arrived, and therefore all older ones.
    if (revision < this.#complete) return this.#readLater();
    this.#snapshot = answer;
    this.#timer = this.#services.clock.after(LATEST_EVENT_MS, () => {
      // After this process was suspended, events may be waiting in the socket: timers run before it is read.
      this.#timer = this.#services.clock.afterPendingEvents(() => this.#check(answer));
    });
  }

  /** Whether the watch has reported every event before this one, according to the last read. If not, begins anew. */
  #allBefore(modRevision: bigint): boolean {
    const snapshot = this.#snapshot;
    return !snapshot || modRevision <= snapshot.revision || this.#check(snapshot);
  }

  /** Compares the keys with a read whose older events have all arrived. Begins anew if one was missed. */
  #check(snapshot: Snapshot<Revisions>): boolean {
    if (this.#differences(snapshot.keys).size > 0) {
      this.#readAnew();
      return false;
    }
    // Even after hours without events, the next watch starts at a revision that etcd has probably not compacted yet.
    this.#complete = snapshot.revision;
    this.#snapshot = undefined;
    this.#mayMiss = false;
    this.#readLater();
    return true;
  }

  /** All events of a revision have arrived: reports the keys. */
  #finish(): void {
    if (this.#applying === undefined || this.#stopped.signal.aborted) return;
    this.#complete = this.#applying;
    this.#applying = undefined;
    this.#report(false);
  }

  #report(isRead: boolean): void {
    const before = this.#before;
    this.#before = new Map();
    this.listener.changed({ revision: this.#complete, keys: this.#keys, before, isRead });
  }

  #fail(error: Error): void {
    if (!this.#stopped.signal.aborted) this.listener.failed(error);
  }
}

/** What a feed yields, and where it comes from. */
interface FeedSource<T> {
  readonly services: EtcdServices;
  readonly signal: AbortSignal | undefined;
  /** A consumer that has stopped reading must not fill the memory: of more unread items, the oldest are dropped. */
  readonly maxUnread: number;
  /** Characters that other clients have written into the item: the unread ones keep at most `MAX_UNREAD_SIZE`. */
  size?(item: T): number;
  /** Whether `b`, the item after `a`, is the same and is not delivered. */
  same(a: T, b: T): boolean;
  /** Called by the first `next()`. */
  start(sink: FeedSink<T>): { stop(): void };
}

interface FeedSink<T> {
  readonly item: (item: T) => void;
  readonly failed: (error: Error) => void;
}

type Result<T> = IteratorResult<T, undefined>;

interface PendingNext<T> {
  readonly resolve: (result: Result<T>) => void;
  readonly reject: (reason: unknown) => void;
}

const DONE: Result<never> = { done: true, value: undefined };

/** A value of etcd may have 1.5 MiB. */
const MAX_UNREAD_SIZE = 16 * 1024 * 1024;

/** An iterator over what happens in etcd. Starts with the first `next()`; ends when the caller aborts or the cluster closes. */
export class Feed<T> implements AsyncIterableIterator<T> {
  #unread: T[] = [];
  #unreadSize = 0;
  /** Calls of `next()` that are still pending. */
  readonly #waiting: PendingNext<T>[] = [];
  /** The last item delivered, boxed: undefined (no leader) is an item, too. */
  #last: { readonly item: T } | undefined;
  #failure: { readonly reason: unknown } | undefined;
  #state: "new" | "open" | "over" = "new";
  #watch: { stop(): void } | undefined;
  #unlisten: () => void = () => {};

  constructor(private readonly source: FeedSource<T>) {}

  [Symbol.asyncIterator](): this {
    return this;
  }

  next(): Promise<Result<T>> {
    if (this.#state === "new") this.#begin();
    if (this.#failure) {
      const { reason } = this.#failure;
      this.#failure = undefined;
      return Promise.reject(reason);
    }
    while (this.#unread.length > 0) {
      const item = this.#shift();
      // Dropping the oldest items may have left two of the same in a row.
      if (this.#isNews(item)) return Promise.resolve(this.#deliver(item));
    }
    if (this.#state === "over") return Promise.resolve(DONE);
    return new Promise((resolve, reject) => this.#waiting.push({ resolve, reject }));
  }

  /** Called when the consumer leaves the loop. */
  return(): Promise<Result<T>> {
    this.#end();
    for (const { resolve } of this.#waiting.splice(0)) resolve(DONE);
    return Promise.resolve(DONE);
  }

  #begin(): void {
    const { aborts, closed } = this.source.services;
    this.#state = "open";
    const signals = [this.source.signal, closed];
    const stops = signals.map((signal) => aborts.add(signal, () => this.#fail(signal?.reason)));
    this.#unlisten = () => {
      for (const stop of stops) stop();
    };
    const aborted = signals.find((signal) => signal?.aborted);
    if (aborted) return this.#fail(aborted.reason);
    this.#watch = this.source.start({
      item: (item) => this.#add(item),
      failed: (error) => this.#fail(error),
    });
  }

  #add(item: T): void {
    // What has been under way to the source when the iteration ended.
    if (this.#state === "over") return;
    const last = this.#unread.length > 0 ? { item: this.#unread.at(-1) as T } : this.#last;
    if (last && this.source.same(last.item, item)) return;
    const pending = this.#waiting.shift();
    if (pending) return pending.resolve(this.#deliver(item));
    this.#unread.push(item);
    this.#unreadSize += this.#sizeOf(item);
    while (this.#unread.length > this.source.maxUnread || this.#isTooLarge) this.#shift();
  }

  /** The last one stays. */
  get #isTooLarge(): boolean {
    return this.#unreadSize > MAX_UNREAD_SIZE && this.#unread.length > 1;
  }

  #shift(): T {
    const item = this.#unread.shift() as T;
    this.#unreadSize -= this.#sizeOf(item);
    return item;
  }

  #sizeOf(item: T): number {
    return this.source.size?.(item) ?? 0;
  }

  #isNews(item: T): boolean {
    return !this.#last || !this.source.same(this.#last.item, item);
  }

  #deliver(item: T): Result<T> {
    this.#last = { item };
    return { done: false, value: item };
  }

  /** Rejects the first pending call of `next()`, or the next call; after that the iteration is done. */
  #fail(reason: unknown): void {
    if (this.#state !== "open" || this.#failure) return;
    this.#end();
    const [first, ...others] = this.#waiting.splice(0);
    if (first) first.reject(reason);
    else this.#failure = { reason };
    for (const { resolve } of others) resolve(DONE);
  }

  #end(): void {
    this.#state = "over";
    this.#failure = undefined;
    this.#unread = [];
    this.#unreadSize = 0;
    this.#unlisten();
    this.#watch?.stop();
  }
}
