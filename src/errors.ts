import { LeaseholdError } from "./base-error.js";
import type { Contender } from "./contender.js";
import type { KindMismatchError } from "./kinds.js";
import { printable } from "./printable.js";
import { NO_REPORT, type RenewalReport } from "./renewal-report.js";

export { LeaseholdError, type LeaseholdErrorCode } from "./base-error.js";
export { KindMismatchError } from "./kinds.js";

/** A deadline passed, a lease was revoked, a client deleted the key, the session was closed, or `maxHoldMs` passed. */
export type Loss = "expired" | "revoked" | "deleted" | "closed" | "max hold";

/** Texts from etcd and gRPC are cut where they arrive. This limit leaves room for hints and the reasons of several hosts. */
const MAX_REASON = 2000;

const hex = (leaseId: bigint): string => leaseId.toString(16);
const lossText: Record<Loss, string> = {
  expired: "its session was not renewed in time",
  revoked: "its lease is gone",
  deleted: "another client deleted its key",
  closed: "its session was closed while it was held",
  "max hold": "it was held longer than its maxHoldMs",
};

/** The last failure of each member, in one line. */
export const failuresText = (members: ReadonlyMap<string, Error>): string =>
  [...members].map(([host, { message }]) => `${host}: ${printable(message, MAX_REASON)}`).join("; ");

/** The failures of members as the `cause` of an error. */
const causeOf = (members: RenewalReport["members"]): AggregateError =>
  new AggregateError([...members.values()], "every member that was tried failed");

/**
 * The lease is gone, or may be: its deadline passed (`expired`), or etcd reported that it does not exist (`revoked`). The
 * message of an `expired` one says whether this process did not run, etcd did not answer, or both. `cause` is an
 * AggregateError of `members` if etcd did not answer.
 */
export class SessionLostError extends LeaseholdError {
  static override readonly name = "SessionLostError";
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
    report: RenewalReport & { readonly unanswered?: boolean } = NO_REPORT,
  ) {
    const caused = report.unanswered === true && report.members.size > 0;
    super(`Session ${hex(leaseId)} lost: ${why}`, caused ? { cause: causeOf(report.members) } : undefined);
    this.remainingMs = report.remainingMs;
    this.sinceLastRenewalMs = report.sinceLastRenewalMs;
    this.stalledMs = report.stalledMs;
    this.members = report.members;
  }
}

/** This process closed the session or its cluster. */
export class SessionClosedError extends LeaseholdError {
  static override readonly name = "SessionClosedError";
  readonly code = "SESSION_CLOSED";

  constructor(readonly leaseId: bigint) {
    super(leaseId === 0n ? "The cluster is closed" : `Session ${hex(leaseId)} is closed`);
  }
}

/** The caller held the lock and lost it: the one error for every loss. `cause` is the error of its session, if the session ended. */
export class LockLostError extends LeaseholdError {
  static override readonly name = "LockLostError";
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
}

/** The abort reason of `signal` after an ordinary release. */
export class LockReleasedError extends LeaseholdError {
  static override readonly name = "LockReleasedError";
  readonly code = "LOCK_RELEASED";

  constructor(readonly lockName: string) {
    super(`Lock "${lockName}" was released`);
  }
}

/**
 * `timeoutMs` passed before the caller's turn came. `holder` and `ahead` are etcd's answer from the last part of that time,
 * half a second at most. They are undefined if etcd did not answer, or if the first session was still being opened.
 */
export class LockTimeoutError extends LeaseholdError {
  static override readonly name = "LockTimeoutError";
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
}

/** The lock is still held, but less time is left than the caller asked for, or a renewal has to confirm it first. */
export class LockExpiringError extends LeaseholdError {
  static override readonly name = "LockExpiringError";
  readonly code = "LOCK_EXPIRING";

  constructor(
    readonly lockName: string,
    readonly remainingMs: number,
  ) {
    super(`Lock "${lockName}" has ${Math.floor(remainingMs)} ms left without a renewal`);
  }
}

/** The gate has already admitted a newer holder: this writer must stop. */
export class StaleFenceError extends LeaseholdError {
  static override readonly name = "StaleFenceError";
  readonly code = "STALE_FENCE";

  constructor(
    readonly fence: bigint,
    readonly highest: bigint,
  ) {
    super(`Fence ${fence} is stale: ${highest} was admitted before; the lock has a newer holder`);
  }
}

/** The call would wait for something that ends only after the call: its own async context, or its own candidate. */
export class DeadlockError extends LeaseholdError {
  static override readonly name = "DeadlockError";
  readonly code = "DEADLOCK";

  constructor(
    readonly lockName: string,
    message: string,
  ) {
    super(message);
  }
}

/** No member answered in time: the outcome is unknown until cleanup has confirmed it. */
export class EtcdUnavailableError extends LeaseholdError {
  static override readonly name = "EtcdUnavailableError";
  readonly code = "ETCD_UNAVAILABLE";
  declare readonly cause: AggregateError;
  readonly #what: string;

  constructor(
    what: string,
    /** The last failure of each member that was tried, by host. */
    readonly members: ReadonlyMap<string, Error>,
  ) {
    super(`etcd did not answer (${what})${members.size > 0 ? `: ${failuresText(members)}` : ""}`, {
      cause: causeOf(members),
    });
    this.#what = what;
  }

  /** @internal The same error for another caller, with a stack of its own. */
  again(): EtcdUnavailableError {
    return new EtcdUnavailableError(this.#what, this.members);
  }
}

/** Why etcd rejected a request. `member`: every host did, each for its own reason (a web server, a learner, another cluster). */
export type RefusalReason = "unauthenticated" | "permission" | "quota" | "tls" | "member" | "other";

/**
 * etcd rejected the request and would reject it again (wrong password, no permission, quota), or every host rejected it
 * for its own reason (`tls` or `member`). The request is not retried. docs/refusals.md lists all rejections.
 */
export class EtcdRefusedError extends LeaseholdError {
  static override readonly name = "EtcdRefusedError";
  readonly code = "ETCD_REFUSED";
  readonly #details: string;
  readonly #inDoubt: boolean;

  // eslint-disable-next-line max-params -- public: its parameters must not change
  constructor(
    readonly why: RefusalReason,
    readonly host: string,
    details: string,
    { what, inDoubt = false }: { readonly what?: string; readonly inDoubt?: boolean } = {},
  ) {
    super(
      `etcd at ${host} refused${what === undefined ? "" : ` to ${what}`} (${why}): ${printable(details, MAX_REASON)}`,
    );
    this.#details = details;
    this.#inDoubt = inDoubt;
  }

  /** @internal The text of the answer, from etcd or from whatever server answered in its place. */
  get details(): string {
    return this.#details;
  }

  /** @internal The request may have been executed nevertheless: see "database space exceeded" in etcd/refusals/refusals.ts. */
  get inDoubt(): boolean {
    return this.#inDoubt;
  }

  /** @internal The same error, naming the operation that was refused. */
  during(what: string): EtcdRefusedError {
    return new EtcdRefusedError(this.why, this.host, this.#details, { what, inDoubt: this.#inDoubt });
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
