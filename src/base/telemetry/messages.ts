import type { Contender } from "../../contender.js";
import type { Loss, RenewalReport } from "../../errors.js";
import type { LockKind } from "../../kinds.js";

export type { LockKind } from "../../kinds.js";

/** Where an event comes from. */
export interface ClusterMessage {
  /**
   * The very array that is the `hosts` of the Cluster object, so that a subscriber can tell clusters apart. What
   * it contains changes if DNS or etcd names other members.
   */
  readonly hosts: readonly string[];
}

/** The lock that a message is about. */
export interface LockMessage extends ClusterMessage {
  readonly kind: LockKind;
  /** The name, which may contain data of users. For `lockAll`: the first of the names. */
  readonly name: string;
  /** All names: one, except for `lockAll`. */
  readonly names: readonly string[];
  /** The `label` that the lock was created with: one of few, so it is fit for metrics. */
  readonly label: string | undefined;
}

/**
 * How a call ended. `busy`: the call did not wait, and the lock was taken, or its queue was full. `aborted`: by the caller's
 * signal. `session_closed`: this process closed the session, the cluster or the ClusterLockManager. `error`: any other rejection.
 */
export type AcquireOutcome =
  "granted" | "busy" | "timeout" | "superseded" | "aborted" | "session_lost" | "session_closed" | "error";

/**
 * A message of the tracing channel `leasehold.acquire`: one call that takes a lock. The same object goes to every event of the call.
 * The fields below `label` are undefined until they are known: read them in `asyncEnd`. A call that rejoins has one message, with the
 * `waitedMs` of all attempts. Bad arguments and a reentrant `withLock` publish nothing.
 */
export interface AcquireMessage extends LockMessage {
  /** Whether the call does not wait for its turn: `tryLock` and the like. */
  readonly tries: boolean;
  /** Owner of the session that the call used last. */
  owner: string | undefined;
  leaseId: bigint | undefined;
  /**
   * How many entries had to end before this one when it joined the queue; 0 if it was granted by its join. Undefined if the
   * answer to the join did not show it: behind an entry of the same session, and for `lockAll` unless all queues were empty.
   */
  ahead: number | undefined;
  /** The holder, as far as a call that timed out has read it. */
  holder: Contender | undefined;
  /** Milliseconds from the call to its end. */
  waitedMs: number | undefined;
  /** Key and create revision of the entry, if it was granted. For `lockAll`: the key of the first name. */
  key: string | undefined;
  revision: bigint | undefined;
  /** The fencing token of an exclusive hold. */
  fence: bigint | undefined;
  outcome: AcquireOutcome | undefined;
  /** Set before the events `error` and `asyncEnd`. */
  error?: unknown;
}

/**
 * A message of the tracing channel `leasehold.call`: one call to etcd, with all of its attempts, but not a stream. Fields are undefined
 * until they are known: see `asyncEnd`.
 */
export interface CallMessage extends ClusterMessage {
  /** What the call is for, in words. It may contain names of locks. */
  readonly what: string;
  /** The member that answered, or rejected the call. */
  host: string | undefined;
  attempts: number;
  /** Milliseconds of all attempts together, and of the pauses between them. */
  durationMs: number | undefined;
  error?: unknown;
}

/** Why a hold ended: `released` by its holder, or as a `Loss` says. */
export type HoldEndReason = "released" | Loss;

/**
 * A message of the channel `leasehold.hold.end`: a hold has ended. Published once for each hold that a caller got, for a `lockAll`
 * once; not for a hold that was granted after its caller gave up. A loss is published when it is noticed. A release is published when etcd
 * has answered it, because the answer may show a loss.
 */
export interface HoldEndMessage extends LockMessage {
  readonly owner: string;
  readonly leaseId: bigint;
  readonly key: string;
  readonly revision: bigint;
  readonly fence: bigint | undefined;
  /** Milliseconds from the grant to the loss, or to the call of `release`. */
  readonly heldMs: number;
  readonly reason: HoldEndReason;
  /** After a loss, the reason of the hold's signal, or what `release` rejected with. Undefined after a release. */
  readonly error: Error | undefined;
}

/** A message of the channel `leasehold.hold.long`: a hold is older than the `warnHoldMs` of its lock. Published once for each hold. */
export interface HoldLongMessage extends LockMessage {
  readonly owner: string;
  readonly leaseId: bigint;
  readonly key: string;
  readonly revision: bigint;
  readonly fence: bigint | undefined;
  readonly heldMs: number;
  /** The limit that it has passed. */
  readonly warnHoldMs: number;
}

/**
 * A message of the channel `leasehold.rejoin`: a call with `rejoin`, or a request of a ClusterLockManager, begins again and joins the
 * queue at its end, because its session has ended or no session could be opened. It is published before the pause.
 */
export interface RejoinMessage extends LockMessage {
  /** Owner and lease of the last session that it had, if any. */
  readonly owner: string | undefined;
  readonly leaseId: bigint | undefined;
  /** SessionLostError, SessionClosedError or EtcdUnavailableError. */
  readonly error: Error;
  /** How often the call has failed in a row, this time included. */
  readonly failures: number;
  /** Milliseconds until it begins again. */
  readonly delayMs: number;
}

export type { RenewalReport } from "../../errors.js";

export type SessionStateName = "live" | "jeopardy" | "lost" | "closed";

/** A message of the channel `leasehold.session`: the state of a session has changed; `from` is undefined when it was opened. */
export interface SessionMessage extends ClusterMessage, RenewalReport {
  readonly leaseId: bigint;
  readonly owner: string;
  readonly ttlSeconds: number;
  readonly from: SessionStateName | undefined;
  readonly to: SessionStateName;
  /** SessionLostError or SessionClosedError, when it is over. */
  readonly error: Error | undefined;
}

/** A message of the channel `leasehold.session.renewed`: etcd has accepted a renewal. */
export interface RenewedMessage extends ClusterMessage {
  readonly leaseId: bigint;
  readonly ttlSeconds: number;
  /** Milliseconds from the send to the answer. */
  readonly durationMs: number;
}

/**
 * A message of the channel `leasehold.member`. `up`: a member is in use and has answered for the first time. `down`: it is left
 * because it failed. `refused`: it was left because it is no member that can be used (another cluster, a proxy, no rights, no etcd).
 */
export interface MemberMessage extends ClusterMessage {
  readonly host: string;
  readonly state: "up" | "down" | "refused";
  readonly error: Error | undefined;
}

/**
 * A message of the channel `leasehold.credentials`: the function given as `credentials` or as `auth` has failed, so what it returned last
 * stays in use. It is published for each new reason, and without an error when the function works again.
 */
export interface CredentialsMessage extends ClusterMessage {
  /** Which of the two functions it is. */
  readonly option: "credentials" | "auth";
  readonly error: Error | undefined;
}

/** What stays in use when one of these functions fails. */
export const KEPT: Readonly<Record<CredentialsMessage["option"], string>> = {
  credentials: "certificates",
  auth: "user and password",
};

/**
 * A message of the channel `leasehold.guardian`: with `guardian: true`, the guardian has ended, or could not be started. Until another one
 * runs, a crash frees no lease of the cluster before its TTL. It is published once, and without an error when one runs again.
 */
export interface GuardianMessage extends ClusterMessage {
  readonly error: Error | undefined;
}

/**
 * A message of the channel `leasehold.election`: what happened to a candidate. Only `lead` has `retrying`, when its campaign, the
 * check before it, or observing for `onLeader`, has failed and is repeated, and `stopped`, when it has ended.
 */
export interface ElectionMessage extends ClusterMessage {
  readonly name: string;
  readonly label: string | undefined;
  /** Owner of the session, as far as it is known: from `elected` on, or as the option of `lead`. */
  readonly owner: string | undefined;
  readonly state: "campaigning" | "elected" | "resigned" | "lost" | "retrying" | "stopped";
  readonly fence: bigint | undefined;
  /** For `lost` and `retrying`. */
  readonly error: Error | undefined;
  /** For `retrying`: milliseconds until the next campaign. */
  readonly delayMs: number | undefined;
}

/**
 * A message of the channel `leasehold.shard`: what happened to a shard that this process owns. `owned`: its lock was granted, and the work
 * begins. `moving`: the signal of the work has aborted, since another member takes over, or this one leaves. `moved`: the work has settled, and the lock is
 * released. `lost`: the lock was lost, also while the shard was moving. `stuck`: the work has not settled `drainMs` after its signal, and the shard
 * stays. `failed`: the work has failed so often that this member leaves the shard to others for a minute. The lock of a shard publishes an
 * acquisition and the end of a hold, too.
 */
export interface ShardMessage extends ClusterMessage {
  /** The name of the group. */
  readonly name: string;
  readonly label: string | undefined;
  readonly shard: number;
  readonly state: "owned" | "moving" | "moved" | "lost" | "stuck" | "failed";
  /** The fence of its lock. */
  readonly fence: bigint;
  /** For `moved`, `stuck`, and `lost` while it was moving: milliseconds since the signal of the work has aborted, up to when the work had settled. */
  readonly drainMs: number | undefined;
  /** For `lost`: the LockLostError. For `failed`: what the work has thrown. */
  readonly error: unknown;
}
