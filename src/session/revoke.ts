import type { EtcdServices } from "./connection.js";
import type { CallPolicy } from "../etcd/retry.js";

/** The longest wait for a revocation: the lease also expires by itself. */
const REVOKE_MS = 10_000;

/** For calls after the end of a session: limited to the time that its lease has left. */
export const lastPolicy = (what: string, withinMs: number): CallPolicy => ({
  what,
  attemptMs: Math.max(100, withinMs / 4),
  giveUpMs: Math.min(withinMs, REVOKE_MS),
});

/** Resolves when the lease is gone, or when that cannot be confirmed within `withinMs`: it then expires by itself. */
export async function revokeLease(
  { client }: EtcdServices,
  leaseId: bigint,
  withinMs: number,
): Promise<void> {
  await client
    .call((member, options) => member.revoke(leaseId, options), lastPolicy("revoke a lease", withinMs))
    // The lease is gone, etcd is unreachable, or etcd refuses since our user may not write one of its keys: it expires.
    .catch(() => undefined);
}
