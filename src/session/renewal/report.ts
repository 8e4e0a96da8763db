import type { Moment } from "../../async/clock.js";
import { tellOutside } from "../../async/own-context.js";
import { renewedChannel, sessionChannel } from "../../diagnostics/channels.js";
import { withJson } from "../../diagnostics/message-json.js";
import type { SessionStateName } from "../../diagnostics/messages.js";
import {
  failuresText,
  SessionLostError,
  type EtcdRefusedError,
  type SessionClosedError,
} from "../../errors.js";
import type { EtcdClient } from "../../etcd/client.js";
import type { RenewalReport } from "../../renewal-report.js";
import type { Stalls } from "./stalls.js";

/** The clock that counts suspend has a resolution of one second on some systems. */
const SUSPEND_RESOLUTION_MS = 1000;
/** A lease that has run this part of its TTL is in jeopardy: a renewal is overdue. */
const JEOPARDY_PART = 0.5;

/** What events and errors say of a lease. */
interface ReportedLease {
  readonly services: { readonly client: EtcdClient; readonly options: { readonly hosts: readonly string[] } };
  readonly leaseId: bigint;
  readonly ttlSeconds: number;
  readonly owner: string;
}

/** How far a lease is from its last accepted renewal. */
interface Progress {
  /** When that renewal was sent. */
  readonly sent: Moment;
  readonly now: Moment;
  readonly leftMs: number;
}

export function reportOf(lease: ReportedLease, stalls: Stalls, progress: Progress): RenewalReport {
  const { sent, now, leftMs } = progress;
  stalls.observe(now.monotonic);
  const elapsedMs = Math.max(0, now.monotonic - sent.monotonic);
  // The monotonic clock of Linux, and its timers, stop while the machine is suspended.
  const aheadMs = now.suspend - sent.suspend - elapsedMs;
  const suspendedMs = aheadMs > SUSPEND_RESOLUTION_MS ? aheadMs : 0;
  return {
    remainingMs: leftMs,
    sinceLastRenewalMs: elapsedMs + suspendedMs,
    stalledMs: stalls.sumSince(sent.monotonic) + suspendedMs,
    members: lease.services.client.failuresSince(sent.monotonic),
  };
}

/** The error for a lost lease, with a message that says why no renewal was accepted. */
export function lossOf(
  lease: ReportedLease,
  loss: "expired" | "revoked",
  { refusal: refused, ...report }: RenewalReport & { readonly refusal?: EtcdRefusedError | undefined },
): SessionLostError {
  const { leaseId, ttlSeconds } = lease;
  const refusal = loss === "expired" ? refused : undefined;
  const stalled = isStalled(report, ttlSeconds * 1000);
  const unanswered = loss === "expired" && !refusal && isUnanswered(report, ttlSeconds * 1000);
  const what =
    loss === "expired"
      ? `no renewal was accepted for ${seconds(report.sinceLastRenewalMs)} (TTL ${ttlSeconds} s)`
      : "etcd has no such lease (revoked, or expired at the server)";
  const { members } = report;
  const reasons = [
    ...(stalled ? [stallText(report.stalledMs, loss)] : []),
    ...(refusal ? [refusal.message] : []),
    ...(unanswered ? [`etcd did not answer${members.size > 0 ? `: ${failuresText(members)}` : ""}`] : []),
  ];
  const why = reasons.length > 0 ? `${what}; ${reasons.join(", and ")}` : what;
  return new SessionLostError(leaseId, loss, why, { ...report, remainingMs: 0, unanswered, refusal });
}

/** How long a renewal is awaited before it is sent to the next member. */
export const patienceMs = (ttlMs: number): number => Math.min(ttlMs / 6, 1500);

/** Without the stalls there would have been time for another attempt. */
const isStalled = ({ stalledMs }: RenewalReport, ttlMs: number): boolean => stalledMs >= patienceMs(ttlMs);

/**
 * The process has run long enough for a renewal and for another attempt, and a member has failed. A stall is seen from the
 * first timer that is due in it: with an unread answer in the socket, that is the one at which the jeopardy begins.
 */
function isUnanswered(report: RenewalReport, ttlMs: number): boolean {
  if (!isStalled(report, ttlMs)) return true;
  const ranMs = report.sinceLastRenewalMs - report.stalledMs;
  return report.members.size > 0 && ranMs >= ttlMs * JEOPARDY_PART + patienceMs(ttlMs);
}

const seconds = (ms: number): string => `${Number((ms / 1000).toFixed(1))} s`;

const stallText = (stalledMs: number, loss: "expired" | "revoked"): string =>
  `this process did not run for at least ${seconds(stalledMs)}${loss === "expired" ? " of them" : ""} ` +
  `(suspended, paused or a blocked event loop)`;

interface StateChange {
  readonly from: SessionStateName | undefined;
  readonly to: SessionStateName;
  readonly error?: SessionLostError | SessionClosedError | undefined;
}

/** Publishes a change of state. `report` is called only if there are subscribers. */
export function publishState(lease: ReportedLease, change: StateChange, report: () => RenewalReport): void {
  if (!sessionChannel.hasSubscribers) return;
  const { leaseId, owner, ttlSeconds } = lease;
  const { hosts } = lease.services.options;
  const message = { hosts, leaseId, owner, ttlSeconds, error: undefined, ...change, ...report() };
  tellOutside(() => sessionChannel.publish(withJson(message)));
}

/** Publishes an accepted renewal. */
export function publishRenewal(lease: ReportedLease, sent: Moment, now: number): void {
  if (!renewedChannel.hasSubscribers) return;
  const { leaseId, ttlSeconds } = lease;
  const { hosts } = lease.services.options;
  const message = { hosts, leaseId, ttlSeconds, durationMs: now - sent.monotonic };
  tellOutside(() => renewedChannel.publish(withJson(message)));
}
