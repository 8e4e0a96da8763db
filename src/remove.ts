import { EtcdRefusedError } from "./errors.js";
import type { CallPolicy } from "./etcd/attempts.js";
import { backoff } from "./etcd/backoff.js";
import type { Txn, TxnAnswer } from "./etcd/rpc.js";
import type { Lease } from "./lease.js";
import { pause } from "./time.js";

/**
 * Sends a transaction until etcd has executed it, also after etcd rejected it: then with pauses that grow to 1 s. Rejects
 * when the session ends, and when `policy.again` ends the attempts.
 */
export async function txnUntilConfirmed(
  { connection, signal }: Lease,
  txn: Txn,
  policy: CallPolicy,
): Promise<TxnAnswer> {
  for (let wait = backoff.next(); ; wait = wait.next(undefined)) {
    try {
      return await connection.members.txn(txn, policy);
    } catch (error) {
      if (!(error instanceof EtcdRefusedError)) throw error;
      await pause(connection.clock, wait.duration, signal);
    }
  }
}

interface Stray {
  readonly key: Buffer;
  readonly createRevision: bigint;
}

/** Deletes a key of our lease in the queue of `name` that is no place of ours: that very key, not a later one. */
export function removeStray(lease: Lease, name: string, { key, createRevision }: Stray, what: string): void {
  const txn = {
    roots: [name],
    when: [{ kind: "created at", key, revision: createRevision }],
    then: [{ kind: "delete", key }],
    otherwise: [],
  } as const;
  // Refused, or the session is over: then the key ends with the lease.
  lease.connection.members.txn(txn, lease.policy(what)).catch(() => undefined);
}
