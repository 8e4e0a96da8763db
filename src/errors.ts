import { LeaseholdError } from "./base-error.js";
import type { Contender } from "./contender.js";
import { causeOf, type EtcdRefusedError, type EtcdUnavailableError } from "./etcd-errors.js";
import type { KindMismatchError } from "./kinds.js";
import { printable } from "./printable.js";
import { NO_REPORT, type RenewalReport } from "./renewal-report.js";

export { LeaseholdError, type LeaseholdErrorCode } from "./base-error.js";
export { EtcdRefusedError, EtcdUnavailableError, failuresText, type RefusalReason } from "./etcd-errors.js";
export { KindMismatchError } from "./kinds.js";

/** A deadline passed, a lease was revoked, a client deleted the key, the session was closed, or `maxHoldMs` passed. */
export type Loss = "expired" | "revoked" | "deleted" | "closed" | "max hold";

const hex = (leaseId: bigint): string => leaseId.toString(16);
const lossText: Record<Loss, string> = {
  expired: "its session was not renewed in time",
  revoked: "its lease is gone",
  deleted: "another client deleted its key",
  closed: "its session was closed while it was held",
  "max hold": "it was held longer than its maxHoldMs",
};

/**
 * The lease is gone, or may be: its deadline passed (`expired`), or etcd reported that it does not exist (`revoked`). The
 * message of an `expired` one says whether this process did not run, etcd did not answer, or both, or that etcd refused the
 * renewals. `cause` is an AggregateError of `members` if etcd did not answer, and the EtcdRefusedError if it refused.
 */
export class SessionLostError extends LeaseholdError {
  readonly code = "SESSION_LOST";
  /** See RenewalReport. */
  readonly remainingMs: number;
  readonly sinceLastRenewalMs: number;
  readonly stalledMs: number;
  readonly members: ReadonlyMap<string, Error>;

  // eslint-disable-next-line max-params -- public: its parameters must not change
  constructor(
    readonly leaseId: bigint,
    readonly loss: "expired" | "revoked",
    why: string,
    report: RenewalReport & {
      readonly unanswered?: boolean;
      readonly refusal?: EtcdRefusedError | undefined;
    } = NO_REPORT,
  ) {
    const silence = report.unanswered === true && report.members.size > 0;
    const cause = report.refusal ?? (silence ? causeOf(report.members) : undefined);
    super(`Session ${hex(leaseId)} lost: ${why}`, cause && { cause });
    this.remainingMs = report.remainingMs;
    this.sinceLastRenewalMs = report.sinceLastRenewalMs;
    this.stalledMs = report.stalledMs;
    this.members = report.members;
  }

  override get name() {
    return "SessionLostError" as const;
  }
}

/** This process closed the session or its cluster. */
export class SessionClosedError extends LeaseholdError {
  readonly code = "SESSION_CLOSED";

  constructor(readonly leaseId: bigint) {
    super(leaseId === 0n ? "The cluster is closed" : `Session ${hex(leaseId)} is closed`);
  }

  override get name() {
    return "SessionClosedError" as const;
  }
}

/** The caller held the lock and lost it: the one error for every loss. `cause` is the error of its session, if the session ended. */
export class LockLostError extends LeaseholdError {
  readonly code = "LOCK_LOST";

  // eslint-disable-next-line max-params -- public: its parameters must not change
  constructor(
    readonly lockName: string,
    readonly key: string,
    readonly loss: Loss,
    cause?: Error,
    maxHoldMs?: number,
  ) {
    const limit = maxHoldMs === undefined ? "" : ` of ${maxHoldMs} ms`;
    super(`Lock "${lockName}" lost: ${lossText[loss]}${limit} (key ${key})`, cause && { cause });
  }

  override get name() {
    return "LockLostError" as const;
  }
}

/** The abort reason of `signal` after an ordinary release. */
export class LockReleasedError extends LeaseholdError {
  readonly code = "LOCK_RELEASED";

  constructor(readonly lockName: string) {
    super(`Lock "${lockName}" was released`);
  }

  override get name() {
    return "LockReleasedError" as const;
  }
}

/**
 * `timeoutMs` passed before the caller's turn came: etcd has said that somebody is ahead. If it has not, or has fallen silent
 * since, the error is EtcdUnavailableError. `holder` and `ahead` are etcd's answer from the last part of that time, half a second
 * at most. They are undefined if that answer was under way.
 */
export class LockTimeoutError extends LeaseholdError {
  readonly code = "LOCK_TIMEOUT";

  // eslint-disable-next-line max-params -- public: its parameters must not change
  constructor(
    readonly lockName: string,
    readonly timeoutMs: number,
    readonly holder: Contender | undefined,
    readonly ahead: number | undefined,
    phase?: string,
  ) {
    const by = holder ? `, held by ${printable(holder.owner ?? holder.key)}` : "";
    const queue = ahead === undefined ? "" : `, ${ahead} ahead in the queue`;
    super(`Lock "${lockName}" not acquired within ${timeoutMs} ms${by}${queue}${phase ? `: ${phase}` : ""}`);
  }

  override get name() {
    return "LockTimeoutError" as const;
  }
}

/** The lock is still held, but less time is left than the caller asked for, or a renewal has to confirm it first. */
export class LockExpiringError extends LeaseholdError {
  readonly code = "LOCK_EXPIRING";

  constructor(
    readonly lockName: string,
    readonly remainingMs: number,
  ) {
    super(`Lock "${lockName}" has ${Math.floor(remainingMs)} ms left without a renewal`);
  }

  override get name() {
    return "LockExpiringError" as const;
  }
}

/** The gate has already admitted a newer holder: this writer must stop. */
export class StaleFenceError extends LeaseholdError {
  readonly code = "STALE_FENCE";

  constructor(
    readonly fence: bigint,
    readonly highest: bigint,
  ) {
    super(`Fence ${fence} is stale: ${highest} was admitted before; the lock has a newer holder`);
  }

  override get name() {
    return "StaleFenceError" as const;
  }
}

/** The call would wait for something that ends only after the call: its own async context, or its own candidate. */
export class DeadlockError extends LeaseholdError {
  readonly code = "DEADLOCK";

  constructor(
    readonly lockName: string,
    message: string,
  ) {
    super(message);
  }

  override get name() {
    return "DeadlockError" as const;
  }
}

export type AnyLeaseholdError =
  | SessionLostError
  | SessionClosedError
  | LockLostError
  | LockReleasedError
  | LockTimeoutError
  | LockExpiringError
  | StaleFenceError
  | DeadlockError
  | KindMismatchError
  | EtcdUnavailableError
  | EtcdRefusedError;
