import {
  type EtcdRefusedError,
  type RenewalReport,
  SessionClosedError,
  type SessionLostError,
} from "../../errors.js";
import type { KeptLease, Renewed } from "../../etcd/keepalive.js";
import type { CallPolicy } from "../../etcd/retry.js";
import type { LockTable } from "../queue/queue.js";
import type { KeptSnapshot, ReportingHold, ReportingWait } from "../../base/telemetry/inspect.js";
import type { Moment } from "../../base/util/clock.js";
import { inOwnContext, nextTick, tellOutside } from "../../base/util/own-context.js";
import { settleWithin, TaskTracker } from "../../base/util/settle.js";
import {
  type AdoptedEntries,
  type CreatedKey,
  deleteDelayKeys,
  deleteEntries,
  revokeLease,
} from "./cleanup.js";
import type { LeaseSource } from "./cluster.js";
import { closeIdleWatches, type ClusterState, type EtcdServices } from "./connection.js";
import { type Delay, DelayLease } from "./delay-lease.js";
import { type AuditedWait, LatePutSweeper } from "./key-audit.js";
import {
  LeaseTimers,
  lossOf,
  type LossReport,
  patienceMs,
  publishRenewal,
  publishState,
  RenewalWaits,
  reportOf,
} from "./renewal.js";
import { newController } from "../../base/util/abort.js";

/** A renewal that etcd accepted. */
interface Renewal {
  /** When it was sent. etcd counts from when it received the renewal, so the client's deadline comes first. */
  readonly sent: Moment;
  readonly ttlMs: number;
}

/** A lease as etcd has granted it, or renewed it for the first time here. */
export interface GrantedLease {
  readonly leaseId: bigint;
  readonly ttlSeconds: number;
  /** When the grant or the renewal was sent. */
  readonly sent: Moment;
  /** The delay lease of this one, if it has one. */
  readonly delay?: Delay | undefined;
}

/** The last tenth of the TTL is left unused: it covers clocks that run at slightly different rates. */
const USED_PART = 0.9;
const JEOPARDY_PART = 0.5;
/** On Linux, the clock that counts suspend has steps of 10 ms, and two readings of it are compared. */
const SUSPEND_STEP_MS = 20;

/** `doubtful`: the deadline has passed only on the clock that counts suspend; the next renewal decides. */
type Standing = "held" | "doubtful" | "over";

/** A clock that went back counts as no time passed. */
const elapsed = (from: number, to: number): number => Math.max(0, to - from);

export function standingOf(renewal: Renewal, now: Moment): Standing {
  if (isOver(renewal, now.monotonic)) return "over";
  return passedMs(renewal, now) >= renewal.ttlMs * USED_PART ? "doubtful" : "held";
}

/** The milliseconds since a renewal was sent, with those of a suspend. */
function passedMs({ sent }: Renewal, now: Moment): number {
  const monotonic = elapsed(sent.monotonic, now.monotonic);
  const suspend = elapsed(sent.suspend, now.suspend);
  return suspend - monotonic > SUSPEND_STEP_MS ? suspend : monotonic;
}

/** Only the monotonic clock decides this; the other one only raises doubt. */
export const isOver = ({ sent, ttlMs }: Renewal, monotonic: number): boolean =>
  elapsed(sent.monotonic, monotonic) >= ttlMs * USED_PART;

/** Milliseconds until the deadline; 0 when it has passed. */
export const remainingMs = (renewal: Renewal, now: Moment): number =>
  Math.max(0, renewal.ttlMs * USED_PART - passedMs(renewal, now));

/** A renewal is overdue, but the deadline has not passed. */
export function inJeopardy(renewal: Renewal, now: Moment): boolean {
  return renewal.ttlMs * USED_PART - remainingMs(renewal, now) > renewal.ttlMs * JEOPARDY_PART;
}

/** Milliseconds, on the monotonic clock, until the standing or the jeopardy can next change by time alone. */
export function nextCheckMs(renewal: Renewal, now: Moment): number {
  const passed = elapsed(renewal.sent.monotonic, now.monotonic);
  const boundary = passed <= renewal.ttlMs * JEOPARDY_PART ? JEOPARDY_PART : USED_PART;
  // Past the boundary, not on it: a timer may fire a fraction of a millisecond early.
  return Math.max(1, renewal.ttlMs * boundary - passed + 1);
}

/** Ends a session at its user's request: by `close` or by `orphan`. */
class Closing {
  #closing: Promise<void> | undefined;
  #orphaning = false;
  #endDrain: () => void = () => {};

  constructor(
    private readonly lease: Lease,
    /** The leases that a close of the cluster waits for. */
    private readonly leases: Set<Lease>,
  ) {}

  get begun(): boolean {
    return this.#closing !== undefined || this.#orphaning;
  }

  /** See `Session.close`. A further call can only shorten the drain. */
  close(drainMs: number): Promise<void> {
    if (this.lease.signal.aborted) return this.#closing ?? Promise.resolve();
    const timer = this.lease.services.clock.after(drainMs, () => this.#endDrain());
    this.#closing ??= this.#drain().then(() => this.#finish());
    if (drainMs === 0) this.#endDrain();
    return this.#closing.finally(() => timer.cancel());
  }

  /** See `Session.orphan`. */
  async orphan(): Promise<bigint> {
    const { lease } = this;
    lease.assertOpen();
    this.#orphaning = true;
    lease.locks?.endTenures();
    lease.endWaits(new SessionClosedError(lease.leaseId));
    await this.#settled();
    try {
      await lease.renewNow();
    } catch (error) {
      // etcd has refused: the session continues.
      this.#orphaning = false;
      throw error;
    }
    // A close that began meanwhile revokes the lease.
    if (this.#closing) throw new SessionClosedError(lease.leaseId);
    lease.abandon();
    await lease.unguard();
    return lease.leaseId;
  }

  /** The last hold has ended, which ends a drain. */
  holdsEnded(): void {
    this.#endDrain();
  }

  /** Waits for joins and for the deletes that follow them: one TTL at most, although rejected deletes are still repeated. */
  async #settled(): Promise<void> {
    const { inFlight, services, ttlMs } = this.lease;
    const limit = { signal: undefined, timeoutMs: ttlMs };
    const onTimeout = (): Error => new Error("not settled within one TTL");
    // A call that gave up leaves the queue a moment after its join was answered.
    const turn = (): Promise<void> =>
      new Promise((resolve) => void services.clock.afterPendingEvents(() => resolve()));
    await settleWithin(inFlight.settled(turn), limit, services, { onTimeout }).catch(() => undefined);
  }

  /** Refuses new calls and rejects waiting ones; the lease is still renewed while anything is held. */
  #drain(): Promise<void> {
    const { lease } = this;
    const drained = new Promise<void>((resolve) => {
      this.#endDrain = resolve;
      lease.signal.addEventListener("abort", () => resolve(), { once: true });
      // After the microtasks: a call that was granted in this turn may not have its hold yet.
      nextTick(() => void (lease.holds.size === 0 && resolve()));
    });
    lease.locks?.endTenures();
    lease.endWaits(new SessionClosedError(lease.leaseId));
    return drained;
  }

  async #finish(): Promise<void> {
    const { lease } = this;
    if (lease.signal.aborted) return;
    const leaseEndsMs = lease.remainingMs() + lease.ttlMs * 0.1;
    // Work that was not released may still write.
    const isIdle = lease.holds.size === 0 && !lease.lostInDoubt;
    const unconfirmed = isIdle ? [] : (lease.locks?.unconfirmed() ?? []);
    lease.abandon();
    const { services, leaseId } = lease;
    // Makes a close of the cluster wait for the revocation; otherwise it would close the connection under it.
    this.leases.add(lease);
    const revoking = revokeLease(services, leaseId, leaseEndsMs);
    await Promise.all([
      // After the revocation, etcd rejects their puts.
      revoking.then(() => deleteDelayKeys(services, unconfirmed, leaseEndsMs)),
      isIdle && lease.delay && revokeLease(services, lease.delay.leaseId, leaseEndsMs),
      // A revocation does not delete a key that a put without the lease has detached from it; and etcd refuses to revoke
      // a lease with a key that our user must not write, even if another client has put that key.
      deleteEntries(services, lease.entries(), { withinMs: leaseEndsMs, isIdle }),
    ]);
    // Nothing is left to revoke: nobody waits for this.
    void lease.unguard();
    this.leases.delete(lease);
  }
}

export type SessionState = "live" | "jeopardy" | "lost" | "closed";
export type SessionEnd = SessionLostError | SessionClosedError;

/** A hold or a wait, which ends with its lease. */
export interface Dependent {
  sessionEnded(reason: SessionEnd): void;
}

/** A lease that is kept alive, with its deadline. `Session` is its public interface. */
export class Lease implements KeptLease {
  readonly services: EtcdServices;
  readonly source: LeaseSource;
  readonly leaseId: bigint;
  /** The TTL that etcd granted. */
  readonly ttlSeconds: number;
  readonly ttlMs: number;
  readonly patienceMs: number;
  /** Set if a worker thread renews the lease: after a stall of so long, it renews no more. */
  readonly maxStallMs: number | undefined;
  /** With `releaseDelayMs`. */
  readonly delay: DelayLease | undefined;
  readonly holds = new Set<Dependent & ReportingHold>();
  readonly waits = new Set<Dependent & Partial<AuditedWait> & ReportingWait>();
  /** Calls that `orphan()` waits for. */
  readonly inFlight = new TaskTracker();
  /** The entries that it had when it was adopted. */
  adopted: AdoptedEntries | undefined;
  /** The key of a hold is gone, and etcd has not said whether the lease was, too. */
  lostInDoubt = false;
  #unfit = false;
  /** Set by the first lock. */
  locks: LockTable | undefined;
  #sweeper: LatePutSweeper | undefined;
  /** Reports a change of state, after everything else has been notified. */
  onState: (state: SessionState, previous: SessionState, report: RenewalReport) => void = () => {};
  /** Each call in flight adds a listener. */
  readonly #over = newController();
  #state: SessionState = "live";
  #renewal: Renewal;
  /** Set if another thread renews the lease. */
  readonly #elsewhere: Renewed | undefined;
  #hearing = false;
  /** Why etcd did not extend it, since the last renewal. */
  #refusal: EtcdRefusedError | undefined;
  /** A renewal was sent because the suspend clock raised doubt. */
  #doubtAsked = false;
  readonly #timers: LeaseTimers;
  readonly #closing: Closing;
  readonly #renewalWaits = new RenewalWaits();

  constructor(
    private readonly cluster: ClusterState,
    { leaseId, ttlSeconds, sent, delay }: GrantedLease,
    readonly owner: string,
  ) {
    this.services = cluster.services;
    this.source = { services: cluster.services, reopens: false, lease: () => this, standing: () => this };
    this.leaseId = leaseId;
    this.ttlSeconds = ttlSeconds;
    this.ttlMs = ttlSeconds * 1000;
    this.patienceMs = patienceMs(this.ttlMs);
    const { renewal, maxStallMs } = cluster.services.options;
    this.maxStallMs = renewal === "worker" ? (maxStallMs ?? this.ttlMs) : undefined;
    this.delay = delay && new DelayLease(this.services, leaseId, delay);
    this.#renewal = { sent, ttlMs: this.ttlMs };
    this.#timers = new LeaseTimers(this.services.leaseTimers);
    this.#closing = new Closing(this, cluster.leases);
    cluster.leases.add(this);
    cluster.guardian?.guard(this);
    this.#elsewhere = this.services.keepalive.keep(this, sent);
    this.#scheduleCheck();
    publishState(this, { from: undefined, to: "live" }, () => this.#report());
  }

  /**
   * Updates the state from the clocks, and ends the session if its deadline has passed: timers may not have fired since the
   * process was suspended. Everything below that reports the state calls it first.
   */
  refresh(now = this.services.clock.now()): void {
    if (this.#over.signal.aborted) return;
    if (this.#elsewhere?.gone) return this.lose("revoked", now);
    if (this.#elsewhere && this.#elsewhere.last.sent.monotonic > this.#renewal.sent.monotonic)
      this.#renewal = this.#elsewhere.last;
    const standing = standingOf(this.#renewal, now);
    if (standing === "over") return this.lose("expired", now);
    // After a suspend, the scheduled renewal may be far off.
    if (standing === "doubtful" && !this.#doubtAsked) this.renew();
    this.#doubtAsked = standing === "doubtful";
    const [previous, next] = [this.#state, inJeopardy(this.#renewal, now) ? "jeopardy" : "live"] as const;
    if (next === previous) return;
    this.#state = next;
    this.#changed(previous, this.#report(now));
  }

  get state(): SessionState {
    this.refresh();
    return this.#state;
  }

  /** Created for the first entry. */
  get sweeper(): LatePutSweeper {
    return (this.#sweeper ??= new LatePutSweeper(this));
  }

  /** The session's entries in all queues, as far as etcd has confirmed them. */
  entries(): Iterable<CreatedKey> {
    return this.locks?.entries() ?? [];
  }

  kept(): readonly KeptSnapshot[] {
    return this.locks?.kept() ?? [];
  }

  reconnected(): void {
    this.#sweeper?.soon();
  }

  /** Aborts with SessionLostError or SessionClosedError. */
  get signal(): AbortSignal {
    return this.#over.signal;
  }

  get standing(): Standing {
    const now = this.services.clock.now();
    this.refresh(now);
    return this.#over.signal.aborted ? "over" : standingOf(this.#renewal, now);
  }

  /** After a suspend: the error with which it has expired, unless an answered renewal still says otherwise. */
  get lossInDoubt(): SessionLostError | undefined {
    return this.standing === "doubtful" ? lossOf(this, "expired", this.#lossReport()) : undefined;
  }

  /** Short form of `standing`: reads the clock that counts suspend only if the deadline has passed. */
  get over(): boolean {
    if (this.#elsewhere?.gone === true || isOver(this.#renewal, this.services.clock.monotonic()))
      this.refresh();
    return this.#over.signal.aborted;
  }

  remainingMs(): number {
    const now = this.services.clock.now();
    this.refresh(now);
    return this.#over.signal.aborted ? 0 : remainingMs(this.#renewal, now);
  }

  /** Limits for a call of this session: several attempts must fit into the TTL, and no attempt outlives the lease. */
  policy(what: string): CallPolicy {
    const onLeaseGone = (): void => this.leaseNotFound();
    return { what, attemptMs: this.ttlMs / 4, signal: this.#over.signal, onLeaseGone };
  }

  /** The policy of a transaction that puts with the delay lease as well: etcd does not say which of the two is gone. See `joinRefused`. */
  joinPolicy(what: string): CallPolicy {
    const policy = this.policy(what);
    return this.delay ? { ...policy, onLeaseGone: undefined } : policy;
  }

  /** etcd rejects every put with it: its holds and waits continue, but no new entry can join a queue. */
  get unfit(): boolean {
    return this.#unfit || this.delay?.isGone === true;
  }

  set unfit(unfit: boolean) {
    this.#unfit = unfit;
  }

  /** New calls may begin. */
  get open(): boolean {
    return !this.over && !this.#closing.begun && !this.unfit;
  }

  /** No longer used: closes upon the first renewal that finds no hold and no wait. */
  retire(): void {
    const run = (): void => {
      // The user is already closing or orphaning the session.
      if (this.#closing.begun) return;
      if (this.holds.size === 0 && this.waits.size === 0) void this.close(0);
      else this.retire();
    };
    this.#renewalWaits.add({ since: this.services.clock.monotonic(), run });
  }

  /** @throws SessionLostError | SessionClosedError when nothing new may begin. */
  assertOpen(): void {
    if (this.over) throw this.#over.signal.reason as SessionEnd;
    if (this.#closing.begun) throw new SessionClosedError(this.leaseId);
    if (this.delay?.isGone) throw this.delay.refusal();
  }

  /** A hold ended; the last one ends a drain. */
  holdEnded(hold: Dependent): void {
    this.holds.delete(hold);
    if (this.holds.size === 0) this.#closing.holdsEnded();
  }

  renewed(sent: Moment, ttlSeconds: number, answeredAt = this.services.clock.monotonic()): void {
    if (this.over) return;
    // The accepted renewal that was sent last counts.
    if (sent.monotonic < this.#renewal.sent.monotonic) return publishRenewal(this, sent, answeredAt);
    this.#renewal = { sent, ttlMs: Math.min(ttlSeconds * 1000, this.ttlMs) };
    this.#refusal = undefined;
    this.#timers.stalls.forgetUntil(sent.monotonic);
    this.#renewalWaits.answered(sent.monotonic);
    publishRenewal(this, sent, answeredAt);
    this.cluster.guardian?.refresh();
    // Otherwise it would change nothing, and read the second clock for each answer.
    if (this.#state !== "live" || this.#doubtAsked) this.refresh();
  }

  refused(error: EtcdRefusedError): void {
    this.#refusal = error;
    this.#renewalWaits.refused(error);
  }

  leaseNotFound(): void {
    this.refresh();
    this.lose("revoked");
  }

  lose(loss: "expired" | "revoked", now = this.services.clock.now()): void {
    // What the thread that renews has said meanwhile may be the reason. Each of its messages asks for the state, and finds it lost.
    if (this.#hearing) return;
    this.#hearing = true;
    this.#elsewhere?.hear();
    this.#hearing = false;
    if (this.#over.signal.aborted) return;
    this.#end("lost", lossOf(this, loss, this.#lossReport(now)), this.#report(now));
    // A renewal still in a socket may have extended the lease, and waiters would wait behind keys that have no holder.
    inOwnContext(() => void revokeLease(this.services, this.leaseId, this.ttlMs).then(() => this.unguard()));
  }

  close(drainMs: number): Promise<void> {
    return this.#closing.close(drainMs);
  }

  orphan(): Promise<bigint> {
    return this.#closing.orphan();
  }

  /** Resolves when no guardian will revoke the lease any more. */
  async unguard(): Promise<void> {
    await this.cluster.guardian?.forget(this);
  }

  /** Ends without a revocation and without a last renewal. */
  abandon(): void {
    if (!this.#over.signal.aborted) this.#end("closed", new SessionClosedError(this.leaseId), this.#report());
  }

  /** Resolves when etcd has answered a renewal that was sent since the call; rejects if etcd refuses it, or the session is over. */
  renewNow(): Promise<void> {
    return new Promise((resolve, reject) => {
      this.signal.throwIfAborted();
      const stop = this.services.aborts.add(this.signal, () => reject(this.signal.reason as Error));
      const refused = (error: EtcdRefusedError): void => reject((stop(), error));
      this.#renewalWaits.add({
        since: this.services.clock.monotonic(),
        run: () => resolve(stop()),
        refused,
      });
      this.renew();
    });
  }

  renew(): void {
    this.services.keepalive.renew(this);
  }

  /** Rejects the waits; the holds continue. */
  endWaits(reason: SessionEnd): void {
    for (const wait of [...this.waits]) wait.sessionEnded(reason);
  }

  /** Whoever finds the end, by a check of any lock of the session: its listeners belong to other calls. */
  #end(state: "lost" | "closed", reason: SessionEnd, report: RenewalReport): void {
    tellOutside(() => this.#endOutside(state, reason, report));
  }

  #endOutside(state: "lost" | "closed", reason: SessionEnd, report: RenewalReport): void {
    const previous = this.#state;
    this.#state = state;
    this.#timers.cancel();
    if (this.delay) this.services.keepalive.detach(this.delay);
    this.services.keepalive.detach(this);
    this.cluster.leases.delete(this);
    this.#over.abort(reason);
    for (const hold of [...this.holds]) hold.sessionEnded(reason);
    this.endWaits(reason);
    closeIdleWatches(this.cluster);
    this.#changed(previous, { ...report, remainingMs: 0 }, reason);
  }

  #changed(from: SessionState, report: RenewalReport, error?: SessionEnd): void {
    tellOutside(() => this.onState(this.#state, from, report));
    publishState(this, { from, to: this.#state, error }, () => report);
  }

  #report(now = this.services.clock.now()): RenewalReport {
    const leftMs = remainingMs(this.#renewal, now);
    const { sent } = this.#renewal;
    return reportOf(this, this.#timers.stalls, { sent, now, leftMs, refusal: this.#refusal });
  }

  #lossReport(now?: Moment): LossReport {
    const report = this.#report(now);
    const { longestMs: longestStallMs } = this.#timers.stalls;
    return { ...report, refusal: this.#refusal, longestStallMs, failure: this.#elsewhere?.failure };
  }

  #scheduleCheck(now = this.services.clock.now()): void {
    // One clock reading for both: between two readings the boundary could pass unnoticed.
    this.#timers.set("check", now.monotonic + nextCheckMs(this.#renewal, now), (then) => {
      this.refresh(then);
      if (!this.#over.signal.aborted) this.#scheduleCheck(then);
    });
  }

  renewAt(at: number, renew: (now: Moment) => void): void {
    this.#timers.set("renewal", at, renew);
  }
}
