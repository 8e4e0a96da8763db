import { EtcdRefusedError } from "./errors.js";
import type { CallPolicy } from "./etcd/attempts.js";
import type { Txn, TxnAnswer } from "./etcd/rpc.js";
import type { Lease } from "./lease.js";
import { pause } from "./time.js";

/** A refused delete is sent again after this time: a place must not outlive its use while the lease lives. */
const REFUSED_AGAIN_MS = 1000;

/** Repeats a deletion until etcd has answered it. Rejects only with the session's end. */
export async function removeSurely(
  { connection, signal }: Lease,
  txn: Txn,
  policy: CallPolicy,
): Promise<TxnAnswer> {
  for (;;) {
    try {
      return await connection.members.txn(txn, policy);
    } catch (error) {
      if (!(error instanceof EtcdRefusedError)) throw error;
      await pause(connection.clock, REFUSED_AGAIN_MS, signal);
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
