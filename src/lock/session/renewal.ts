// What a lease reports about its renewals: how long ago the last one was accepted, how much of that time this process did not
// run, and which members failed; and what waits for the next one.
// - Nothing is computed until the state of a session changes: a timer only compares two numbers when it runs.
// - Stalls are measured by the timers that a lease has anyway, each from when it was due, and no time is counted twice.
// - The answer to a renewal that was under way ends no wait for a renewal: the lease may have been revoked since.
// - A loss has a stall as its reason only if another attempt would have fit into the stall. Without a stall, etcd is the
//   reason; with one, etcd is a second reason only if a member failed and this process ran long enough for two attempts.
import {
  type EtcdRefusedError,
  type RenewalReport,
  type SessionClosedError,
  SessionLostError,
  silenceText,
} from "../../errors.js";
import { renewedChannel, sessionChannel } from "../../base/telemetry/channels.js";
import type { SessionStateName } from "../../base/telemetry/messages.js";
import { withJson } from "../../base/telemetry/publish.js";
import type { Moment, Timer } from "../../base/util/clock.js";
import { tellOutside } from "../../base/util/own-context.js";
import type { Timers } from "../../base/util/timers.js";
import type { Lease } from "./lease.js";

interface Wait {
  readonly since: number;
  readonly run: () => void;
  readonly refused?: (error: EtcdRefusedError) => void;
}

/** What waits for a renewal that is sent after it began to wait: an answer that was under way does not count. */
export class RenewalWaits {
  /** In the order of `since`. */
  #waits: Wait[] = [];

  /** Calls `run` once, when a renewal that was sent at `since` or later is answered. Monotonic milliseconds. */
  add(wait: Wait): void {
    this.#waits.push(wait);
  }

  /** etcd did not renew the lease: no renewal under way is answered any more. Waits without a `refused` continue. */
  refused(error: EtcdRefusedError): void {
    const ended = this.#waits.filter(({ refused }) => refused);
    this.#waits = this.#waits.filter(({ refused }) => !refused);
    for (const { refused } of ended) refused?.(error);
  }

  /** A renewal was answered that was sent at `sentAt`. What its callbacks add waits for the next one. */
  answered(sentAt: number): void {
    const later = this.#waits.findIndex(({ since }) => since > sentAt);
    for (const wait of this.#waits.splice(0, later === -1 ? Infinity : later)) wait.run();
  }
}

/** Any program with other work runs its timers this late. */
const TOLERANCE_MS = 50;

type TimerName = "check" | "renewal";

/** A time, on the monotonic clock, in which a timer was due and did not run. */
interface Stall {
  readonly from: number;
  readonly to: number;
}

/**
 * When this process did not run its timers: suspended, paused, or a blocked event loop. It needs no timer of its own: each
 * timer of a lease reports when it is due, and a stall lasts from then until a timer runs or the lease is asked. The begin
 * of a stall before that is not seen, so the sum is a lower bound.
 */
export class Stalls {
  readonly #due: Record<TimerName, number> = { check: Infinity, renewal: Infinity };
  /** In order, without overlaps. */
  readonly #stalls: Stall[] = [];

  /** A timer, which replaces the last one of its kind, is due at `at`. */
  scheduled(timer: TimerName, at: number): void {
    this.#due[timer] = at;
  }

  /** Called when a timer runs, and before the sum is read, even if no timer has run since a stall. */
  observe(now: number): void {
    let from = Math.min(this.#due.check, this.#due.renewal);
    if (now - from <= TOLERANCE_MS) return;
    // The same stall delays several timers, and may be seen several times before they run.
    for (let last = this.#stalls.at(-1); last !== undefined && last.to >= from; last = this.#stalls.at(-1)) {
      from = Math.min(from, last.from);
      this.#stalls.pop();
    }
    this.#stalls.push({ from, to: now });
  }

  /** Forgets what ended before `at`. */
  forgetUntil(at: number): void {
    while (this.#stalls[0] !== undefined && this.#stalls[0].to <= at) this.#stalls.shift();
  }

  /** Milliseconds of the longest one. */
  get longestMs(): number {
    return this.#stalls.reduce((longest, { from, to }) => Math.max(longest, to - from), 0);
  }

  /** Milliseconds of stalls after `at`. */
  sumSince(at: number): number {
    return this.#stalls.reduce((sum, { from, to }) => sum + Math.max(0, to - Math.max(from, at)), 0);
  }
}

/** The timers of a lease, whose lateness shows when this process did not run. */
export class LeaseTimers {
  readonly stalls = new Stalls();
  readonly #timers: Partial<Record<TimerName, Timer>> = {};

  constructor(private readonly timers: Timers) {}

  /** Calls `run`, with the time then, at `at`, or now if that has passed. Replaces the timer of that name. */
  set(name: TimerName, at: number, run: (now: Moment) => void): void {
    this.stalls.scheduled(name, Math.max(at, this.timers.now()));
    this.#timers[name]?.cancel();
    this.#timers[name] = this.timers.at(at, () => {
      this.stalls.observe(this.timers.now());
      run(this.timers.moment());
    });
  }

  cancel(): void {
    for (const timer of Object.values(this.#timers)) timer.cancel();
  }
}

/** The clock that counts suspend has a resolution of one second on some systems. */
const SUSPEND_RESOLUTION_MS = 1000;
/** A lease that has run this part of its TTL is in jeopardy: a renewal is overdue. */
const JEOPARDY_PART = 0.5;

/** How far a lease is from its last accepted renewal. */
interface Progress {
  /** When that renewal was sent. */
  readonly sent: Moment;
  readonly now: Moment;
  readonly leftMs: number;
  /** Why etcd has not renewed it since. */
  readonly refusal: EtcdRefusedError | undefined;
}

export function reportOf(lease: Lease, stalls: Stalls, progress: Progress): RenewalReport {
  const { sent, now, leftMs, refusal } = progress;
  stalls.observe(now.monotonic);
  const elapsedMs = Math.max(0, now.monotonic - sent.monotonic);
  // The monotonic clock of Linux, and its timers, stop while the machine is suspended.
  const aheadMs = now.suspend - sent.suspend - elapsedMs;
  const suspendedMs = aheadMs > SUSPEND_RESOLUTION_MS ? aheadMs : 0;
  const failures = lease.services.client.hosts.failuresSince(sent.monotonic);
  return {
    remainingMs: leftMs,
    sinceLastRenewalMs: elapsedMs + suspendedMs,
    stalledMs: stalls.sumSince(sent.monotonic) + suspendedMs,
    // The refusal says more than the failure of the stream before it.
    members: refusal ? new Map([...failures, [refusal.host, refusal]]) : failures,
  };
}

export interface LossReport extends RenewalReport {
  readonly refusal: EtcdRefusedError | undefined;
  /** The length of the longest stall, which may have begun before the last renewal. */
  readonly longestStallMs: number;
  /** Why the thread that renews does not: this one has, while it was not stalled. */
  readonly failure: string | undefined;
}

/** The error for a lost lease, with a message that says why no renewal was accepted. */
export function lossOf(
  lease: Lease,
  loss: "expired" | "revoked",
  { refusal: refused, longestStallMs, failure, ...report }: LossReport,
): SessionLostError {
  const { leaseId, ttlSeconds, maxStallMs } = lease;
  const refusal = loss === "expired" ? refused : undefined;
  // A thread of its own renews while this one is stalled. With every member in order, it has not run either.
  const renewing = failure === undefined ? maxStallMs : undefined;
  const stopped = renewing !== undefined && longestStallMs >= renewing - STALL_SEEN_LATE * lease.ttlMs;
  const matters = renewing === undefined || stopped || report.members.size === 0;
  const stalled = matters && isStalled(report, lease.ttlMs);
  const unanswered = loss === "expired" && !refusal && (!stalled || isUnanswered(report, lease.ttlMs));
  const what =
    loss === "expired"
      ? `no renewal was accepted for ${seconds(report.sinceLastRenewalMs)} (TTL ${ttlSeconds} s)`
      : "etcd has no such lease (revoked, or expired at the server)";
  const { members } = report;
  const reasons = [
    ...(stalled ? [stallText(report.stalledMs, loss, stopped ? renewing : undefined)] : []),
    ...(refusal ? [refusal.message] : []),
    ...(stalled && failure !== undefined ? [`the worker thread does not renew leases: ${failure}`] : []),
    ...(unanswered ? [silenceText(members)] : []),
  ];
  const reason = reasons.length > 0 ? `${what}; ${reasons.join(", and ")}` : what;
  return new SessionLostError(leaseId, loss, reason, { ...report, remainingMs: 0, unanswered, refusal });
}

/** How long a renewal is awaited before it is sent to the next member. */
export const patienceMs = (ttlMs: number): number => Math.min(ttlMs / 6, 1500);

/** A stall is seen from the first timer that is due in it, which is that of the jeopardy at the latest: in TTLs. */
const STALL_SEEN_LATE = JEOPARDY_PART;

/** Without the stalls there would have been time for another attempt. */
const isStalled = ({ stalledMs }: RenewalReport, ttlMs: number): boolean => stalledMs >= patienceMs(ttlMs);

/**
 * The process has run long enough for a renewal and for another attempt, and a member has failed. A stall is seen from the
 * first timer that is due in it: with an unread answer in the socket, that is the one at which the jeopardy begins.
 */
function isUnanswered(report: RenewalReport, ttlMs: number): boolean {
  const ranMs = report.sinceLastRenewalMs - report.stalledMs;
  return report.members.size > 0 && ranMs >= ttlMs * JEOPARDY_PART + patienceMs(ttlMs);
}

const seconds = (ms: number): string => `${Number((ms / 1000).toFixed(1))} s`;

const stallText = (stalledMs: number, loss: "expired" | "revoked", maxStallMs?: number): string =>
  `this process did not run for at least ${seconds(stalledMs)}${loss === "expired" ? " of them" : ""} ` +
  `(suspended, paused or a blocked event loop)` +
  (maxStallMs === undefined ? "" : `, and its worker thread renews no more after maxStallMs (${maxStallMs})`);

interface StateChange {
  readonly from: SessionStateName | undefined;
  readonly to: SessionStateName;
  readonly error?: SessionLostError | SessionClosedError | undefined;
}

/** Publishes a change of state. `report` is called only if there are subscribers. */
export function publishState(lease: Lease, change: StateChange, report: () => RenewalReport): void {
  if (!sessionChannel.hasSubscribers) return;
  const { leaseId, owner, ttlSeconds } = lease;
  const { hosts } = lease.services.options;
  const message = { hosts, leaseId, owner, ttlSeconds, error: undefined, ...change, ...report() };
  tellOutside(() => sessionChannel.publish(withJson(message)));
}

/** Publishes an accepted renewal. */
export function publishRenewal(lease: Lease, sent: Moment, answeredAt: number): void {
  if (!renewedChannel.hasSubscribers) return;
  const { leaseId, ttlSeconds } = lease;
  const { hosts } = lease.services.options;
  const message = { hosts, leaseId, ttlSeconds, durationMs: answeredAt - sent.monotonic };
  tellOutside(() => renewedChannel.publish(withJson(message)));
}
