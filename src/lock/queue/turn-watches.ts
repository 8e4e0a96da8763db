import type { WatchEvent } from "../../etcd/port.js";
import type { Interruption, Watch, WatchListener, WatchTarget } from "../../etcd/watch-hub.js";
import type { JoinedEntry } from "./entry.js";
import { isSame, type Predecessor } from "./lock-mode.js";

interface Watched {
  readonly watch: Watch;
  /** The watch misses no event since our join, so no read has to look for earlier events. */
  readonly sinceJoin: boolean;
}

export interface TurnListener extends WatchListener {
  /** The entry before the predecessor has ended. */
  beforeEnded(before: Predecessor, endedAt: bigint): void;
}

/** How to watch a predecessor. */
export interface Following {
  /** The predecessor holds, or may hold soon: its end alone decides, so one watch reports that end and the end of our own key. */
  readonly decides: boolean;
  /** The entry before it, if its end is of use: if the predecessor does not decide, that one must end first. */
  readonly before: Predecessor | undefined;
  /** Default 0n: from now on. */
  readonly startRevision?: bigint;
}

/** The smallest range that contains both keys; of the events in it, only theirs count. */
function spanning(target: WatchTarget, own: string): WatchTarget {
  if (target.end !== undefined) return target;
  const [first, last] = [Buffer.from(target.key), Buffer.from(own)].sort((a, b) => a.compare(b));
  return { ...target, key: first as Buffer, end: Buffer.concat([last as Buffer, Buffer.of(0)]) };
}

export const max = (...revisions: readonly bigint[]): bigint => revisions.reduce((a, b) => (a > b ? a : b));

/**
 * The watches of one waiter. Far from its turn it has one, on the entry before its predecessor: while that one is there, nothing
 * else matters. Near its turn it has one on the predecessor and its own key together, and one on the entry before the predecessor
 * while that one holds. A waiter that does not know the entry before its predecessor (a reader, or a waiter for a permit behind
 * another one) has one on the predecessor and one on its own key. A reader behind a writer has one more, for the puts of that one key:
 * a range would report those of all who join.
 */
export class TurnWatches {
  #predecessor: Watched | undefined;
  #decides = false;
  #own: Watched | undefined;
  /** Reports the puts of a predecessor that may downgrade. */
  #puts: Watched | undefined;
  #before: EntryBefore | undefined;

  constructor(
    private readonly entry: JoinedEntry,
    private readonly listener: TurnListener,
  ) {}

  /** The watch on the predecessor reports the end of our own key, too: both or neither, if one revision ends both. */
  get decides(): boolean {
    return this.#decides;
  }

  /** The end of our own key is reported, by either watch. */
  get seesOwnEnd(): boolean {
    return this.#predecessor !== undefined && (this.#decides || this.#own !== undefined);
  }

  get watchesBefore(): boolean {
    return this.#before !== undefined;
  }

  /** Whether what is watched suits `predecessor` as well as it suited `last`. */
  follows(predecessor: Predecessor, last: Predecessor | undefined): boolean {
    if (this.#predecessor) return isSame(last, predecessor);
    return predecessor.before !== undefined && this.#before?.watches(predecessor.before) === true;
  }

  /** etcd has not created all of them yet. */
  get creating(): boolean {
    return this.#needed.some(({ watch }) => watch.createdAt === undefined);
  }

  /** The latest revision at which etcd created one of them, once all are created. */
  get createdAt(): bigint | undefined {
    return this.creating ? undefined : max(...this.createdSoFar);
  }

  /** Where they begin, as far as they are created: an answer older than one of them does not count. */
  get createdSoFar(): readonly bigint[] {
    return this.#needed.map(({ watch }) => watch.createdAt ?? 0n);
  }

  /**
   * When the youngest of them was created that has reported no event yet: etcd may serve its first event late (see REREADS_AT_MS).
   * One that has reported an event is served at once from then on.
   */
  get doubtedSinceMs(): number {
    const silent = this.#needed.filter(({ watch }) => watch.lastEvent === 0n);
    return Math.max(...silent.map(({ watch }) => watch.createdMs));
  }

  get sinceJoin(): boolean {
    return this.#needed.every(({ sinceJoin }) => sinceJoin);
  }

  /** Revision of the last event that a reused watch reported while it was idle. */
  get lastEvent(): bigint {
    return max(...this.#needed.map(({ watch }) => watch.lastEvent));
  }

  /** Near the turn, the one on the entry before the predecessor only saves a read. */
  get #needed(): readonly Watched[] {
    const needed = this.#predecessor ? [this.#predecessor, this.#own, this.#puts] : [this.#before?.watched];
    return needed.filter((watched) => watched !== undefined);
  }

  follow(predecessor: Predecessor, { decides, before, startRevision = 0n }: Following): void {
    const { target, mayDowngrade } = predecessor;
    this.#predecessor?.watch.cancel();
    this.#puts?.watch.cancel();
    this.#predecessor = this.#puts = undefined;
    // A range of several predecessors contains our own key.
    this.#decides = decides || target.end !== undefined;
    if (this.#decides || !before) {
      const watched = decides ? spanning(target, this.entry.key) : target;
      this.#predecessor = this.#watched({ ...watched, startRevision }, this.listener);
      const own: WatchTarget = { key: this.entry.key, events: "DELETE", startRevision };
      if (!this.#decides) this.#own ??= this.#watched(own, this.listener);
      if (mayDowngrade)
        this.#puts = this.#watched({ key: target.key, events: "PUT", startRevision }, this.listener);
    }
    this.followBefore(before, startRevision);
  }

  followBefore(before: Predecessor | undefined, startRevision = 0n): void {
    if (before && this.#before?.watches(before)) {
      // The entry may be the holder by now.
      this.#before.entry = before;
      return;
    }
    this.#before?.cancel();
    this.#before = undefined;
    if (!before) return;
    this.#before = new EntryBefore(before, {
      watch: (listener) => this.#watched({ ...before.target, startRevision }, listener),
      ended: (endedAt) => this.#beforeEnded(endedAt),
      ifNeeded: () => (this.#predecessor ? undefined : this.listener),
    });
  }

  /** Clients that take turns with us will be before us again. `fromFar`: by then, others have keys between ours and theirs. */
  keepForReuse(fromFar: boolean): void {
    this.#own?.watch.keepForReuse();
    this.#before?.keepForReuse();
    this.#puts?.watch.cancel();
    this.#own = this.#before = this.#puts = undefined;
    if (fromFar) return;
    this.#predecessor?.watch.keepForReuse();
    this.#predecessor = undefined;
  }

  cancel(): void {
    this.#predecessor?.watch.cancel();
    this.#own?.watch.cancel();
    this.#puts?.watch.cancel();
    this.#before?.cancel();
    this.#predecessor = this.#own = this.#puts = this.#before = undefined;
  }

  #beforeEnded(endedAt: bigint): void {
    const before = this.#before;
    this.#before = undefined;
    if (!before) return;
    before.keepForReuse();
    this.listener.beforeEnded(before.entry, endedAt);
  }

  #watched(target: WatchTarget, listener: WatchListener): Watched {
    const { watches } = this.entry.lease.services;
    const beside = (this.#own ?? this.#predecessor)?.watch;
    const watch = watches.watch({ ...target, reuseFrom: this.entry.revision + 1n }, listener, beside);
    return { watch, sinceJoin: (target.startRevision ?? 0n) > 0n || watch.createdAt !== undefined };
  }
}

interface BeforeOptions {
  watch(listener: WatchListener): Watched;
  ended(endedAt: bigint): void;
  /** Who needs this watch: nobody where another one reports all that decides. */
  ifNeeded(): WatchListener | undefined;
}

/**
 * Watches the entry before a predecessor. When it ends, the predecessor is most likely the holder: a read can show that while
 * the predecessor still holds, so that its own end needs none. Near the turn, a missed event costs a read after that end, and
 * nothing else.
 */
class EntryBefore implements WatchListener {
  readonly watched: Watched;

  constructor(
    public entry: Predecessor,
    private readonly options: BeforeOptions,
  ) {
    this.watched = options.watch(this);
  }

  /** etcd may have ended the watch while nobody needed it. */
  watches(entry: Predecessor): boolean {
    return isSame(this.entry, entry) && !this.watched.watch.over;
  }

  events(events: readonly WatchEvent[]): void {
    const end = events.find(({ kv }) => this.entry.endedBy(kv));
    if (end) this.options.ended(end.kv.modRevision);
  }

  /** A client that takes turns with us will be there again. */
  keepForReuse(): void {
    this.watched.watch.keepForReuse();
  }

  cancel(): void {
    this.watched.watch.cancel();
  }

  created(revision: bigint): void {
    this.options.ifNeeded()?.created(revision);
  }

  /** Near the turn, the watch on the predecessor shares its stream, and is interrupted, too. */
  interrupted(why: Interruption): void {
    this.options.ifNeeded()?.interrupted(why);
  }

  refused(error: Error): void {
    this.options.ifNeeded()?.refused(error);
  }
}
