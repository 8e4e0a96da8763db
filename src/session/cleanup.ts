import { pause } from "../async/clock.js";
import { EtcdRefusedError } from "../errors.js";
import { Backoff } from "../etcd/backoff.js";
import type { Txn, TxnAnswer } from "../etcd/port.js";
import type { CallPolicy } from "../etcd/retry.js";
import type { EtcdServices } from "./connection.js";

/** The longest wait for a call after the end of a session: the lease also expires by itself. */
const LAST_CALL_MS = 10_000;
const REVOCATION = ["lease"] as const;

/** The lease whose keys are cleaned up. */
export interface KeyOwner {
  readonly services: EtcdServices;
  readonly signal: AbortSignal;
  policy(what: string): CallPolicy;
}

/** A key in the queue of `name`, from its creation at `revision` on. A later key of the same bytes is another one. */
export interface CreatedKey {
  readonly name: string;
  readonly key: string | Buffer;
  readonly revision: bigint;
}

/**
 * Sends a transaction until etcd has executed it. After each rejection by etcd it pauses; the pauses grow to 1 s. Rejects
 * when the session ends, and when `policy.again` ends the attempts.
 */
export async function txnUntilConfirmed(
  { services, signal }: KeyOwner,
  txn: Txn,
  policy: CallPolicy,
): Promise<TxnAnswer> {
  let backoff: Backoff | undefined;
  for (;;) {
    try {
      return await services.client.txn(txn, policy);
    } catch (error) {
      if (!(error instanceof EtcdRefusedError)) throw error;
      backoff ??= new Backoff(services.clock);
      await pause(services.clock, backoff.nextMs(), signal);
    }
  }
}

const deletion = ({ name, key, revision }: CreatedKey): Txn => ({
  queues: [name],
  compare: [{ kind: "created at", key, revision }],
  success: [{ kind: "delete", key }],
  failure: [],
});

/** Deletes a key of our lease that is not an entry of ours. */
export function deleteStrayKey(lease: KeyOwner, stray: CreatedKey, what: string): void {
  // If etcd rejects the delete or the session is over, the key ends with the lease.
  lease.services.client.txn(deletion(stray), lease.policy(what)).catch(() => undefined);
}

/** Deletes the entries of a session that has ended, as far as etcd permits it and answers within `withinMs`. */
export async function deleteEntries(
  { client }: EtcdServices,
  entries: Iterable<CreatedKey>,
  withinMs: number,
): Promise<void> {
  const policy = lastPolicy("leave the queues of a closed session", withinMs);
  const remove = (entry: CreatedKey): Promise<unknown> =>
    client.txn(deletion(entry), policy).catch(() => undefined);
  await Promise.all([...entries].map(remove));
}

/** Resolves when the lease is gone, or when that cannot be confirmed within `withinMs`: it then expires by itself. */
export async function revokeLease(
  { client }: EtcdServices,
  leaseId: bigint,
  withinMs: number,
): Promise<void> {
  await client
    .call((member, options) => member.revoke(leaseId, options), {
      ...lastPolicy("revoke a lease", withinMs),
      answers: REVOCATION,
    })
    // The lease is gone, etcd is unreachable, or etcd refuses since our user may not write one of its keys: it expires.
    .catch(() => undefined);
}

/** For calls after the end of a session: limited to the time that its lease has left. */
const lastPolicy = (what: string, withinMs: number): CallPolicy => ({
  what,
  attemptMs: Math.max(100, withinMs / 4),
  giveUpMs: Math.min(withinMs, LAST_CALL_MS),
});
