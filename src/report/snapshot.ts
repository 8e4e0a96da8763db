import type { LockKind, SessionStateName } from "../diagnostics/messages.js";
import { plain } from "./plain.js";

/** A session of this process that is not over. */
export interface SessionSnapshot {
  readonly leaseId: bigint;
  readonly owner: string;
  readonly state: SessionStateName;
  /** The TTL that etcd granted, in seconds. */
  readonly ttlSeconds: number;
  /** Milliseconds until its deadline if no further renewal is accepted. */
  readonly remainingMs: number;
}

/** A lock that this process holds: of `lockAll`, one for each name. */
export interface HoldSnapshot {
  readonly kind: LockKind;
  readonly name: string;
  readonly label: string | undefined;
  /** That of its session. */
  readonly leaseId: bigint;
  readonly key: string;
  /** Create revision of the key. */
  readonly revision: bigint;
  /** The fencing token of an exclusive hold. */
  readonly fence: bigint | undefined;
  /** Milliseconds since the grant. */
  readonly heldMs: number;
}

/** A call of this process that waits for its turn. */
export interface WaitSnapshot {
  readonly kind: LockKind;
  /** One name, except for `lockAll`. Of a web lock, the name that was requested. */
  readonly names: readonly string[];
  /** The queue that it waits in: one of `names`, except for a web lock. */
  readonly name: string;
  readonly label: string | undefined;
  readonly leaseId: bigint;
  /** Key and create revision of its entry under `name`; undefined until etcd has reported that it is in the queue. */
  readonly key: string | undefined;
  readonly revision: bigint | undefined;
  /** Milliseconds since it joined the line with this session. */
  readonly waitedMs: number;
  /** Entries that must end before its turn, by the last read of the queue; undefined if none was needed. */
  readonly ahead: number | undefined;
}

/** What one cluster object has in this process. Bigints become decimal strings in JSON. */
export interface ClusterSnapshot {
  readonly sessions: readonly SessionSnapshot[];
  readonly holds: readonly HoldSnapshot[];
  readonly waits: readonly WaitSnapshot[];
}

/** A hold. */
export interface ReportingHold {
  describe?(): HoldSnapshot | undefined;
}

/** A wait. */
export interface ReportingWait {
  describe?(): WaitSnapshot;
}

/** A lease, as far as reports need it. */
export interface ReportingLease extends SessionSnapshotSource {
  readonly holds: ReadonlySet<ReportingHold>;
  readonly waits: ReadonlySet<ReportingWait>;
}

type SessionSnapshotSource = Omit<SessionSnapshot, "remainingMs"> & { remainingMs(): number };

export function snapshotOf(leases: Iterable<ReportingLease>): ClusterSnapshot {
  const all = [...leases];
  return Object.freeze({
    sessions: Object.freeze(all.map(sessionOf)),
    holds: Object.freeze(all.flatMap(({ holds }) => described(holds))),
    waits: Object.freeze(all.flatMap(({ waits }) => described(waits))),
  });
}

/** The state is read first: that updates it from the clocks, and may end the session. */
export function sessionOf(lease: SessionSnapshotSource): SessionSnapshot {
  const { state, leaseId, owner, ttlSeconds } = lease;
  return plain({ leaseId, owner, state, ttlSeconds, remainingMs: lease.remainingMs() });
}

function described<T extends object>(all: ReadonlySet<{ describe?(): T | undefined }>): readonly T[] {
  return [...all].flatMap((each) => each.describe?.() ?? []).map(plain);
}
