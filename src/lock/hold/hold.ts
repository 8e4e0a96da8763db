import { LockLostError, LockReleasedError, type Loss, SessionLostError } from "../../errors.js";
import type { Contender } from "../../contender.js";
import { GUARDS } from "../../fence.js";
import { Demand, type WantedListener } from "../queue/demand.js";
import type { JoinedEntry } from "../queue/entry.js";
import type { LeaveBy, Queue } from "../queue/queue.js";
import type { Dependent, SessionEnd } from "../session/lease.js";
import { inOwnContext, queueMicrotask, tellOutside } from "../../base/util/own-context.js";
import { settleWithin } from "../../base/util/settle.js";
import type { HoldFacts, LockAbout } from "./events.js";
import { HoldBase, type HoldEnd, type HoldJson } from "./hold-base.js";
import { newController } from "../../base/util/abort.js";
import { KeyWatch } from "./key-watch.js";

/** A held place in a queue, of any lock mode. It ends once, by release or by loss. */
export interface Hold extends AsyncDisposable {
  readonly name: string;
  readonly key: string;
  /** Create revision of `key`: identifies this hold. The `fence` of an exclusive hold is the same number. */
  readonly revision: bigint;
  /**
   * Aborts when the hold ends, *also on an ordinary release*. The reason is a LockReleasedError after `release()`, else a
   * LockLostError: distinguish them by `reason.code`. Reading it compares the clocks, as `held` does: in the first line after a pause
   * that outlasted the deadline, it's aborted. An aborted signal calls no new listener: check `aborted`, too.
   */
  readonly signal: AbortSignal;
  /**
   * Aborts with the first of `signal` and `other`, with the reason of that one: for work that stops for both. Nothing of it stays
   * at `other` when the hold has ended, whereas each `AbortSignal.any([lock.signal, other])` leaves up to 5 KB there. The same
   * `other` gives the same signal while neither has aborted, also for each step of a long hold.
   * @throws {TypeError} when `other` is no AbortSignal.
   */
  signalWith(other: AbortSignal): AbortSignal;
  /**
   * True until the hold ends, or its deadline or `maxHoldMs` passes. Reads the clocks itself, so it is accurate even immediately after the
   * process was suspended, but for what was taken away by hand meanwhile: that is an event to be read. If it is false and `signal` is
   * not aborted, the hold is in doubt until a renewal is answered.
   */
  readonly held: boolean;
  /**
   * Whether an entry waits behind this hold, as far as etcd has told by now: for work in steps that lets go when somebody asks. The first
   * use of this, of `onWanted` or of `waiters` begins a watch of the queue, one for all holds of a name and session, which lasts until the
   * hold ends; until etcd has answered it is false. After the end of the hold it is false. The watch begins with
   * one read; that of a permit needs up to 10 reads a second.
   */
  readonly wanted: boolean;
  /**
   * Calls `listener` with a waiter: at once if nobody waited before, and otherwise a second after the last call at most. It gets the
   * newest that has joined, or, for a permit, the first in line. A waiter has made an ordinary call, from any client: those of Go and
   * etcdctl have no `owner`. A reader is told of writers, and a permit of callers that found none free. Nothing is taken away from the
   * holder, which decides what it does. It is called in no caller's async context, not after the end of the hold, and not if etcd
   * refuses to show the queue.
   * @returns a function that removes the listener. @throws {TypeError} when `listener` is no function.
   */
  onWanted(listener: (waiter: Contender) => void): () => void;
  /**
   * The same as a loop: `for await (const waiter of lock.waiters())`. It ends with the hold. Of the waiters that joined while the
   * loop was busy, it gets the newest.
   * @throws {EtcdRefusedError} from `next()`, when etcd refuses the watch.
   */
  waiters(): AsyncIterableIterator<Contender>;
  /** Milliseconds until the deadline if no further renewal is accepted, or until `maxHoldMs` if less; 0 after the end. */
  remainingMs(): number;
  /**
   * @throws {LockLostError | LockReleasedError} when the hold has ended.
   * @throws {LockExpiringError} when less than `atLeastMs` (default 0) is left. @throws {TypeError | RangeError} on misuse.
   */
  assertHeld(atLeastMs?: number): void;
  /**
   * Ends the hold: `held` is false and `signal` is aborted before this returns. Resolves when etcd has confirmed the
   * deletion of the key, or when the lease is over, and after one TTL in any case: a key that is not deleted by then is
   * deleted in the background. A sticky lock whose key stays sends nothing, and resolves at once. Idempotent. The promise may be left
   * un-awaited.
   * @throws {LockLostError} when the hold was lost before, and nothing else; after the loss "max_hold" it deletes the key
   * first. If a proxy has been seen to send requests twice, a missing key proves no loss: the first of two releases may have
   * deleted it. A hold that lasts less than a second is not watched yet, and is lost then only if its lease is gone, too.
   */
  release(): Promise<void>;
  /** The same as `release()`. If the block of an `await using` throws, and the release fails, too, a SuppressedError has both errors. */
  [Symbol.asyncDispose](): Promise<void>;
  /** For logs, at this moment. Bigints become decimal strings; `remainingMs` is a whole number. */
  toJSON(): HoldJson;
}

/**
 * An exclusive hold. Only exclusive holds have a fencing token: of several holders that share a lock, an older one would
 * be rejected after a newer one wrote.
 */
export interface Lock extends Hold {
  /**
   * Fencing token, equal to `revision`, which holds without a fence have, too: see docs/fencing.md. It strictly increases per name.
   * JSON has no bigints: send `String(fence)`.
   */
  readonly fence: bigint;
  /**
   * 1, and for a sticky lock how often its session has taken the lock with this key: all of these holds have the same fence. Where two
   * processes may write, `fence` is enough. It orders the callers of one process, too, together with `turn`: a higher turn of the same
   * fence is newer. Of a hold that was adopted with its session, it's `Number.MAX_SAFE_INTEGER` if the lock was sticky.
   */
  readonly turn: number;
  toJSON(): HoldJson & { readonly fence: string; readonly turn: number };
}

/** A hold that others may share: it has no fence, not even an undefined one. */
export class HoldHandle extends HoldBase implements Hold, Dependent {
  readonly name: string;
  readonly key: string;
  readonly revision: bigint;
  /** How often the session has taken the lock with this key, this time included. */
  protected readonly taken: number;
  readonly #queue: Queue;
  readonly #entry: JoinedEntry;
  readonly #heldKey: KeyWatch;
  #leaveBy: LeaveBy | undefined;
  #ended: "released" | HoldEnd | undefined;
  #explained: Promise<void> | undefined;
  /** The hold is lost, but its key stays until the release. */
  #givenUp = false;
  /** A condition on its key was made, which no later hold may satisfy. */
  #guards = false;
  /** Who waits behind it, once somebody has asked. */
  #asked: Demand | undefined;
  /** Created on first use: most holds are short and have no listener. */
  #controller: AbortController | undefined;

  /** `watched`: its key is watched from now on, and not only once it has held for a while. */
  constructor(queue: Queue, entry: JoinedEntry, watched = false) {
    super(queue.lease);
    this.name = entry.name;
    this.key = entry.key;
    this.revision = entry.revision;
    this.taken = entry.turn;
    this.#queue = queue;
    this.#entry = entry;
    this.#heldKey = new KeyWatch(entry, () => this.keyDeleted(), watched);
    queue.lease.holds.add(this);
  }

  get facts(): HoldFacts {
    return { key: this.key, revision: this.revision, fence: undefined };
  }

  get signal(): AbortSignal {
    this.refresh();
    const end = this.#reason;
    this.#controller ??= newController();
    if (end && !this.#controller.signal.aborted) this.#controller.abort(end);
    return this.#controller.signal;
  }

  get held(): boolean {
    const { standing } = this.#queue.lease;
    this.limits?.refresh();
    // Compared after that: a listener of the session may just have been notified, and have released this hold.
    return standing === "held" && !this.#ended;
  }

  get wanted(): boolean {
    return this.held && this.#demand.wanted(this);
  }

  [GUARDS](): boolean {
    this.refresh();
    this.#guards = true;
    return !this.#ended;
  }

  listenForWaiters(listener: WantedListener): () => void {
    this.refresh();
    if (!this.#ended) return this.#demand.listen(this, listener);
    inOwnContext(() => queueMicrotask(() => listener.over()));
    return () => undefined;
  }

  get #demand(): Demand {
    return (this.#asked ??= Demand.of(this.#queue, this.#entry));
  }

  remainingMs(): number {
    const left = Math.min(this.#queue.lease.remainingMs(), this.limits?.remainingMs() ?? Infinity);
    return this.#ended ? 0 : left;
  }

  /** Ends the hold if its deadline has passed, even if no timer has fired since, because the process was suspended. */
  refresh(): void {
    this.#queue.lease.refresh();
    this.#endWithSession();
    this.limits?.refresh();
  }

  /** The hold has lasted longer than its `maxHoldMs`. Its limits release it after the grace. */
  exceeded(maxHoldMs: number): void {
    this.giveUp(new LockLostError(this.name, this.key, "max_hold", undefined, maxHoldMs));
  }

  /** The hold is lost, and its key is there until somebody releases it. */
  protected giveUp(loss: LockLostError): void {
    this.#givenUp ||= this.#ended === undefined;
    this.#endWith(loss);
  }

  /**
   * Releases a hold that has not ended by a transaction that does more than delete the key. The call waits for the answer, longer
   * than one TTL if it must, and rejects with a LockLostError if the session ends first.
   */
  releaseBy(by: LeaveBy): Promise<void> {
    this.#leaveBy = by;
    return this.release();
  }

  toJSON(): HoldJson {
    const { name, key, revision } = this;
    return { name, key, revision: revision.toString(), ...this.standing };
  }

  override started(about: LockAbout): void {
    super.started(about);
    this.#hearOfDeletion();
  }

  override startedAsPart(about: LockAbout): void {
    super.startedAsPart(about);
    this.#hearOfDeletion();
  }

  /** The queue does not grant a key that is known to be gone, but the event may have come in the turn of the grant. */
  #hearOfDeletion(): void {
    this.#entry.used();
    if (this.#entry.knownGone) this.keyDeleted();
  }

  /**
   * A client deleted the key, or it went with its lease. The hold ends at once, and its signal aborts. A renewal shows which it was:
   * what reports the loss, and a release, wait for that, as `explained` does.
   */
  keyDeleted(): void {
    // Reads the clocks, by which the session, and with it the hold, may end here.
    const loss = this.#keyLoss();
    if (this.#ended) return;
    // First: a listener of the signal may release the hold, which must not count as its maximum then.
    this.stopLimits();
    this.#stop(loss);
    this.#queue.lost(this.#entry);
    this.#explained = inOwnContext(() => this.#explain(loss, this.heldMs));
    this.#abort();
  }

  get explained(): Promise<void> | undefined {
    return this.#explained;
  }

  async #explain(loss: LockLostError, heldMs: number): Promise<void> {
    const { lease } = this.#queue;
    await this.#deletedAlone();
    lease.refresh();
    const end = lease.signal.reason as SessionEnd | undefined;
    if (end?.code !== "SESSION_CLOSED") loss.explainedBy(end ? this.#lossWith(end) : this.#keyLoss());
    this.ended(loss.loss, loss, heldMs);
    lease.holdEnded(this);
  }

  /**
   * The key is gone. Its delay key goes, too, if the lease lives: a client has deleted the key alone. Otherwise the work of this hold may
   * still run for as long as the delay, and a close of the session must not count as one that finds everything released.
   */
  async #deletedAlone(): Promise<void> {
    if (await this.#renewLease()) this.#queue.deletedAlone(this.#entry);
    else this.#queue.lease.lostInDoubt = true;
  }

  sessionEnded(reason: SessionEnd): void {
    this.stopLimits();
    if (!this.#ended) this.#endWith(this.#lossWith(reason));
    this.#queue.lease.holds.delete(this);
  }

  /** Listeners of the session's own signal run before the session notifies its holds. */
  #endWithSession(): void {
    const { signal } = this.#queue.lease;
    if (signal.aborted) this.sessionEnded(signal.reason as SessionEnd);
  }

  #loss(loss: Loss, cause?: Error): LockLostError {
    return new LockLostError(this.name, this.key, loss, cause);
  }

  #lossWith(reason: SessionEnd): LockLostError {
    return this.#loss(reason.code === "SESSION_LOST" ? reason.loss : "closed", reason);
  }

  /** The key is gone. After a suspend, it went with its lease unless an answered renewal says otherwise. */
  #keyLoss(): LockLostError {
    const cause = this.#queue.lease.lossInDoubt;
    return cause ? this.#loss("expired", cause) : this.#loss("deleted");
  }

  protected get label(): string {
    return this.name;
  }

  protected get observed(): boolean {
    return this.#controller !== undefined;
  }

  /** Unlike a use of the signal, it reports nothing to the caller. */
  override get end(): HoldEnd | undefined {
    this.#endWithSession();
    return this.#reason;
  }

  /** The error of an ordinary release is created on first use: hardly any caller reads it. */
  get #reason(): HoldEnd | undefined {
    if (this.#ended === "released") this.#ended = new LockReleasedError(this.name);
    return this.#ended;
  }

  #endWith(end: HoldEnd): void {
    if (this.#ended) return;
    this.#stop(end);
    this.#report(end);
  }

  #stop(end: "released" | HoldEnd): void {
    this.#ended = end;
    this.#heldKey.stop();
    this.#asked?.ended(this);
  }

  /** After the entry has left the queue, or is leaving: a listener may lock again at once. */
  #report(end: "released" | HoldEnd): void {
    this.#abort();
    if (end instanceof LockLostError) this.ended(end.loss, end);
  }

  #abort(): void {
    const controller = this.#controller;
    if (controller) tellOutside(() => controller.abort(this.#reason));
  }

  protected async releaseOnce(): Promise<void> {
    const { lease } = this.#queue;
    // Compares the deadline, too, but costs less than `refresh()`.
    if (lease.over) this.#endWithSession();
    this.limits?.refresh();
    this.stopLimits();
    if (this.#givenUp) {
      await this.#leave().catch(() => undefined);
      lease.holdEnded(this);
    }
    if (this.#explained) await this.#explained;
    if (this.#reason) throw this.#reason;
    this.#stop("released");
    if (!this.#leaveBy && !this.#guards && this.#queue.keep(this.#entry)) {
      this.#report("released");
      return lease.holdEnded(this);
    }
    const leaving = this.#leave();
    this.#report("released");
    let deleted = true;
    try {
      deleted = await leaving;
    } catch {
      // Either the session is over, and the key is gone with it, or the deletion is not confirmed yet and continues.
      deleted = this.#leaveBy === undefined;
    }
    if (!deleted) await this.#deletedAlone();
    lease.holdEnded(this);
    if (deleted) return;
    const reason = lease.signal.reason as SessionEnd | undefined;
    if (reason instanceof SessionLostError || (reason && this.#leaveBy)) throw this.#lossWith(reason);
    if (this.#leaveBy || !lease.services.path.requestsAreRepeated) throw this.#keyLoss();
  }

  /** Deletes the key. False if it was missing. Rejects with the end of the session, or after one TTL. */
  #leave(): Promise<boolean> {
    const { lease } = this.#queue;
    if (this.#leaveBy) return this.#queue.leave(this.#entry, this.#leaveBy);
    // Renewals may get through while deletes do not: the deletion continues, but the caller waits no longer than this.
    const limit = { signal: undefined, timeoutMs: lease.ttlMs };
    const onTimeout = (): Error => new Error("not confirmed within one TTL");
    return settleWithin(this.#queue.leave(this.#entry), limit, lease.services, { onTimeout });
  }

  /** Renews the lease; the answer updates the session. Resolves after that, or after `patienceMs`: true if etcd has renewed it. */
  async #renewLease(): Promise<boolean> {
    const { lease } = this.#queue;
    const limit = { signal: undefined, timeoutMs: lease.patienceMs };
    const onTimeout = (): Error => new Error("no answer to a renewal");
    const renewed = lease.renewNow().then(() => true);
    return settleWithin(renewed, limit, lease.services, { onTimeout }).catch(() => false);
  }
}

/** The handle of an entry that excludes all others of its name. */
export class ExclusiveHoldHandle extends HoldHandle implements Lock {
  get fence(): bigint {
    return this.revision;
  }

  get turn(): number {
    return this.taken;
  }

  override get facts(): HoldFacts {
    return { key: this.key, revision: this.revision, fence: this.fence };
  }

  override toJSON(): HoldJson & { readonly fence: string; readonly turn: number } {
    return { ...super.toJSON(), fence: this.fence.toString(), turn: this.turn };
  }

  protected override get title(): string {
    return "Lock";
  }
}
