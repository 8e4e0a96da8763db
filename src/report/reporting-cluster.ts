import { healthOf, type ClusterHealth, type Contact, type HealthOfSession } from "./health.js";
import { INSPECT, inspected, type InspectArguments } from "./inspect.js";
import { snapshotOf, type ClusterSnapshot, type ReportingLease } from "./snapshot.js";

/** The inside of a cluster, as far as reports need it. */
export interface ClusterInside {
  readonly contact: Contact;
  readonly closed: boolean;
  readonly standing: HealthOfSession | undefined;
  readonly leases: ReadonlySet<ReportingLease>;
}

/** What a cluster reports about itself, from what this process knows: no method asks etcd. */
export abstract class ReportingCluster {
  abstract readonly hosts: readonly string[];
  /** Private at run time, too: it leads to the credentials. */
  readonly #inside: () => ClusterInside;

  /** `inside` is not called before the constructor of the subclass has returned. */
  constructor(inside: () => ClusterInside) {
    this.#inside = inside;
  }

  /**
   * The sessions, holds and waits that this process has with this cluster object, as frozen data. Locks of other processes
   * are not in it. Costs nothing until it is called, and then a few microseconds for each hold and wait.
   */
  snapshot(): ClusterSnapshot {
    return snapshotOf(this.#inside().leases);
  }

  /**
   * Whether this process can rely on etcd now, as far as it knows. A cluster that was not used yet is ok. After a loss, `ok`
   * is false until a call, such as `session()`, has opened the next session.
   */
  health(): ClusterHealth {
    const { contact, closed, standing, leases } = this.#inside();
    return healthOf({ hosts: this.hosts, contact, closed, standing, sessions: leases });
  }

  /** @internal */
  [INSPECT](...how: InspectArguments): string {
    const read = (): Record<string, unknown> => {
      const { ok, state, remainingMs } = this.health();
      return { hosts: this.hosts, ok, session: state, remainingMs };
    };
    return inspected("Cluster", read, how);
  }
}
