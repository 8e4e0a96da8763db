import type { Connection } from "./connection.js";
import type { CallPolicy } from "../etcd/retry.js";

/** No process waits longer than this for a lease that expires by itself. */
const REVOKE_MS = 10_000;

/** For what is left to do when a session has ended: within the time that its lease has left. */
export const lastPolicy = (what: string, withinMs: number): CallPolicy => ({
  what,
  attemptMs: Math.max(100, withinMs / 4),
  giveUpMs: Math.min(withinMs, REVOKE_MS),
});

/** Resolves when the lease is gone, or cannot be reached within `withinMs`: it expires by itself then. */
export async function revokeLease({ client }: Connection, leaseId: bigint, withinMs: number): Promise<void> {
  await client
    .call((member, options) => member.revoke(leaseId, options), lastPolicy("revoke a lease", withinMs))
    // Not there any more, not to be reached, or refused, since a key of it is not ours to write: it expires by itself.
    .catch(() => undefined);
}
