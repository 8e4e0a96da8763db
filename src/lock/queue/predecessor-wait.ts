// Waits until no earlier entry is left: watches what must end before its turn (`TurnWatches`), and *then* reads the queue. The order
// matters: after a read that came first, a deletion between the two would go unnoticed. A single deletion alone proves nothing: the
// predecessor may have been a waiter that gave up, and the same revision may have deleted our key. It does if the predecessor was
// known to be the holder, and one watch follows both keys.
//
//   state        the predecessor                                       rests on
//   unverified   may have ended before its watch began                 `seenAt`, older than a watch
//   verified     was there when its watch began, which tells its end   `seenAt`, no older than a watch; or a replay since the join,
//                                                                      when that is doubted no more
//   ended        has ended, and no read was sent since                 `atLeast`: no older answer counts
//   over         doesn't matter any more: the wait has ended
//
//   event                            unverified                  verified                     ended
//   the watches are created (1)      verified, if an answer is   (were created before)        read
//                                    young enough; otherwise
//                                    read, soon or late (2)
//   the predecessor ends             ended; read (1)             grant, if it held by then;   ended still
//                                                                otherwise ended; read
//   the predecessor is granted       follow its own predecessors
//   the predecessor, a writer,       read                        read                         (a read is under way)
//   becomes a reader
//   the entry before it ends (3)     that one held: the predecessor holds from here on.       (too late)
//                                    Otherwise follow it closely, and read early
//   answer: still behind it          verified; read again, if    verified                     grant, if the answer shows
//                                    older than a watch                                       it as holder, and is no older
//                                                                                             than a watch; otherwise read
//   answer: behind another entry, or so near that the same one must be watched closely: follow that one (4)
//   answer: first; without our key (5); too short; with another kind: grant; join again; read all; fail
//   our own key ends                 join again
//   the stream of watches moves      follow the same one again (4)
//   a watch or a read is refused     fail
//   the timer fires                  read                        read                         (is off)
//
// To follow makes the state "unverified". A read takes "ended" back to "unverified": its answer decides.
// (1) Not while an early read is under way, or, for an end, before the watches are created: what comes then reads.
// (2) Far from the turn, or after a replay since the join, the event usually comes before the read, which has a timer.
// (3) Nothing, while watches are being created: the read after that shows it.
// (4) "ended", if a watch that is reused has reported something while it was idle.
// (5) Also the answer to a read that another one has replaced.
import type { KeyValue, WatchEvent } from "../../etcd/port.js";
import type { RangesAnswer } from "../../etcd/ranges.js";
import type { Timed, Timers } from "../../base/util/timers.js";
import type { JoinedEntry } from "./entry.js";
import type { Behind, Predecessor } from "./lock-mode.js";
import { type Following, max, type TurnListener, TurnWatches } from "./turn-watches.js";

/** The average time after which a wait reads without a reason. */
const SLOW_READ_MS = 30_000;
const SLOW_GRAIN_MS = 500;

/** How a wait ends, unless its owner stops it. */
export interface WaitOutcome {
  /** It is our turn, and our key was there when it came. */
  turnGranted(): void;
  /** Our key is gone. `at`: the revision of its deletion, if a watch has reported that. */
  keyGone(at?: bigint): void;
  waitFailed(error: Error): void;
}

/** With this many ahead, a watch may start in the past: etcd delivers it up to 100 ms late, which does not matter there. */
const FAR = 64;
/** With this few ahead, the turn may come at any moment: read at once. */
const NEAR = 3;
/**
 * etcd 3.4 to 3.6 turns "from now on" into the next revision before it registers a watch. A write in between puts the watch among
 * those that its resync loop serves every 100 ms (measured: 1 % of the hand-overs of a hot queue). Reads so long after the creation
 * of the watches find out sooner.
 */
const REREADS_AT_MS = [4, 16, 46, 100];
const RESYNC_MS = 100;
/** A fast hand-over of a hot queue: the turn of a waiter comes after so long for each entry ahead, at the earliest. */
const TURN_MS = 4;
/**
 * A waiter behind a waiter depends on a put that announces the grant of that one. etcd may refuse it (NOSPACE), and a process that
 * has died never sends it. So the waiter reads after this time for each entry that is ahead, on average: the next in line finds a
 * free permit within a second, and N waiters send 2.5 x ln(N) reads per second together.
 */
const UNANNOUNCED_MS = 400;

/** What is known of the predecessor: see the table at the top. */
type State = "unverified" | "verified" | "ended" | "over";

/** A read of the queue. Its answer decides unless another read or another predecessor has replaced it. */
interface Read {
  /** Sent when the watches were there: if it shows no later revision, etcd serves them at once. */
  readonly created: boolean;
  /** Sent when the entry before the predecessor had ended: it may show that the predecessor holds, so the end of that one lets it go on. */
  readonly early: boolean;
  /** Of all entries: the last answer contained too little to decide. */
  readonly all: boolean;
}

/** The wait of one entry, in etcd, for its turn. It reports one outcome. */
export class PredecessorWait implements TurnListener, Timed {
  dueAt = 0;
  #predecessor: Predecessor | undefined;
  readonly #watches: TurnWatches;
  /** How many must end before our turn, by the last read. */
  ahead: number;
  /** A crowd was ahead of our join. */
  readonly #fromFar: boolean;
  #state: State = "unverified";
  /** The revision of the last answer that showed our key and the predecessor; the join's at first. */
  #seenAt: bigint;
  /** The latest revision of which an event, or our join, has told. */
  #atLeast: bigint;
  /** The predecessor is known to hold from this revision on. If another watch reports an earlier end later, a waiter ended. */
  #holdsSince: bigint | undefined;
  #reading: Read | undefined;

  constructor(
    private readonly entry: JoinedEntry,
    private readonly outcome: WaitOutcome,
    from: Behind | undefined,
  ) {
    this.#watches = new TurnWatches(entry, this);
    this.#atLeast = this.#seenAt = entry.revision;
    this.ahead = from?.ahead ?? 0;
    this.#fromFar = this.ahead >= FAR;
    if (!from) {
      this.read();
      return;
    }
    // A replay from the join on misses no event, so it needs no read.
    this.#follow(from.predecessor, { startRevision: this.#fromFar ? entry.revision + 1n : 0n });
    // It ends about now. A read that goes with the watch shows that, or verifies the watch: one that follows it takes a round trip more.
    if (from.predecessor.mayBeKept) this.read({ early: true });
    else this.created();
  }

  /** The end of our own key would be reported. Far from its turn, it isn't: the session's audit of its places finds it. */
  get seesOwnEnd(): boolean {
    return this.#watches.seesOwnEnd;
  }

  /** Our own end comes first: the same revision may have ended the predecessor. */
  events(events: readonly WatchEvent[]): void {
    const own = events.find(({ kv }) => this.#isOwnEnd(kv));
    if (own) return this.#end(() => this.outcome.keyGone(own.kv.modRevision));
    // By the last read's description of the predecessor, which may stand for several entries.
    const ended = events.findLast(({ kv }) => this.#predecessor?.endedBy(kv));
    if (ended) this.#predecessorEnded(ended);
  }

  #isOwnEnd({ key, modRevision }: KeyValue): boolean {
    return modRevision > this.entry.revision && key.toString() === this.entry.key;
  }

  /** Carries over what is watched, and nothing of what the old stream reported. */
  interrupted(): void {
    if (this.#state === "over") return;
    const { decides, watchesBefore } = this.#watches;
    this.#watches.cancel();
    const predecessor = this.#predecessor;
    if (!predecessor) return;
    const before = watchesBefore ? predecessor.before : undefined;
    this.#follow(predecessor, { decides: decides || this.#mayDecide(predecessor), before });
    this.created();
  }

  refused(error: Error): void {
    this.#end(() => this.outcome.waitFailed(error));
  }

  /** Stops waiting; the outcome is no longer reported. */
  stop(): void {
    this.#state = "over";
    this.#reading = undefined;
    this.#timers.delete(this);
    this.#watches.cancel();
  }

  /** Its end, or its end after that of the entry before it, gives us our turn. A call that may be overtaken has to hear of that at once. */
  #mayDecide({ holder, before }: Predecessor): boolean {
    return holder || before?.holder === true || this.entry.supersedes;
  }

  #follow(predecessor: Predecessor, how: Partial<Following> = {}): void {
    this.#reading = undefined;
    this.#timers.delete(this);
    this.#predecessor = predecessor;
    this.#holdsSince = predecessor.holder ? 0n : undefined;
    this.#watches.follow(predecessor, {
      decides: this.#mayDecide(predecessor),
      before: predecessor.before,
      ...how,
    });
    if (!this.seesOwnEnd) this.entry.lease.locks?.placeAudit.begin();
    // A reused watch may have received events while it was idle: then a read decides.
    const { lastEvent } = this.#watches;
    this.#state = lastEvent > this.#seenAt ? "ended" : "unverified";
    if (this.#state === "ended") this.#atLeast = max(this.#atLeast, lastEvent);
  }

  /** No entry can be added between the two: if `before` was the holder, the predecessor holds next. */
  beforeEnded(before: Predecessor, endedAt: bigint): void {
    const predecessor = this.#predecessor;
    if (this.#state === "over" || this.#state === "ended" || !predecessor) return;
    if (before.holder) {
      this.#holdsSince = endedAt;
    } else if (!this.#watches.creating) {
      // The answer most often shows a state that is not older than the new watch, and so verifies it.
      this.#follow(predecessor, { decides: true, before: undefined });
      this.read({ early: true });
    }
  }

  created(): void {
    const { createdAt, sinceJoin } = this.#watches;
    if (this.#state === "over" || createdAt === undefined || this.#reading?.early) return;
    if (this.#state === "ended") return this.read();
    if (this.#seenAt > this.entry.revision && this.#seenAt >= createdAt) return this.#verify(createdAt);
    if (sinceJoin) return this.#doubtWatches();
    if (this.ahead <= NEAR) return this.read();
    // In a crowd, the event usually comes before the read is needed.
    this.#timers.set(this, this.#rereadInMs ?? RESYNC_MS);
  }

  #predecessorEnded({ kv, kind }: WatchEvent): void {
    if (this.#state === "over") return;
    this.#atLeast = max(this.#atLeast, kv.modRevision);
    if (kind === "PUT") return this.#predecessorPut(kv);
    const held = this.#holdsSince !== undefined && kv.modRevision >= this.#holdsSince;
    if (this.#state === "verified" && held) return this.#grant();
    this.#state = "ended";
    this.#atLeast = max(this.#atLeast, this.#holdsSince ?? 0n);
    // An early read under way may show that the predecessor held. Otherwise a read follows when the watches are created.
    if (!this.#watches.creating && !this.#reading?.early) this.read();
  }

  /** It was granted; or it is a writer that has become a reader. No watch tells of that together with the end of our own key: a read decides. */
  #predecessorPut({ createRevision }: KeyValue): void {
    const { afterPut, revision } = this.#predecessor ?? {};
    if (afterPut) {
      this.#follow(afterPut);
      this.created();
    } else if (createRevision === revision) this.read();
  }

  #grant(): void {
    this.#watches.keepForReuse(this.#fromFar);
    this.#end(() => this.outcome.turnGranted());
  }

  #end(report: () => void): void {
    if (this.#state === "over") return;
    this.stop();
    report();
  }

  due(): void {
    this.read();
  }

  read({ early = false, all = this.#reading?.all ?? false } = {}): void {
    this.#timers.delete(this);
    if (this.#state === "ended") this.#state = "unverified";
    const read: Read = { created: !this.#watches.creating, early, all };
    this.#reading = read;
    void this.#ranges(read).then(
      (answer) => {
        if (!answer) return;
        if (this.#state === "over") return this.#answeredLate(answer);
        if (this.#reading === read) {
          this.#reading = undefined;
          this.#decide(answer, read);
        } else if (this.entry.mode.positionOf(this.entry, answer.ranges) === "gone") {
          // The answer to the later read may show an older state.
          this.#end(() => this.outcome.keyGone());
        }
      },
      (error: unknown) => {
        if (this.#reading === read) this.#end(() => this.outcome.waitFailed(error as Error));
      },
    );
  }

  /** The wait is over, but a key that stays with the session is taken again, if it is there. Once it has left, it may be that of another entry. */
  #answeredLate({ ranges, header }: RangesAnswer): void {
    const { entry } = this;
    if (entry.sticky && !entry.leaving && entry.mode.positionOf(entry, ranges) === "gone")
      entry.lease.services.watches.shownGone(entry.key, header.revision);
  }

  /** Serializable on the watches' own member if that is recent enough, otherwise linearizable, unless the read was replaced. */
  async #ranges(read: Read): Promise<RangesAnswer | undefined> {
    const { lease } = this.entry;
    const { watches, client } = lease.services;
    const ranges = this.entry.mode.reads(this.entry, read.all);
    const atLeast = max(this.#atLeast, ...this.#watches.createdSoFar);
    const near = await watches.read(ranges, Math.min(lease.ttlMs / 4, client.requestTimeoutMs));
    if (near && near.header.revision >= atLeast) return near;
    return this.#reading === read ? client.ranges(ranges, lease.policy("read the queue")) : undefined;
  }

  #decide({ ranges, header }: RangesAnswer, read: Read): void {
    const position = this.entry.mode.positionOf(this.entry, ranges);
    if (position === "unclear") return this.read({ all: true });
    if (position === "gone") return this.#end(() => this.outcome.keyGone());
    const mismatch = this.entry.mismatchIn(ranges, position === "first");
    if (mismatch) return this.#end(() => this.outcome.waitFailed(mismatch));
    if (position === "first") return this.#grant();
    this.#seenAt = header.revision;
    this.#behind(position, read);
  }

  #behind({ predecessor, ahead }: Behind, read: Read): void {
    this.ahead = ahead;
    const follows = this.#watches.follows(predecessor, this.#predecessor);
    // Far from its turn, a range would report the ends of many others.
    const decides = this.#mayDecide(predecessor) || (this.#watches.decides && ahead <= NEAR);
    if (!follows || decides !== this.#watches.decides) {
      this.#follow(predecessor);
      return this.created();
    }
    // Still the same predecessor, but it may be the holder by now.
    this.#predecessor = predecessor;
    if (predecessor.holder) this.#holdsSince = 0n;
    const { createdAt } = this.#watches;
    if (createdAt === undefined) return;
    if (this.#seenAt < createdAt) this.read();
    else this.#verify(createdAt, read);
  }

  /** The last answer has shown the predecessor and our key, and the watches report all that happened after it. */
  #verify(createdAt: bigint, by?: Read): void {
    // It has ended since the read was sent.
    if (this.#state === "ended") return this.#predecessor?.holder ? this.#grant() : this.read();
    this.#state = "verified";
    this.#watches.followBefore(this.#predecessor?.before);
    if (this.#seenAt === createdAt && by?.created) return this.#trustWatches();
    this.#doubtWatches();
  }

  /** A write at the moment of a watch's creation may have put it among the watches that etcd serves late. */
  #doubtWatches(): void {
    const rereadInMs = this.#rereadInMs;
    if (rereadInMs === undefined) return this.#trustWatches();
    this.#timers.set(this, rereadInMs);
  }

  /** The time until the next read that is due while the watches are doubted, and not before our turn can come. */
  get #rereadInMs(): number | undefined {
    const age = this.#timers.now() - this.#watches.doubtedSinceMs;
    const turnAt = TURN_MS * (this.ahead - NEAR);
    const rereadAt = REREADS_AT_MS.find((ms) => ms > age && ms >= turnAt);
    return rereadAt === undefined ? undefined : rereadAt - age;
  }

  /** From here on, the watches report the end; a slow read bounds the damage of an event that never comes. */
  #trustWatches(): void {
    this.#state = "verified";
    const unannouncedMs = this.#predecessor?.afterPut ? UNANNOUNCED_MS * this.ahead : Infinity;
    // Waits that began together do not read together.
    const spread = 0.75 + this.entry.lease.services.clock.random() / 2;
    if (unannouncedMs < SLOW_READ_MS) this.#timers.set(this, unannouncedMs * spread);
    else this.#timers.set(this, SLOW_READ_MS * spread, SLOW_GRAIN_MS);
  }

  get #timers(): Timers {
    return this.entry.lease.services.timers;
  }
}
