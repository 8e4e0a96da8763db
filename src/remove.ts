import type { Lease } from "./lease.js";

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
