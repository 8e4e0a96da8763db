// All watches of a cluster, on as few streams of one member as they need.
// - A listener is never called before `WatchHub.watch` has returned, and receives nothing after it cancelled its watch.
// - `created` comes before any event of a watch that was opened, and gives the revision after which every event is delivered.
// - When one stream fails, all of them end, and every listener is notified to watch anew on the next member. The hub carries
//   nothing over: the listener reads what happened in between.
// - A watch on the deletion of one key that has lost its listener is kept for a few seconds, for the next caller that waits
//   for the same key (`IdleWatches`).
// - A watch on deletions that a wide one of this process reports anyway shares that one (`SharedWatch`).
// - Streams on which nothing is watched are closed when a session or an observer ends: they would keep the process alive.
import { EtcdRefusedError } from "../errors.js";
import type { Clock, Timer } from "../base/util/clock.js";
import type { Timers } from "../base/util/timers.js";
import type { EtcdClient } from "./client.js";
import { type Member, type Range, UnansweredError } from "./port.js";
import { type RangesAnswer, readRanges } from "./ranges.js";
import { Backoff } from "./retry.js";
import { SharedWatch } from "./shared-watch.js";
import {
  keyText,
  OpenStream,
  type StreamGroup,
  Watch,
  type WatchListener,
  type WatchOwner,
  type WatchTarget,
} from "./watch.js";

/** Contenders that take turns watch the same key again within this time. */
const KEPT_MS = 5000;
const KEPT_GRAIN_MS = 500;
/** More than the contenders that take turns in one process. */
const MAX_KEPT = 256;
/**
 * The release of this client's own key is one event, and so is that of another key in a range. From the next one on, only
 * others use the keys, and their events cost.
 */
const maxEvents = ({ end }: Watch): number => (end === undefined ? 2 : 3);

interface IdleWatch {
  readonly watch: Watch;
  readonly timer: Timer;
  events: number;
}

/** A key of its own for each range. */
function rangeText({ key, end = "" }: Pick<WatchTarget, "key" | "end">): string {
  const first = keyText(key);
  return `${String(first.length)}:${first}${keyText(end)}`;
}

/**
 * Watches for deletions that no waiter needs at the moment. A contender for a lock waits for the same keys again and again:
 * a watch that continued meanwhile has missed nothing, so the next wait needs neither a create nor a read after it.
 */
class IdleWatches {
  readonly #byKey = new Map<string, IdleWatch>();

  constructor(private readonly timers: Timers) {}

  /** Takes over the watch from its listener. */
  add(watch: Watch): void {
    const key = rangeText(watch);
    this.#remove(key);
    const timer = this.timers.add(KEPT_MS, () => this.#remove(key), KEPT_GRAIN_MS);
    const idle: IdleWatch = { watch, timer, events: 0 };
    watch.listener = this.#listener(idle, key);
    this.#byKey.set(key, idle);
    const [oldest] = this.#byKey.keys();
    if (this.#byKey.size > MAX_KEPT && oldest !== undefined) this.#remove(oldest);
  }

  /** A watch that has reported, or will report, every deletion in the range from revision `from` on. */
  take(target: Pick<WatchTarget, "key" | "end">, from: bigint): Watch | undefined {
    const key = rangeText(target);
    const watch = this.#byKey.get(key)?.watch;
    // The stream may be gone before the watch's listener is notified.
    if (watch?.createdAt === undefined || watch.createdAt >= from || watch.over) return undefined;
    this.#drop(key);
    return watch;
  }

  /** Cancels all idle watches. */
  clear(): void {
    for (const key of [...this.#byKey.keys()]) this.#remove(key);
  }

  #remove(key: string): void {
    this.#byKey.get(key)?.watch.cancel();
    this.#drop(key);
  }

  #drop(key: string): void {
    this.#byKey.get(key)?.timer.cancel();
    this.#byKey.delete(key);
  }

  #listener(idle: IdleWatch, key: string): WatchListener {
    const ended = (): void => {
      if (this.#byKey.get(key) === idle) this.#drop(key);
    };
    const events = (all: readonly unknown[]): void => {
      idle.events += all.length;
      if (idle.events >= maxEvents(idle.watch)) this.#remove(key);
    };
    return { created: () => undefined, events, interrupted: ended, refused: ended };
  }
}

interface Deletion {
  readonly revision: bigint;
  readonly by: object;
  /** The number of its report. */
  readonly count: number;
}

/**
 * The last deletions that this process knows of, by key, the oldest first: any watch has reported them, also one that was cancelled
 * meanwhile, or an answer has shown that a key is missing.
 */
class Deletions {
  /** The number of all reports so far. */
  count = 0;
  readonly #byKey = new Map<string, Deletion>();

  /**
   * `by`: the streams to one member, or the hub for answers. Later streams may be those of an etcd that was restored, with lower
   * revisions.
   */
  report(key: string, revision: bigint, by: object): void {
    const last = this.#byKey.get(key);
    if (last?.by === by && last.revision >= revision) return;
    this.#byKey.delete(key);
    this.#byKey.set(key, { revision, by, count: ++this.count });
    const [oldest] = this.#byKey.keys();
    if (this.#byKey.size > MAX_KEPT && oldest !== undefined) this.#byKey.delete(oldest);
  }

  of(key: string, since: number): bigint {
    const last = this.#byKey.get(key);
    return last && last.count > since ? last.revision : 0n;
  }
}

export type { Interruption, Watch, WatchListener, WatchTarget } from "./watch.js";

/** The streams to one member, which stay and move together. */
interface OpenStreams extends StreamGroup {
  readonly streams: Set<OpenStream>;
  /** The members that created the watches: several if something between this process and etcd distributes the streams. */
  readonly memberIds: Set<string>;
}

/** All watches of a cluster, on as many streams to one member as they need. */
export class WatchHub {
  #open: OpenStreams | undefined;
  #nextId = 1;
  readonly #retry: Backoff;
  /** Watches that were made while no stream was open, each with the watch whose stream it should share. */
  #unsent = new Map<Watch, Watch | undefined>();
  readonly #waiting: WatchOwner = {
    drop: (watch) => void this.#unsent.delete(watch),
    keepForReuse: () => false,
  };
  readonly #idleWatches: IdleWatches;
  readonly #wideWatches = new Set<SharedWatch>();
  readonly #deletions = new Deletions();
  #reopening: Timer | undefined;
  #closed = false;

  constructor(
    private readonly client: EtcdClient,
    private readonly clock: Clock,
    timers: Timers,
  ) {
    this.#retry = new Backoff(clock);
    this.#idleWatches = new IdleWatches(timers);
    client.pool.listen({
      failed: (member) => this.#open?.member === member && this.#move(this.#open),
      suspected: (member) => this.#open?.member === member && this.#probe(this.#open),
    });
  }

  /**
   * The listener is never called before this has returned. The watch shares the stream of `beside`, if that has one. A reused
   * watch already has its `createdAt`, and its listener checks its `lastEvent`.
   */
  watch(target: WatchTarget, listener: WatchListener, beside?: Watch): Watch {
    const there = this.#idleWatchFor(target);
    if (there) {
      there.listener = listener;
      return there;
    }
    const shared = this.#sharedFor(target, listener);
    if (shared) return shared;
    const id = this.#nextId++;
    const watch = target.isWide
      ? new SharedWatch({ ...target, id }, listener, this.#wideWatches).watch
      : new Watch(id, target, listener);
    if (this.#open) {
      this.#create(this.#open, watch, beside);
    } else {
      watch.owner = this.#waiting;
      this.#unsent.set(watch, beside);
      this.#reopening ??= this.clock.after(0, () => this.#reopen());
    }
    return watch;
  }

  /** Idle watches report only deletions, so no other target may reuse one. */
  #idleWatchFor(target: WatchTarget): Watch | undefined {
    const { events, reuseFrom } = target;
    return events === "DELETE" && reuseFrom !== undefined
      ? this.#idleWatches.take(target, reuseFrom)
      : undefined;
  }

  #sharedFor(target: WatchTarget, listener: WatchListener): Watch | undefined {
    const { events, reuseFrom, shareFrom = reuseFrom } = target;
    if (events !== "DELETE" || shareFrom === undefined) return undefined;
    for (const wide of this.#wideWatches) {
      const sharing = wide.take(target, shareFrom, listener);
      if (sharing) return sharing;
    }
    return undefined;
  }

  /** How many deletions are known so far. */
  get deletions(): number {
    return this.#deletions.count;
  }

  /** The answer to a request has shown that the key is gone, at this revision. */
  shownGone(key: string, revision: bigint): void {
    this.#deletions.report(key, revision, this);
  }

  /**
   * Revision by which the key is known to be deleted; 0n if nothing has shown it since so many `deletions` were known. An earlier
   * report says nothing: etcd may have been restored from a snapshot, whose revisions are lower.
   */
  deletionOf(key: string, since: number): bigint {
    return this.#deletions.of(keyText(key), since);
  }

  /**
   * A serializable read on the member that serves all watches, so that the answer can be compared with their events.
   * Resolves to `undefined` if there is no answer, or only one of another member.
   */
  async read(ranges: readonly Range[], timeoutMs: number): Promise<RangesAnswer | undefined> {
    const open = this.#open;
    if (!open) return undefined;
    try {
      const near = ranges.map((range) => ({ ...range, serializable: true }));
      const answer = await readRanges(open.member, near, { timeoutMs });
      const { memberIds } = open;
      const theirs = memberIds.size === 1 && memberIds.has(answer.header.memberId);
      return open === this.#open && theirs ? answer : undefined;
    } catch (error) {
      if (error instanceof UnansweredError && open === this.#open) this.#probe(open);
      return undefined;
    }
  }

  /** Closes streams without watches, so that they do not keep the process alive. */
  closeIdleStreams(): void {
    if (this.#open) this.#endIdle(this.#open);
    else if (this.#unsent.size === 0) this.#closeStreams();
  }

  dropIdleWatches(): void {
    this.#idleWatches.clear();
  }

  close(): void {
    this.#closed = true;
    this.#idleWatches.clear();
    this.#unsent.clear();
    this.#closeStreams();
  }

  #endIdle(open: OpenStreams): void {
    for (const stream of open.streams) {
      if (stream.watches.size > 0) continue;
      stream.close();
      open.streams.delete(stream);
    }
    if (open.streams.size === 0) this.#closeStreams();
  }

  #closeStreams(): void {
    this.#reopening?.cancel();
    this.#reopening = undefined;
    for (const stream of this.#open?.streams ?? []) stream.close();
    this.#open = undefined;
  }

  #reopen(): void {
    this.#reopening = undefined;
    if (this.#closed || this.#unsent.size === 0) return;
    if (this.client.tokenMissing) return this.#reopenWithToken();
    const open = (this.#open = this.#openOn(this.client.pool.current));
    for (const [watch, beside] of this.#takeUnsent()) this.#create(open, watch, beside);
  }

  #openOn(member: Member): OpenStreams {
    const memberIds = new Set<string>();
    const open: OpenStreams = {
      member,
      streams: new Set(),
      memberIds,
      answers: 0,
      created: (header) => {
        this.#retry.reset();
        memberIds.add(header.memberId);
        return this.client.pool.accepts(member, header);
      },
      tokenExpired: () => this.#renewToken(open),
      failed: (why) => this.client.pool.fail(member, why),
      deleted: ({ kv }) => this.#deletions.report(keyText(kv.key), kv.modRevision, open),
      keepForReuse: (watch) => this.#idleWatches.add(watch),
    };
    return open;
  }

  #takeUnsent(): Map<Watch, Watch | undefined> {
    const unsent = this.#unsent;
    this.#unsent = new Map();
    return unsent;
  }

  #create(open: OpenStreams, watch: Watch, beside: Watch | undefined): void {
    const { owner } = beside ?? {};
    const there = owner instanceof OpenStream && !owner.closed ? owner : undefined;
    (there ?? this.#streamWithRoom(open)).create(watch);
  }

  #streamWithRoom(open: OpenStreams): OpenStream {
    for (const stream of open.streams) if (!stream.full) return stream;
    const stream = new OpenStream(open, this.clock);
    open.streams.add(stream);
    return stream;
  }

  /** Watches outlive a token, but old streams cannot create new ones: all watches move to streams with a fresh token. */
  #renewToken(open: OpenStreams): void {
    this.#move(open);
    this.#reopening?.cancel();
    this.#reopenWithToken();
  }

  #reopenWithToken(): void {
    const held: Timer = { cancel: () => undefined };
    this.#reopening = held;
    const reopen = (): void => {
      if (this.#reopening === held) this.#reopen();
    };
    void this.client.freshToken().then(reopen, (error: Error) => {
      if (this.#reopening !== held) return;
      this.#reopenLater();
      // A changed password: no stream can be opened any more. An unanswered request: the next one may succeed.
      if (!(error instanceof EtcdRefusedError)) return;
      for (const watch of this.#takeUnsent().keys()) watch.listener.refused(error);
    });
  }

  /** Notifies every listener first; the watches that they start anew are collected and created in bulk on the next streams. */
  #move(open: OpenStreams): void {
    if (open !== this.#open) return;
    this.#closeStreams();
    if (this.#closed) return;
    this.#reopenLater();
    for (const { watches } of open.streams) for (const watch of watches.values()) watch.over = true;
    for (const { watches } of open.streams)
      for (const watch of watches.values()) watch.listener.interrupted("broken");
  }

  #reopenLater(): void {
    this.#reopening = this.clock.after(this.#retry.nextMs(), () => this.#reopen());
  }

  #probe(open: OpenStreams): void {
    // etcd 3.5 and later answers a probe only on a stream with watches.
    this.#endIdle(open);
    for (const stream of open.streams) stream.probe();
  }
}
