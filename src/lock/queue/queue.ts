// One session's side of the queue of one name. Here the session has lease 7b20, and four of its callers want jobs/nightly:
//
//   etcd: keys by create revision                    this process: a Waiter for each caller, at the stage
//   jobs/nightly/6a1f     41   another's, holds
//   jobs/nightly/7b20     44   waits for 41          "turn"    PredecessorWait watches 6a1f and its own key
//   jobs/nightly/7b20-2   47   waits for 44          "local"   LocalSuccessors: the end of our own entry wakes it, no watch
//                              the put is sent       "join"    Joiner: one join of a name is under way at a time
//                              no key yet            "line"    LocalLine: in the order of the calls
//
// A caller goes from "line" to "join", and from there to "local", to "turn", or to its grant at once. Every entry holds by
// `Queue.grant` and nothing else, also those of `tryLock`, `lockAll` and `once`. The other ends: its key was deleted, so it joins
// again before later callers (`joinAnew`); etcd rejects something (`failed`); it gives up (`abandoned`); the session ends
// (`Waiter.sessionEnded`).
// Whatever entry is not wanted then is deleted by `leave`, which etcd must confirm, and whose answer wakes the next of ours. The entry of
// a sticky lock may stay after a release, for the next of ours in line: see `Tenures`.
import { QueueFullError, SupersededError } from "../../errors.js";
import type { KeyValue, Txn, TxnAnswer } from "../../etcd/port.js";
import type { CallPolicy } from "../../etcd/retry.js";
import { pathOf, sessionRange } from "../../keys.js";
import type { CheckedLock } from "../../base/options/lock.js";
import type { KeptSnapshot } from "../../base/telemetry/inspect.js";
import { deleteAbout, deleteDelayKey } from "../session/cleanup.js";
import { KeyWatchSchedule, PlaceAudit } from "../session/key-audit.js";
import type { Lease } from "../session/lease.js";
import { pause } from "../../base/util/clock.js";
import { inOwnContext } from "../../base/util/own-context.js";
import { type JoinedEntry, kindOf, type QueueEntry } from "./entry.js";
import { type Beside, type Joined, Joiner, type JoinWanted } from "./join.js";
import {
  type Behind,
  exclusive,
  GRANTED,
  type Granted,
  GRANTED_UNSEEN,
  type LockMode,
  UNKNOWN,
  type Unknown,
} from "./lock-mode.js";
import { PredecessorWait } from "./predecessor-wait.js";
import type { PriorityLine } from "./priority-waiter.js";
import { KeyNumbers, SessionEntries } from "./session-entries.js";
import { askFor, mayBeKept, Stickiness, Tenures } from "./tenure.js";
import type { Superseding } from "./superseding.js";
import { announceGrantTxn, downgradeTxn, leaveTxn } from "./txns.js";
import { LocalLine, LocalSuccessors, Waiter, type WaiterOptions } from "./waiter.js";

/** More waiting entries of one session under one name only slow down etcd's sorted ranges: the other callers wait here. */
const MAX_WAITING = 100;

/** Requests that leave so long apart are executed in their order, nearly always. */
const ORDERED_MS = 2;

/** The entry to put; by default that of a mutex. */
export interface JoinOptions extends WaiterOptions {
  readonly mode?: LockMode;
}

/** Extends and sends the transaction that deletes an entry. `succeeded` of its answer says whether this call has deleted the entry. */
export type LeaveBy = (leave: Txn, policy: CallPolicy) => Promise<TxnAnswer>;

/** One session's side of the queue of one name: joins it, waits for its turn and leaves it. */
export class Queue {
  readonly own: SessionEntries;
  readonly lease: Lease;
  /** The name as its keys begin. */
  readonly path: string;
  readonly #line = new LocalLine();
  readonly tenures = new Tenures(this, this.#line);
  readonly #followers = new LocalSuccessors();
  #leaving: Map<QueueEntry, Promise<unknown>> | undefined;
  /** Calls that are not served in the order of their keys. */
  prioritized: PriorityLine | undefined;
  #joining = false;
  /** The last caller with `supersede`. */
  #newest = 0;
  #trying = 0;
  #waiting = 0;

  constructor(
    private readonly owner: LockTable,
    readonly name: string,
  ) {
    this.lease = owner.lease;
    this.path = pathOf(owner.lease.services, name);
    this.own = new SessionEntries(owner.lease, name, owner.keyNumbers);
  }

  /** Adds a caller at the end of the local line; it waits for its turn. */
  join(options: JoinOptions = {}): Waiter {
    const waiter = new Waiter(this, options.mode ?? exclusive, options);
    if (options.superseding && !this.#isNewest(options.superseding)) {
      this.#refuse(waiter, new SupersededError(this.name, this.lease.owner));
      return waiter;
    }
    this.lease.waits.add(waiter);
    this.#line.add(waiter);
    this.tenures.endUnlessOf(waiter);
    if (!this.#refuseFull(waiter, this.#waitingHere)) this.#joinNext(waiter);
    return waiter;
  }

  /** Callers of this session that wait, or will, before the last in line: not those whose join may find a free lock. */
  get #waitingHere(): number {
    if (this.#waiting >= MAX_WAITING || this.tenures.areAwaited) return this.#waiting + this.#line.size - 1;
    return this.#waiting - (this.#joining ? 1 : 0);
  }

  /** An entry that holds at once, or undefined if it would have to wait, or `beside` did not hold. `limits`: of the attempts. */
  async tryJoin(
    limits: JoinWanted["limits"],
    call: JoinOptions = {},
    beside?: Beside,
  ): Promise<JoinedEntry | undefined> {
    const { mode = exclusive, value, kind = kindOf(mode), options } = call;
    const { clock } = this.lease.services;
    const endMs = clock.monotonic() + (limits.giveUpMs ?? 0);
    this.#trying++;
    try {
      const kept = !beside && options?.sticky ? this.takeKept(mode) : undefined;
      if (kept) return kept;
      // That the lock is taken may be enough to `beside`: a key that nobody has must not be the reason.
      if (beside) await this.tenures.keptHaveLeft();
      else this.tenures.endKept();
      // Entries of ours whose deletion is under way would make the try fail. To `beside`, that answer may be enough.
      if (this.#leaving && !beside) await this.left();
      this.lease.assertOpen();
      const sticky =
        options?.sticky === true && !beside && this.owner.stickiness.begins(this.name, !!options.local);
      let inTheWay: KeyValue | undefined;
      const onTaken = (oldest: readonly KeyValue[]): void =>
        void (inTheWay = oldest.findLast((kv) => kv.leaseId !== this.lease.leaseId && mayBeKept(kv)));
      const wanted = { names: [this.name], mode, kind, value, limits, beside, sticky };
      for (;;) {
        const trying = this.owner.joiner.tryJoin(this, beside ? wanted : { ...wanted, onTaken });
        const joined = await this.lease.inFlight.track(trying);
        if (joined && this.lease.over) throw this.lease.signal.reason as Error;
        if (!joined) {
          // Another caller of ours has asked.
          if (!inTheWay || this.#joining || this.#waiting > 0) return undefined;
          return await askFor(this, call, { key: inTheWay, leftMs: endMs - clock.monotonic() });
        }
        if (this.grant(joined.entry, joined.result, options)) return joined.entry;
        this.#placeGone(joined.entry);
      }
    } finally {
      this.#trying--;
      this.forgetIfIdle();
    }
  }

  /**
   * Deletes an entry; repeated until etcd has confirmed it. Rejects only with the session's end. false: the key no longer
   * existed, or was not this entry's. That alone proves no loss: the same request may have deleted the key before, if a
   * proxy sent it twice. After an unanswered attempt, which may have deleted it too, the result is true.
   * `by` decides that itself.
   */
  leave(entry: QueueEntry, by?: LeaveBy): Promise<boolean> {
    entry.leaves();
    this.lease.inFlight.begin();
    const leaving = this.#leave(entry, by);
    (this.#leaving ??= new Map()).set(entry, leaving);
    this.tenures.forget(entry);
    return leaving;
  }

  /** The key of a held entry is gone. Whether its delay key goes, too, its hold finds out: see `deletedAlone`. */
  lost(entry: JoinedEntry): void {
    if (entry.delayKey !== undefined) this.own.doubt(entry);
    this.#removed(entry);
  }

  /** A client has deleted the key of an entry that has not held, or whose lease lives. */
  deletedAlone(entry: QueueEntry): void {
    deleteDelayKey(this.lease, entry);
    deleteAbout(this.lease, entry);
  }

  /** `own`: of the call that runs this. The others must not join in its async context. */
  #joinNext(own?: Waiter): void {
    // A key that is given back in it lets the next one join.
    if (this.tenures.serveLine() || this.#joining || this.#waiting >= MAX_WAITING) return;
    if (this.tenures.lineWaitsForPass) return;
    const waiter = this.#line.next();
    if (!waiter) return this.forgetIfIdle();
    this.#joining = true;
    this.#waiting++;
    waiter.stage = { at: "join" };
    this.lease.inFlight.begin();
    void (waiter === own ? this.#join(waiter) : inOwnContext(() => this.#join(waiter)));
  }

  /** The key that the session keeps begins to hold again, without a request. `first`: only if that one is first in line. */
  takeKept(mode: LockMode = exclusive, first?: Waiter): JoinedEntry | undefined {
    const entry = this.tenures.take(mode, first);
    if (!entry || this.grant(entry, GRANTED)) return entry;
    this.tenures.of(entry)?.end();
    return void this.#placeGone(entry);
  }

  /** The hold of an entry was released. False, and nothing is done, if the entry must leave. */
  keep(entry: JoinedEntry): boolean {
    // Whoever of ours waits in the queue, also a `lockAll`, waits for the end of the entry.
    const isAwaited = this.#joining || this.#waiting > 0 || this.own.joined.some(({ held }) => !held);
    if (isAwaited || entry.knownGone || !this.lease.open) return false;
    if (!this.tenures.released(entry)) return false;
    entry.unused();
    this.#joinNext();
    return true;
  }

  /** A key that nobody has leaves. */
  giveBack(entry: JoinedEntry): void {
    if (this.lease.signal.aborted) this.#removed(entry);
    else this.leaveInBackground(entry);
  }

  /** Callers that have waited in this process may take a key, or join the queue. */
  lineMayGoOn(): void {
    // The end of the session ends the waits.
    if (!this.lease.signal.aborted) this.#joinNext();
  }

  /** Another session has asked for a key of ours. */
  contended(): void {
    this.owner.stickiness.contended(this.name);
  }

  /** Resolves when the deletions that are under way are answered. Never rejects. */
  left(): Promise<unknown> {
    return Promise.allSettled([...(this.#leaving?.values() ?? [])]);
  }

  /** Entries whose put may be under way, or executed without an answer. */
  get unconfirmed(): readonly QueueEntry[] {
    const leaving = [...(this.#leaving?.keys() ?? [])];
    return [...this.own.joining, ...leaving.filter(({ revision }) => revision === undefined)];
  }

  /** Each promise costs the path to the lock: `then` is one, an async function would be two. */
  #join(waiter: Waiter): Promise<void> {
    const { mode, kind, options } = waiter;
    const limits = { again: () => !waiter.gaveUp };
    const { value, reason, about, maxWaiting, superseding } = options;
    const sticky = waiter.sticky && this.owner.stickiness.begins(this.name, waiter.local);
    const said = { value, reason, about, sticky };
    const wanted = { names: [this.name], mode, kind, ...said, limits, maxWaiting, superseding };
    const isBounded = maxWaiting !== undefined;
    const follows = this.#leaving?.size && (isBounded || (!mode.shared && this.own.staying.length === 0));
    const behind = isBounded ? this.#line.bounded : undefined;
    const joining = follows ? this.#joinAfterLeaves(wanted) : this.owner.joiner.join(this, wanted);
    return joining.then(
      ([joined]) => this.#joinEnded(waiter, joined),
      (error: unknown) => {
        if (behind && error instanceof QueueFullError) this.#refuseLine(behind, error.waiting);
        this.#joinEnded(waiter, undefined, error as Error);
      },
    );
  }

  /** The queue was full for these, too: they had called before etcd was asked. */
  #refuseLine(callers: readonly Waiter[], waiting: number): void {
    for (const each of callers) this.#refuseFull(each, waiting);
  }

  /** A caller in line, if so many are too many for it. True: it is refused. Once it has begun to join, etcd's count decides. */
  #refuseFull(waiter: Waiter, waiting: number): boolean {
    const { maxWaiting = Infinity } = waiter.options;
    if (waiter.stage.at !== "line" || waiting < maxWaiting) return false;
    this.#refuse(waiter, new QueueFullError(this.name, maxWaiting, waiting));
    return true;
  }

  /** A caller in line. */
  #refuse(waiter: Waiter, error: Error): void {
    this.#line.remove(waiter);
    this.lease.waits.delete(waiter);
    waiter.fail(error);
    waiter.options.onJoined?.();
  }

  /** Ends the older callers in line. The keys of those that have joined are deleted by its own join. False: it has lost its session, and a newer one has come. */
  #isNewest({ order }: Superseding): boolean {
    if (order < this.#newest) return false;
    this.#newest = order;
    const { owner } = this.lease;
    for (const older of this.#line.superseding) this.#refuse(older, new SupersededError(this.name, owner));
    return true;
  }

  /**
   * A join finds the lock free only if etcd executes the release before it. If the two arrive together, etcd executes the later one
   * first in 85 of 100 cases, as each has a goroutine of its own; if they arrive 2 ms apart, in one of 100 (measured, etcd 3.4).
   */
  async #joinAfterLeaves(wanted: JoinWanted): Promise<readonly Joined[]> {
    const left = this.left();
    // A bounded join must not count them.
    if (wanted.maxWaiting === undefined)
      await Promise.race([left, pause(this.lease.services.clock, ORDERED_MS)]);
    else await left;
    this.lease.assertOpen();
    return this.owner.joiner.join(this, wanted);
  }

  #joinEnded(waiter: Waiter, joined: Joined | undefined, error?: Error): void {
    try {
      if (joined) this.#arrived(waiter, joined);
      else this.failed(waiter, undefined, error as Error);
    } finally {
      this.lease.inFlight.end();
      this.#joining = false;
    }
    waiter.options.onJoined?.();
    this.#joinNext();
  }

  #arrived(waiter: Waiter, { entry, result, mismatch }: Joined): void {
    if (result.state !== "unknown") waiter.options.onAhead?.(result.state === "waiting" ? result.ahead : 0);
    waiter.options.superseding?.joined(entry);
    // `over` reads the clock and ends the wait: the process may have been suspended before this answer was read.
    if (this.lease.over || waiter.gaveUp) {
      this.#waiting--;
      return this.leaveInBackground(entry);
    }
    if (mismatch) this.failed(waiter, entry, mismatch);
    else if (result.state === "granted") this.turnCame(waiter, entry, result);
    else this.#wait(waiter, entry, result);
  }

  #wait(waiter: Waiter, entry: JoinedEntry, result: Behind | Unknown): void {
    // A permit that stays, and could not be taken yet, may be the one that it waits for.
    this.tenures.endKept();
    const below = this.own.followedBy(entry);
    const mismatch = below && this.own.mismatch(waiter.kind, [below]);
    if (mismatch) return this.failed(waiter, entry, mismatch);
    // One that may be overtaken watches its own key.
    if (below && !entry.supersedes) {
      waiter.stage = { at: "local", entry, below };
      this.#followers.add(waiter, entry, below);
      this.owner.placeAudit.begin();
      return;
    }
    const from = result.state === "waiting" ? result : undefined;
    const wait = inOwnContext(() => new PredecessorWait(entry, waiter, from));
    waiter.stage = { at: "turn", entry, wait };
  }

  /** The key of a waiting entry was deleted, at this revision if that is known. */
  joinAnew(waiter: Waiter, entry: JoinedEntry, at?: bigint): void {
    waiter.options.superseding?.lostKey(at);
    this.#stopWaiting(waiter);
    this.#waiting--;
    this.#line.addAgain(waiter);
    this.#placeGone(entry);
  }

  /** The key of an entry that has not held was deleted. */
  #placeGone(entry: JoinedEntry): void {
    this.deletedAlone(entry);
    this.#removed(entry);
  }

  /** `entry`: it has joined, and must leave. */
  failed(waiter: Waiter, entry: JoinedEntry | undefined, error: Error): void {
    this.#waiting--;
    this.lease.waits.delete(waiter);
    waiter.fail(error);
    if (entry) this.leaveInBackground(entry);
  }

  /** The turn of a waiter has come. */
  turnCame(waiter: Waiter, entry: JoinedEntry, result = GRANTED_UNSEEN): void {
    if (!this.grant(entry, result, waiter.options.options)) return this.joinAnew(waiter, entry);
    this.#waiting--;
    this.lease.waits.delete(waiter);
    waiter.succeed(entry);
    this.#joinNext();
  }

  /**
   * The only place where an entry begins to hold; false, and nothing is done, if its key is known to be gone. Re-evaluates local
   * waiters blocked only until then: each holds too, waits on its own or follows another.
   */
  grant(entry: JoinedEntry, { visible }: Granted, options?: CheckedLock): boolean {
    if (entry.knownGone) return false;
    entry.beginsToHold();
    if (entry.sticky && entry.turn === 1 && (options?.local || !this.owner.stickiness.isPaused(this.name)))
      this.tenures.begin(entry, options?.local);
    if (entry.mode.announcesGrant && !visible) this.#announceGrant(entry);
    let together = false;
    for (const [waiter, next] of this.#followers.of(entry)) {
      if (this.own.followedBy(next) === entry) continue;
      together ||= next.mode.grantedTogether;
      if (next.mode.grantedTogether) continue;
      this.#followers.remove(waiter, entry);
      this.#wait(waiter, next, UNKNOWN);
    }
    if (together) inOwnContext(() => void this.#grantTogether(entry));
    return true;
  }

  /**
   * Readers that waited for the same entry hold together, but what ended that entry may have deleted their keys, too: one read
   * shows which are there. A reader whose key is missing waits on its own, and finds out.
   */
  async #grantTogether(entry: JoinedEntry): Promise<void> {
    const { client } = this.lease.services;
    const ours = [sessionRange(entry.directory, this.lease.leaseId)];
    // Rejects when the session ends, which ends the waits, too, or when etcd refuses the read, as it then refuses theirs.
    const answer = await client.ranges(ours, this.lease.policy("read the own keys")).catch(() => undefined);
    const kvs = answer?.ranges.flatMap((range) => range.kvs) ?? [];
    if (answer) this.own.shownBy(ours, answer.ranges, answer.header.revision);
    for (const [waiter, next] of this.#followers.of(entry)) {
      if (this.own.followedBy(next) === entry) continue;
      this.#followers.remove(waiter, entry);
      if (kvs.some((kv) => next.is(kv))) this.turnCame(waiter, next, GRANTED);
      else this.#wait(waiter, next, UNKNOWN);
    }
  }

  /** Waiters behind an entry that waited itself can't see that it holds: a put of its key tells them, or a read if etcd rejects it. */
  #announceGrant(entry: JoinedEntry): void {
    const { lease } = this;
    const policy = { again: () => !entry.leaving, ...lease.policy("announce a grant") };
    const answered = ({ succeeded, header }: TxnAnswer): void => {
      const isGone = !succeeded && !entry.leaving && this.own.joined.includes(entry);
      if (isGone) lease.services.watches.shownGone(entry.key, header.revision);
    };
    inOwnContext(() => lease.services.client.txn(announceGrantTxn(entry), policy)).then(
      answered,
      () => undefined,
    );
  }

  /**
   * A writer that holds becomes a reader, unless its key is gone, which resolves with false. Other sessions let in the readers behind it
   * when they see the put, and this one does it here. Repeated until it is answered, or until the entry leaves.
   */
  async downgrade(entry: JoinedEntry): Promise<boolean> {
    entry.downgrades();
    // Its key leaves with the release: no writer may take it.
    this.tenures.of(entry)?.end();
    const { lease } = this;
    const policy = {
      ...lease.policy(`downgrade the lock "${this.name}" to a reader`),
      again: () => !entry.leaving,
    };
    const next = this.#followers.of(entry).find(([, each]) => each.mode.shared)?.[1];
    const reads = next?.mode.reads(next, false) ?? [];
    const send = (alone: boolean): Promise<TxnAnswer> =>
      lease.inFlight.track(lease.services.client.txn(downgradeTxn(entry, reads, alone), policy));
    let answer = await send(false);
    while (!answer.succeeded) {
      const found = answer.ranges[0]?.kvs.find((kv) => entry.is(kv));
      if (!found) return false;
      // An attempt before, whose answer was lost.
      if (found.value === entry.downgradedValue) break;
      // Another client has put it meanwhile, or the delay key is gone.
      const alone = found.modRevision === entry.modified;
      entry.putAgain(found.modRevision);
      answer = await send(alone);
    }
    const found = answer.ranges.slice(-reads.length).filter((range) => range !== undefined);
    this.#letIn(entry, next && next.mode.positionOf(next, found) === "first" ? next : undefined);
    return true;
  }

  /** Callers of ours that waited for nobody else but a writer which reads now. `first` holds with it, and those that follow `first` hold together. */
  #letIn(entry: JoinedEntry, first: JoinedEntry | undefined): void {
    let next: Waiter | undefined;
    for (const [waiter, behind] of this.#followers.of(entry)) {
      if (this.own.followedBy(behind) === entry) continue;
      this.#followers.remove(waiter, entry);
      if (behind === first) next = waiter;
      else this.#wait(waiter, behind, UNKNOWN);
    }
    if (next && first) this.turnCame(next, first, GRANTED);
  }

  /** The caller of `waiter` no longer waits. */
  abandoned(waiter: Waiter): void {
    const { stage } = waiter;
    this.lease.waits.delete(waiter);
    if (stage.at === "line") this.#line.remove(waiter);
    // Under "join", wait for the join's answer: a delete sent now could be executed before the join.
    if (stage.at !== "local" && stage.at !== "turn") return;
    this.#stopWaiting(waiter);
    waiter.stage = { at: "end" };
    this.#waiting--;
    this.leaveInBackground(stage.entry);
  }

  #stopWaiting(waiter: Waiter): void {
    const { stage } = waiter;
    if (stage.at === "turn") stage.wait.stop();
    if (stage.at === "local") this.#followers.remove(waiter, stage.below);
  }

  /** Like `leave()`, fire-and-forget. */
  leaveInBackground(entry: QueueEntry, by?: LeaveBy): void {
    // Rejects only when the session is over, which ends the key, too.
    inOwnContext(() => this.leave(entry, by)).catch(() => undefined);
    this.#joinNext();
  }

  async #leave(entry: QueueEntry, by: LeaveBy | undefined): Promise<boolean> {
    // Before the delete: a late put may arrive right after it.
    if (entry.inDoubt) this.own.doubt(entry);
    const follower = this.#followers.of(entry)[0]?.[1];
    const ranges = follower?.mode.readsForFirst(follower) ?? [];
    let doubted = false;
    const onUnanswered = (): void => void (doubted = true);
    const { services } = this.lease;
    const what = `leave the queue of "${this.name}"`;
    const policy = { onUnanswered, untilConfirmed: true, ...this.lease.policy(what) };
    try {
      const txn = leaveTxn(entry, ranges);
      const answer = await (by ? by(txn, policy) : services.client.txn(txn, policy));
      // The delay key of an entry that has held stays, unless its hold finds that the lease lives.
      if (!answer.succeeded && entry.held && entry.delayKey !== undefined) this.own.doubt(entry);
      else if (!answer.succeeded) this.deletedAlone(entry);
      const found = answer.ranges.slice(-ranges.length).filter((range) => range !== undefined);
      this.own.shownBy(ranges, found, answer.header.revision);
      this.#removed(entry, (next) => next.mode === follower?.mode && next.mode.isFirst(next, found));
      return answer.succeeded || (doubted && !by);
    } finally {
      this.lease.inFlight.end();
      this.#leaving?.delete(entry);
      this.forgetIfIdle();
    }
  }

  /** Each end of an entry wakes the local waiters behind it once; `isFirst`: our deletion has shown this one to be first. */
  #removed(entry: QueueEntry, isFirst?: (next: JoinedEntry) => boolean): void {
    this.own.remove(entry);
    this.own.release(entry);
    for (const [waiter, next] of this.#followers.of(entry)) {
      this.#followers.remove(waiter, entry);
      if (isFirst?.(next)) this.turnCame(waiter, next);
      else this.#wait(waiter, next, UNKNOWN);
    }
    this.tenures.forget(entry);
    this.#joinNext();
  }

  forgetIfIdle(): void {
    const busy = this.#joining || this.#trying > 0 || this.#waiting > 0 || this.#leaving?.size;
    if (!busy && this.prioritized?.isEmpty !== false && this.#line.empty && this.own.count === 0)
      this.owner.forget(this.name);
  }
}

/** What one session keeps of its locks: a queue for each name in use, the numbers of its keys, the watches of held keys. */
export class LockTable {
  readonly keyNumbers: KeyNumbers;
  readonly keyWatches: KeyWatchSchedule;
  readonly placeAudit: PlaceAudit;
  readonly joiner = new Joiner(this);
  readonly stickiness: Stickiness;
  readonly #queues = new Map<string, Queue>();

  private constructor(readonly lease: Lease) {
    this.keyNumbers = new KeyNumbers(lease);
    this.keyWatches = new KeyWatchSchedule(lease, lease.sweeper.audit);
    this.placeAudit = new PlaceAudit(lease, lease.sweeper.audit);
    this.stickiness = new Stickiness(lease.services.timers);
    if (!lease.signal.aborted) lease.services.aborts.add(lease.signal, () => this.endTenures());
  }

  static of(lease: Lease): LockTable {
    return (lease.locks ??= new LockTable(lease));
  }

  /** Those in all queues, as far as etcd has confirmed them. */
  entries(): readonly JoinedEntry[] {
    return [...this.#queues.values()].flatMap(({ own }) => own.joined);
  }

  /** Those in all queues that etcd has not confirmed, and may have. */
  unconfirmed(): readonly QueueEntry[] {
    return [...this.#queues.values()].flatMap(({ unconfirmed }) => unconfirmed);
  }

  /** The keys that no caller has, for a snapshot. */
  kept(): readonly KeptSnapshot[] {
    const { leaseId } = this.lease;
    const kept = [...this.#queues.values()].flatMap(({ tenures }) => tenures.kept);
    return kept.map(({ entry: { kind, name, key, revision }, idleMs }) => ({
      ...{ kind, name, leaseId, key, revision, idleMs },
    }));
  }

  /** The keys that no caller has leave now, and those of holds with their release. */
  endTenures(): void {
    for (const queue of [...this.#queues.values()]) queue.tenures.end();
  }

  queue(name: string): Queue {
    const known = this.#queues.get(name);
    if (known) return known;
    const queue = new Queue(this, name);
    this.#queues.set(name, queue);
    return queue;
  }

  /** The queue, if it is in use. */
  known(name: string): Queue | undefined {
    return this.#queues.get(name);
  }

  /** Names come and go (one per user, for example): only queues in use are kept. */
  forget(name: string): void {
    this.#queues.delete(name);
  }
}
