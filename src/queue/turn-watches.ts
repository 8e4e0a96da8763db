import type { WatchEvent } from "../etcd/port.js";
import type { Watch, WatchListener, WatchTarget } from "../etcd/watch-hub.js";
import type { JoinedEntry } from "./entry.js";
import { isSame, type Predecessor } from "./lock-mode.js";

interface Watched {
  readonly watch: Watch;
  /** It misses no event since our join, so no read has to look for earlier events. */
  readonly sinceJoin: boolean;
}

export interface TurnListener extends WatchListener {
  /** The entry before the predecessor has ended. */
  beforeEnded(before: Predecessor, endedAt: bigint): void;
}

/** How to watch a predecessor. */
export interface Following {
  /** It is, or may soon be, the holder: its end alone decides, so one watch reports that end and the end of our own key. */
  readonly decides: boolean;
  /** The entry before it, if its end is of use. */
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

/** The watches of one waiter: on its predecessor, on its own key, and on the entry before the predecessor. */
export class TurnWatches {
  #predecessor: Watched | undefined;
  #decides = false;
  #own: Watched | undefined;
  #before: EntryBefore | undefined;

  constructor(
    private readonly entry: JoinedEntry,
    private readonly listener: TurnListener,
  ) {}

  get followsPredecessor(): boolean {
    return this.#predecessor !== undefined;
  }

  /** The watch on the predecessor reports the end of our own key, too: both or neither, if one revision ends both. */
  get decides(): boolean {
    return this.#decides;
  }

  /** The later of the revisions at which etcd created the watches on the predecessor and on our key, once both are created. */
  get createdAt(): bigint | undefined {
    const predecessor = this.#predecessor?.watch.createdAt;
    const own = this.#own?.watch.createdAt;
    if (predecessor === undefined || own === undefined) return undefined;
    return predecessor > own ? predecessor : own;
  }

  /** Where those two begin, as far as they are created: an answer older than one of them does not count. */
  get createdSoFar(): readonly bigint[] {
    return [this.#predecessor?.watch.createdAt ?? 0n, this.#own?.watch.createdAt ?? 0n];
  }

  get ownIsCreated(): boolean {
    return this.#own?.watch.createdAt !== undefined;
  }

  get sinceJoin(): boolean {
    return this.#predecessor?.sinceJoin === true && this.#own?.sinceJoin === true;
  }

  /** Revisions of the last events that reused watches reported while they were idle. */
  get lastEvents(): { readonly predecessor: bigint; readonly own: bigint } {
    return { predecessor: this.#predecessor?.watch.lastEvent ?? 0n, own: this.#own?.watch.lastEvent ?? 0n };
  }

  follow({ target }: Predecessor, { decides, before, startRevision = 0n }: Following): void {
    this.#predecessor?.watch.cancel();
    // A range of several predecessors contains our own key.
    this.#decides = decides || target.end !== undefined;
    this.#predecessor = this.#watched(decides ? spanning(target, this.entry.key) : target, startRevision);
    this.#own ??= this.#watched({ key: this.entry.key, events: "DELETE" }, startRevision);
    this.followBefore(before, startRevision);
  }

  followBefore(before: Predecessor | undefined, startRevision = 0n): void {
    if (before && this.#before && isSame(this.#before.entry, before)) {
      // It may be the holder by now.
      this.#before.entry = before;
      return;
    }
    this.#before?.cancel();
    this.#before = undefined;
    if (!before) return;
    const watch = (listener: WatchListener): Watch =>
      this.#watch({ ...before.target, startRevision }, listener);
    this.#before = new EntryBefore(before, watch, (endedAt) => this.#beforeEnded(endedAt));
  }

  /** The watch on our key goes to the hold; the others stay for the next wait. */
  handOver(): Watch | undefined {
    const own = this.#own?.watch;
    // Clients that take turns with us will be before us again.
    this.#predecessor?.watch.keepForReuse();
    this.#before?.keepForReuse();
    this.#predecessor = this.#own = this.#before = undefined;
    return own;
  }

  cancel(): void {
    this.#predecessor?.watch.cancel();
    this.#own?.watch.cancel();
    this.#before?.cancel();
    this.#predecessor = this.#own = this.#before = undefined;
  }

  #beforeEnded(endedAt: bigint): void {
    const before = this.#before;
    this.#before = undefined;
    if (!before) return;
    before.keepForReuse();
    this.listener.beforeEnded(before.entry, endedAt);
  }

  #watched(target: WatchTarget, startRevision: bigint): Watched {
    const watch = this.#watch({ ...target, startRevision }, this.listener);
    return { watch, sinceJoin: startRevision > 0n || watch.createdAt !== undefined };
  }

  #watch(target: WatchTarget, listener: WatchListener): Watch {
    const { watches } = this.entry.lease.services;
    const beside = (this.#own ?? this.#predecessor)?.watch;
    return watches.watch({ ...target, reuseFrom: this.entry.revision + 1n }, listener, beside);
  }
}

/**
 * Watches the entry before a predecessor. When it ends, the predecessor is most likely the holder: a read can show that while
 * the predecessor still holds, so that its own end needs none. A missed event costs a read after that end, and nothing else.
 */
class EntryBefore implements WatchListener {
  readonly #watch: Watch;

  constructor(
    public entry: Predecessor,
    watch: (listener: WatchListener) => Watch,
    private readonly onEnd: (endedAt: bigint) => void,
  ) {
    this.#watch = watch(this);
  }

  events(events: readonly WatchEvent[]): void {
    const end = events.find(({ kv }) => this.entry.endedBy(kv));
    if (end) this.onEnd(end.kv.modRevision);
  }

  /** A client that takes turns with us will be there again. */
  keepForReuse(): void {
    this.#watch.keepForReuse();
  }

  cancel(): void {
    this.#watch.cancel();
  }

  created(): void {}

  /** The watch on the predecessor shares its stream: the wait watches both anew. */
  interrupted(): void {}

  refused(): void {}
}
