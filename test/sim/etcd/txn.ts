import type { Compare, KeyValue, Operation, Txn } from "../../../src/etcd/port.js";
import { intervalOf, textOf } from "./bytes.js";
import type { Quirks } from "./quirks.js";
import { emptyEnd, executeRange, type RangeResult, type Reading } from "./range.js";
import { isRefusal, LEASE_NOT_FOUND } from "./refusals.js";
import type { Store } from "./store.js";
import type { Refusal } from "./types.js";

export interface TxnResult {
  readonly succeeded: boolean;
  readonly ranges: readonly (RangeResult | undefined)[];
}

/** What a transaction runs on. */
export interface TxnContext {
  readonly store: Store;
  readonly leases: { has(leaseId: bigint): boolean };
  readonly quirks: Quirks;
}

/**
 * Executes one request with one or more transactions (etcdserver/txn/txn.go). All compares come before all operations. The member
 * that got the request has checked its form (`AccessControl.admit`).
 */
export function executeTxns(context: TxnContext, txns: readonly Txn[]): Refusal | readonly TxnResult[] {
  const reading = { quirks: context.quirks, throughRaft: !isReadonly(txns) };
  const taken = txns.map((txn) => {
    const succeeded = txn.compare.every((compare) => holds(context.store, compare, reading));
    return { succeeded, operations: succeeded ? txn.success : txn.failure };
  });
  const refusal = check(context, taken);
  if (refusal) return refusal;
  return context.store.write(() =>
    taken.map(({ succeeded, operations }) => ({
      succeeded,
      ranges: operations.map((operation) => execute(context.store, operation, reading)),
    })),
  );
}

/** Nested transactions count as writes (IsTxnReadonly). */
export function isReadonly(txns: readonly Txn[]): boolean {
  const [only] = txns;
  return txns.length === 1 && only!.success.every(isRange) && only!.failure.every(isRange);
}

const isRange = ({ kind }: Operation): boolean => kind === "range";

/** The branch of each transaction that is executed. */
type Taken = readonly { readonly operations: readonly Operation[] }[];

function check(context: TxnContext, taken: Taken): Refusal | undefined {
  const puts = context.quirks.putsCheckedFirst ? firstRefusal(context, taken, "put") : undefined;
  return puts ?? firstRefusal(context, taken);
}

function firstRefusal(context: TxnContext, taken: Taken, only?: Operation["kind"]): Refusal | undefined {
  for (const { operations } of taken)
    for (const operation of operations) {
      const isSkipped = only !== undefined && operation.kind !== only;
      const refusal = isSkipped ? undefined : checkOperation(context, operation);
      if (refusal) return refusal;
    }
  return undefined;
}

function checkOperation({ store, leases }: TxnContext, operation: Operation): Refusal | undefined {
  switch (operation.kind) {
    case "put":
      return operation.leaseId === 0n || leases.has(operation.leaseId) ? undefined : LEASE_NOT_FOUND;
    case "range":
      return store.checkRevision(operation.revision);
    case "delete":
      return undefined;
  }
}

/** Reads see what the operations before them, of all transactions of the request, have written. */
function execute(store: Store, operation: Operation, reading: Reading): RangeResult | undefined {
  switch (operation.kind) {
    case "put":
      store.put(operation);
      return undefined;
    case "delete":
      store.delete(operation.key);
      return undefined;
    case "range": {
      const result = executeRange(store, operation, reading);
      // etcd panics (etcdserver/txn/txn.go): `check` has found out all reasons for a rejection.
      if (isRefusal(result)) throw new Error(`a checked range was rejected: ${result.refused}`);
      return result;
    }
  }
}

function holds(store: Store, compare: Compare, reading: Reading): boolean {
  const end = compare.kind === "nothing in" ? compare.end : undefined;
  const found = store.read(intervalOf(compare.key, end, emptyEnd(reading)));
  if (isRefusal(found)) return false;
  // The revisions of a key that does not exist are 0; its value equals nothing, not even the empty one.
  if (found.length === 0) return compare.kind === "nothing in" || isOfNoKey(compare);
  return found.every((kv) => matches(kv, compare));
}

const isOfNoKey = (compare: Exclude<Compare, { kind: "nothing in" }>): boolean =>
  compare.kind !== "value is" && compare.revision === 0n;

function matches(kv: KeyValue, compare: Compare): boolean {
  switch (compare.kind) {
    case "created at":
      return kv.createRevision === compare.revision;
    case "modified at":
      return kv.modRevision === compare.revision;
    case "value is":
      return kv.value === textOf(compare.value);
    case "nothing in":
      return false;
  }
}
