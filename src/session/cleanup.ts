import { EtcdRefusedError } from "../errors.js";
import type { CallPolicy } from "../etcd/retry.js";
import { backoff } from "../etcd/backoff.js";
import type { Txn, TxnAnswer } from "../etcd/port.js";
import type { EtcdServices } from "./connection.js";
import type { Lease } from "./lease.js";
import { lastPolicy } from "./revoke.js";
import { pause } from "../async/clock.js";

/**
 * Sends a transaction until etcd has executed it. After each rejection by etcd it pauses; the pauses grow to 1 s. Rejects
 * when the session ends, and when `policy.again` ends the attempts.
 */
export async function txnUntilConfirmed(
  { connection, signal }: Lease,
  txn: Txn,
  policy: CallPolicy,
): Promise<TxnAnswer> {
  for (let wait = backoff.next(); ; wait = wait.next(undefined)) {
    try {
      return await connection.client.txn(txn, policy);
    } catch (error) {
      if (!(error instanceof EtcdRefusedError)) throw error;
      await pause(connection.clock, wait.duration, signal);
    }
  }
}

/** A key of ours in a queue. */
export interface OwnEntry {
  readonly name: string;
  readonly key: string;
  readonly revision: bigint;
}

interface Stray {
  readonly key: string | Buffer;
  readonly createRevision: bigint;
}

/** Deletes that life of the key only, not a later one. */
const deletion = (name: string, { key, createRevision }: Stray): Txn => ({
  queues: [name],
  compare: [{ kind: "created at", key, revision: createRevision }],
  success: [{ kind: "delete", key }],
  failure: [],
});

/** Deletes a key of our lease in the queue of `name` that is not an entry of ours. */
export function deleteStrayKey(lease: Lease, name: string, stray: Stray, what: string): void {
  // If etcd rejects the delete or the session is over, the key ends with the lease.
  lease.connection.client.txn(deletion(name, stray), lease.policy(what)).catch(() => undefined);
}

/** Deletes the entries of a session that has ended, as far as etcd permits it and answers within `withinMs`. */
export async function deletePlacesUntilConfirmed(
  { client }: EtcdServices,
  places: Iterable<OwnEntry>,
  withinMs: number,
): Promise<void> {
  const policy = lastPolicy("leave the queues of a closed session", withinMs);
  const remove = ({ name, key, revision }: OwnEntry): Promise<unknown> =>
    client.txn(deletion(name, { key, createRevision: revision }), policy).catch(() => undefined);
  await Promise.all([...places].map(remove));
}
