import { executeRange } from "./range.js";
import { isRefusal } from "./refusals.js";
import { executeTxns, type TxnContext } from "./txn.js";
import type { Leases } from "./leases.js";
import type { UnaryRequest } from "./types.js";

/** The state of a cluster, as one member has it. */
export interface Replica extends TxnContext {
  readonly leases: Leases;
}

/** The results of transactions, beside the refusal that a request may have as its result. */
export interface TxnResults {
  readonly txns: Exclude<ReturnType<typeof executeTxns>, { readonly refused: string }>;
}

/** What changes or reads the state of a member. */
export type Applied = Exclude<UnaryRequest, { kind: "timeToLive" | "authenticate" }>;

/** Executes a request on the state of one member (etcdserver/apply). Returns a refusal, or the answer without its header. */
export function apply(replica: Replica, request: Applied): object {
  const { store, leases, quirks } = replica;
  switch (request.kind) {
    case "txns": {
      const txns = executeTxns(replica, request.txns);
      return isRefusal(txns) ? txns : { txns };
    }
    case "range":
      return executeRange(store, request.range, { quirks, throughRaft: false });
    case "compact":
      return store.compact(request.revision) ?? {};
    case "revoke":
      return leases.revoke(request.leaseId) ?? {};
    case "grant": {
      const lease = leases.grant(request.leaseId, request.ttlSeconds);
      if (isRefusal(lease)) return lease;
      return { leaseId: lease.leaseId, ttlSeconds: lease.ttlSeconds };
    }
  }
}
