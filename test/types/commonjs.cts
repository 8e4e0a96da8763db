// A CommonJS module that passes values on to ES modules.
import { connect, isLeaseholdError, Mutex, Session, type Cluster, type Lock } from "leasehold";
import { lockPage } from "leasehold/ui";

// @ts-expect-error -- private: Session.open() makes sessions
new Session();

export const cluster: Cluster = connect({ hosts: "127.0.0.1:2379" });
export const fenceOf = (lock: Lock): bigint => lock.fence;
export const page: unknown = lockPage(cluster);

export async function holder(): Promise<string | undefined> {
  try {
    return await new Mutex(cluster, "jobs").withLock((lock) => String(fenceOf(lock)), { timeoutMs: 10 });
  } catch (error) {
    return isLeaseholdError(error, "LOCK_TIMEOUT") ? error.holder?.owner : undefined;
  }
}
export type Modules = import("leasehold", { with: { "resolution-mode": "import" } }).Cluster;
export const same: Modules = cluster;
