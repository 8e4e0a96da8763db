// `releaseDelayMs`: the second lease of a session, which ends that much later than the first one, and what hangs on it.
// - Each entry has a second key, its delay key, with this lease: put, and deleted at a release, in one transaction with the entry. To
//   every client it is an entry before its own. So whoever waits for the entry of a holder that has died waits for this key, too.
// - It is renewed before the session's own lease, on the same stream: etcd executes the two in this order, so it never ends too early.
// - Once the session is lost it is neither renewed nor revoked. It is revoked by a close that has found all holds released.
// - If it is gone while the session lives, as after a revocation by hand, no new entry joins: nothing could be promised for it.
import { SessionClosedError } from "../../errors.js";
import type { DelayListener } from "../../etcd/keepalive.js";
import { delayLeaseOf } from "../../keys.js";
import type { EtcdServices } from "./connection.js";
import { patienceMs } from "./renewal.js";

/** etcd looks for expired leases every 500 ms, so one may end half a second after the other without a delay between them. */
const LATE_SECONDS = 1;

/** The TTL that it needs beside a lease of `ttlSeconds`. */
export const delayTtlSeconds = (ttlSeconds: number, releaseDelayMs: number): number =>
  Math.ceil(ttlSeconds + releaseDelayMs / 1000) + LATE_SECONDS;

/** The delay that a lease was granted with: the inverse of `delayTtlSeconds`, but for what that rounds up. */
export const delayOf = (ttlSeconds: number, delayTtl: number): Delay => ({
  delayMs: Math.max(0, delayTtl - ttlSeconds - LATE_SECONDS) * 1000,
  ttlSeconds: delayTtl,
});

/** A granted delay lease. */
export interface Delay {
  readonly delayMs: number;
  readonly ttlSeconds: number;
}

export class DelayLease implements DelayListener {
  readonly leaseId: bigint;
  /** The delay lease is renewed before the leases that are not early. */
  readonly isEarly = true;
  /** From the end of the session's lease on. */
  readonly delayMs: number;
  readonly ttlMs: number;
  readonly patienceMs: number;
  /** etcd has no such lease any more. */
  isGone = false;

  constructor(
    private readonly services: EtcdServices,
    private readonly ofLease: bigint,
    { delayMs, ttlSeconds }: Delay,
  ) {
    this.leaseId = delayLeaseOf(ofLease);
    this.delayMs = delayMs;
    this.ttlMs = ttlSeconds * 1000;
    this.patienceMs = patienceMs(this.ttlMs);
  }

  /** The deadline of the delay lease is later than that of the session, which alone counts. */
  renewed(): void {}

  /** The error of a call for a new entry, once the lease is gone: the session goes on. */
  refusal(): SessionClosedError {
    return new SessionClosedError(this.ofLease, "its lease for releaseDelayMs is gone");
  }

  leaseNotFound(): void {
    this.isGone = true;
    this.services.keepalive.detach(this);
  }
}
