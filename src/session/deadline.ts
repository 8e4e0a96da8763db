import type { Moment } from "../async/clock.js";

/** A renewal that etcd accepted. */
export interface Renewal {
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
}

/** The last tenth of the TTL is left unused: it covers clocks that run at slightly different rates. */
const USED_PART = 0.9;
const JEOPARDY_PART = 0.5;

/** `doubtful`: the deadline has passed only on the clock that counts suspend; the next renewal decides. */
export type Standing = "held" | "doubtful" | "over";

/** A clock that went back counts as no time passed. */
const elapsed = (from: number, to: number): number => Math.max(0, to - from);

export function standingOf(renewal: Renewal, now: Moment): Standing {
  if (isOver(renewal, now.monotonic)) return "over";
  const { sent, ttlMs } = renewal;
  return elapsed(sent.suspend, now.suspend) >= ttlMs * USED_PART ? "doubtful" : "held";
}

/** Only the monotonic clock decides this; the other one only raises doubt. */
export const isOver = ({ sent, ttlMs }: Renewal, monotonic: number): boolean =>
  elapsed(sent.monotonic, monotonic) >= ttlMs * USED_PART;

/** Milliseconds until the deadline on the clock that is further ahead; 0 when the deadline has passed. */
export function remainingMs({ sent, ttlMs }: Renewal, now: Moment): number {
  const passed = Math.max(elapsed(sent.monotonic, now.monotonic), elapsed(sent.suspend, now.suspend));
  return Math.max(0, ttlMs * USED_PART - passed);
}

/** A renewal is overdue, but the deadline has not passed. */
export function inJeopardy(renewal: Renewal, now: Moment): boolean {
  return renewal.ttlMs * USED_PART - remainingMs(renewal, now) > renewal.ttlMs * JEOPARDY_PART;
}

/** Milliseconds, on the monotonic clock, until the standing or the jeopardy can next change by time alone. */
export function nextLookMs(renewal: Renewal, now: Moment): number {
  const passed = elapsed(renewal.sent.monotonic, now.monotonic);
  const boundary = passed <= renewal.ttlMs * JEOPARDY_PART ? JEOPARDY_PART : USED_PART;
  // Past the boundary, not on it: a timer may fire a fraction of a millisecond early.
  return Math.max(1, renewal.ttlMs * boundary - passed + 1);
}
