import type { RangesAnswer } from "../etcd/ranges.js";
import type { EventKind, KeyValue } from "../etcd/port.js";
import type { Watch, WatchListener, WatchTarget } from "../etcd/watch/hub.js";
import { isSame, type Behind, type Predecessor } from "./lock-mode.js";
import type { JoinedEntry } from "./entry.js";
import { SlowReads, type SlowReader } from "./slow-reads.js";
import type { Timer } from "../async/clock.js";

/** How a wait ends, unless its owner stops it. */
export interface WaitOutcome {
  /**
   * It is our turn. `ownWatch` continues to watch our key. `deletedAt` is set when no read has confirmed the key since
   * the predecessor's deletion: a read then confirms it while the caller continues.
   */
  granted(ownWatch: Watch | undefined, deletedAt: bigint | undefined): void;
  /** Our key is gone. */
  gone(): void;
  failed(error: Error): void;
}

/** With this many ahead, a watch may start in the past: etcd delivers it up to 100 ms late, which does not matter there. */
const FAR = 64;
/** With this few ahead, the turn may come at any moment: read at once, and doubt the watch for a while. */
const NEAR = 3;
/** etcd's resync loop runs every 100 ms: a watch that fell into it delivers late, and reads in between find out sooner. */
const REREAD_MS = [4, 12, 30, 54];

interface Watched {
  readonly watch: Watch;
  /** It misses no event since our join, so no read has to look for earlier events. */
  readonly sinceJoin: boolean;
}

const max = (...revisions: readonly bigint[]): bigint => revisions.reduce((a, b) => (a > b ? a : b));

/**
 * Waits until no earlier entry is left: first watches the predecessor and its own key, *then* reads the queue. The order
 * matters: after a read that came first, a deletion between the two would go unnoticed. A single deletion alone proves
 * nothing (the predecessor may have been a waiter that gave up), unless the predecessor was known to be the holder.
 */
export class PredecessorWait implements WatchListener, SlowReader {
  #predecessor: Predecessor | undefined;
  #predecessorWatch: Watched | undefined;
  #ownWatch: Watched | undefined;
  #ahead: number;
  /** Both watches are created, and a later read has found the predecessor alive. */
  #verified = false;
  /** Answers from older states do not count. */
  #atLeast: bigint;
  /** The predecessor has ended or announced its grant, and no read was sent since. */
  #ended = false;
  #rereads = 0;
  /** The last read returned too little to decide. */
  #readAll = false;
  /** The number of the latest read; only that read may decide. */
  #read = 0;
  #timer: Timer | undefined;
  #over = false;

  constructor(
    private readonly entry: JoinedEntry,
    private readonly outcome: WaitOutcome,
    from: Behind | undefined,
  ) {
    this.#atLeast = entry.revision;
    this.#ahead = from?.ahead ?? 0;
    if (!from) {
      this.read();
      return;
    }
    // A replay from the join on misses no event, so it needs no read.
    this.#follow(from.predecessor, from.ahead >= FAR ? entry.revision + 1n : 0n);
  }

  /** A watch on several entries may report our own entry, too. */
  event(kv: KeyValue, kind: EventKind): void {
    if (kv.key.toString() === this.entry.key) {
      if (kv.modRevision > this.entry.revision) this.#end(() => this.outcome.gone());
      return;
    }
    // By the last read's description of the predecessor, which may stand for several entries.
    if (this.#predecessor?.endedBy(kv)) this.#predecessorEnded(kv.modRevision, kind);
  }

  /** Of all that the old stream reported, only the entries themselves are carried over. */
  interrupted(): void {
    if (this.#over) return;
    this.#predecessorWatch?.watch.cancel();
    this.#ownWatch?.watch.cancel();
    this.#predecessorWatch = this.#ownWatch = undefined;
    if (this.#predecessor) this.#follow(this.#predecessor, 0n);
  }

  refused(error: Error): void {
    this.#end(() => this.outcome.failed(error));
  }

  /** Stops waiting; the outcome is no longer reported. */
  stop(): void {
    this.#over = true;
    this.#cancelTimer();
    this.#predecessorWatch?.watch.cancel();
    this.#ownWatch?.watch.cancel();
  }

  #follow(predecessor: Predecessor, startRevision: bigint): void {
    // A read under way was sent before these watches existed, so it must not verify them.
    this.#read++;
    this.#verified = false;
    this.#rereads = 0;
    this.#cancelTimer();
    this.#predecessor = predecessor;
    this.#predecessorWatch?.watch.cancel();
    this.#predecessorWatch = this.#watch(predecessor.target, startRevision);
    this.#ownWatch ??= this.#watch({ key: this.entry.key, events: "DELETE" }, startRevision);
    this.#checkReused(predecessor);
    this.created();
  }

  /** A reused watch may have received events while it was idle: then a read decides. */
  #checkReused(predecessor: Predecessor): void {
    const ofPredecessor = this.#predecessorWatch?.watch.lastEvent ?? 0n;
    const ofOurs = this.#ownWatch?.watch.lastEvent ?? 0n;
    this.#ended = ofPredecessor > (predecessor.revision ?? 0n) || ofOurs > this.entry.revision;
    if (this.#ended) this.#atLeast = max(this.#atLeast, ofPredecessor, ofOurs);
  }

  #watch({ key, end, events }: WatchTarget, startRevision: bigint): Watched {
    const { watches } = this.entry.lease.services;
    const beside = (this.#ownWatch ?? this.#predecessorWatch)?.watch;
    const reuseFrom = this.entry.revision + 1n;
    const target: WatchTarget = { key, end, events, startRevision, reuseFrom };
    const watch = watches.watch(target, this, beside);
    return { watch, sinceJoin: startRevision > 0n || watch.createdAt !== undefined };
  }

  /** The later of the revisions at which etcd created the two watches, once both are created. */
  get #createdAt(): bigint | undefined {
    const predecessor = this.#predecessorWatch?.watch.createdAt;
    const own = this.#ownWatch?.watch.createdAt;
    return predecessor === undefined || own === undefined ? undefined : max(predecessor, own);
  }

  created(): void {
    if (this.#over || this.#createdAt === undefined) return;
    if (this.#ended) return this.read();
    if (this.#predecessorWatch?.sinceJoin && this.#ownWatch?.sinceJoin) return this.#trustWatches();
    if (this.#ahead <= NEAR) return this.read();
    // In a crowd, the event usually comes before the read is needed.
    this.#timer = this.entry.lease.services.clock.after(100, () => this.read());
  }

  #predecessorEnded(endedAt: bigint, by: EventKind): void {
    if (this.#over) return;
    this.#atLeast = max(this.#atLeast, endedAt);
    const next = by === "PUT" ? this.#predecessor?.afterPut : undefined;
    if (next) return this.#follow(next, 0n);
    this.#ended = true;
    if (this.#verified && this.#predecessor?.holder) return this.#grant(endedAt);
    // Otherwise the read follows when both watches are created.
    if (this.#ownWatch?.watch.createdAt !== undefined) this.read();
  }

  #grant(deletedAt: bigint | undefined): void {
    const ownWatch = this.#ownWatch?.watch;
    this.#ownWatch = undefined;
    // A client that takes turns with us will be before us again.
    this.#predecessorWatch?.watch.keepForReuse();
    this.#predecessorWatch = undefined;
    this.#end(() => this.outcome.granted(ownWatch, deletedAt));
  }

  #end(report: () => void): void {
    if (this.#over) return;
    this.stop();
    report();
  }

  read(): void {
    this.#cancelTimer();
    this.#ended = false;
    const read = ++this.#read;
    void this.#readQueue().then(
      (answer) => {
        if (!this.#over && read === this.#read) this.#decide(answer);
      },
      (error: unknown) => {
        if (read === this.#read) this.#end(() => this.outcome.failed(error as Error));
      },
    );
  }

  /** Serializable on the watches' own member if that is recent enough, otherwise linearizable. */
  async #readQueue(): Promise<RangesAnswer> {
    const { lease } = this.entry;
    const { watches, client } = lease.services;
    const ranges = this.entry.mode.reads(this.entry, this.#readAll);
    const atLeast = max(
      this.#atLeast,
      this.#predecessorWatch?.watch.createdAt ?? 0n,
      this.#ownWatch?.watch.createdAt ?? 0n,
    );
    const near = await watches.read(ranges, Math.min(lease.ttlMs / 4, client.requestTimeoutMs));
    if (near && near.header.revision >= atLeast) return near;
    return client.ranges(ranges, lease.policy("read the queue"));
  }

  #decide({ ranges, header }: RangesAnswer): void {
    const position = this.entry.mode.positionOf(this.entry, ranges);
    this.#readAll = position === "unclear";
    if (position === "unclear") return this.read();
    if (position === "gone") return this.#end(() => this.outcome.gone());
    if (position === "first") return this.#grant(undefined);
    const known = this.#predecessor;
    this.#ahead = position.ahead;
    if (!isSame(known, position.predecessor) || !this.#predecessorWatch) {
      return this.#follow(position.predecessor, 0n);
    }
    // Still the same predecessor, but it may be the holder by now.
    this.#predecessor = position.predecessor;
    const createdAt = this.#createdAt;
    if (createdAt === undefined) return;
    this.#verified = true;
    if (this.#ahead <= NEAR && header.revision > createdAt) return this.#rereadSoon();
    this.#trustWatches();
  }

  /** A write at the moment of the watch's creation may have put it among the watches that etcd serves late. */
  #rereadSoon(): void {
    const delayMs = REREAD_MS[this.#rereads++];
    if (delayMs === undefined) return this.#trustWatches();
    this.#timer = this.entry.lease.services.clock.after(delayMs, () => this.read());
  }

  /** From here on, the watches report the end; a slow read bounds the damage of an event that never comes. */
  #trustWatches(): void {
    this.#verified = true;
    this.#cancelTimer();
    SlowReads.of(this.entry.lease.services.clock).add(this);
  }

  /** Also drops a timer that has already run. */
  #cancelTimer(): void {
    this.#timer?.cancel();
    this.#timer = undefined;
    SlowReads.of(this.entry.lease.services.clock).delete(this);
  }
}
