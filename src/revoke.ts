import type { Connection } from "./connection.js";

/** No process waits longer than this for a lease that expires by itself. */
const REVOKE_MS = 10_000;

/** Resolves when the lease is gone, or cannot be reached within `withinMs`: it expires by itself then. */
export async function revokeLease({ members }: Connection, leaseId: bigint, withinMs: number): Promise<void> {
  const policy = {
    what: "revoke a lease",
    attemptMs: Math.max(100, withinMs / 4),
    giveUpMs: Math.min(withinMs, REVOKE_MS),
  };
  await members
    .call((member, options) => member.revoke(leaseId, options), policy)
    // Not there any more, or not to be reached: both are an end.
    .catch(() => undefined);
}
