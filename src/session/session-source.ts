import { isCluster, servicesOf, type EtcdServices } from "./connection.js";
import { leaseOf, Session, type Cluster } from "./cluster.js";
import type { Lease } from "./lease.js";
import { typeError, type CheckedWait } from "../options/check.js";

/**
 * A Cluster stands for its standing session, so the object outlives a lost session; a call that finds it lost before the
 * call has joined a queue uses the next session. A Session stands for itself only.
 */
export type SessionSource = Cluster | Session;

/** Where a lock takes its lease from. */
export interface LeaseSource {
  readonly services: EtcdServices;
  /** `lease` gives another lease after the session of one has ended. */
  readonly reopens: boolean;
  /** @throws SessionLostError | SessionClosedError | EtcdUnavailableError | EtcdRefusedError */
  lease(wait: CheckedWait): Promise<Lease>;
}

const known = new WeakMap<object, LeaseSource>();

/** The same object for all locks of one session or cluster: a program may create a lock for each call. */
export function leaseSourceOf(source: unknown): LeaseSource {
  const checked = source as SessionSource;
  const leases = known.get(checked) ?? newLeaseSource(checked);
  known.set(checked, leases);
  return leases;
}

/** @throws TypeError */
function newLeaseSource(source: SessionSource): LeaseSource {
  if (source instanceof Session) {
    const lease = leaseOf(source);
    return { services: lease.services, reopens: false, lease: () => Promise.resolve(lease) };
  }
  if (!isCluster(source)) throw typeError("source", "a Cluster or a Session", source);
  const cluster = source;
  return {
    services: servicesOf(cluster),
    reopens: true,
    lease: async ({ signal, timeoutMs }) => leaseOf(await cluster.session({ signal, timeoutMs })),
  };
}
