import { EtcdRefusedError } from "../errors.js";
import type { Txn } from "../etcd/port.js";
import { LeaseNotFoundError } from "../etcd/port-errors.js";
import type { Lease } from "../session/lease.js";

/** etcd rejected a join: marks the lease if the lease is the reason. */
export async function joinRefused(lease: Lease, txn: Txn, error: unknown): Promise<void> {
  if (error instanceof LeaseNotFoundError) lease.leaseNotFound();
  const forbidden = error instanceof EtcdRefusedError && error.why === "permission";
  if (forbidden && (await allowedWithoutLease(lease, txn))) lease.unfit = true;
}

/**
 * Since 3.6, etcd rejects a put with a lease that has a key which the user may not write, such as a key that another user
 * has put there. It checks permissions before it evaluates the compares, so a transaction whose compares never hold shows
 * what is allowed and writes nothing.
 */
async function allowedWithoutLease(lease: Lease, txn: Txn): Promise<boolean> {
  const never = txn.success.flatMap((operation) => (operation.kind === "put" ? [operation.key] : []));
  const probe: Txn = {
    ...txn,
    compare: [...txn.compare, ...never.map((key) => ({ kind: "created at", key, revision: -1n }) as const)],
    success: txn.success.map((operation) =>
      operation.kind === "put" ? { ...operation, leaseId: 0n } : operation,
    ),
  };
  const policy = { ...lease.policy("look why a join was refused"), giveUpMs: lease.ttlMs / 4 };
  return lease.services.client.txn(probe, policy).then(
    () => true,
    () => false,
  );
}
