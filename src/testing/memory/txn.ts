import type { Compare, KeyValue, Operation, Range, RangeAnswer, Txn } from "../../etcd/port.js";
import { MAX_OPERATIONS, type Reading, emptyEnd, executeKv, keysOnlyValue } from "./kv.js";
import type { Leases } from "./leases.js";
import {
  DUPLICATE_KEY,
  EMPTY_KEY,
  LEASE_NOT_FOUND,
  type Refusal,
  TOO_MANY_OPERATIONS,
  type UnaryRequest,
  isRefusal,
} from "./protocol.js";
import type { Quirks } from "./quirks.js";
import { type Store, bytesOf, intervalOf, textOf } from "./store.js";

/** The state of a cluster, as one member has it. */
export interface Replica extends TxnContext {
  readonly leases: Leases;
}

/** The results of transactions, beside the refusal that a request may have as its result. */
export interface TxnResults {
  readonly txns: Exclude<ReturnType<typeof executeTxns>, { readonly refused: string }>;
}

/** What changes or reads the state of a member. */
export type Applied = Exclude<UnaryRequest, { kind: "timeToLive" | "authenticate" | "administer" }>;

/** Executes a request on the state of one member (etcdserver/apply). Returns a refusal, or the answer without its header. */
export function apply(replica: Replica, request: Applied): object {
  const { store, leases, quirks } = replica;
  switch (request.kind) {
    case "kv": {
      const kv = executeKv(replica, request.request);
      return isRefusal(kv) ? kv : { kv };
    }
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

/** What etcd rejects in a transaction before it executes anything (api/v3rpc/key.go). */

/** Several transactions are nested in one that compares nothing: those take as many operations off the limit of each. */
export function checkTxns(txns: readonly Txn[]): Refusal | undefined {
  const [only] = txns;
  if (only && txns.length === 1)
    return checkTxn(only, MAX_OPERATIONS) ?? checkBranch(only.success) ?? checkBranch(only.failure);
  if (txns.length > MAX_OPERATIONS) return TOO_MANY_OPERATIONS;
  for (const txn of txns) {
    const refusal = checkTxn(txn, MAX_OPERATIONS - txns.length);
    if (refusal) return refusal;
  }
  return checkNested(txns);
}

function checkTxn({ compare, success, failure }: Txn, most: number): Refusal | undefined {
  if (Math.max(compare.length, success.length, failure.length) > most) return TOO_MANY_OPERATIONS;
  return compare.some(hasNoKey) || success.some(hasNoKey) || failure.some(hasNoKey) ? EMPTY_KEY : undefined;
}

const hasNoKey = ({ key }: { readonly key: string | Buffer }): boolean => key.length === 0;

interface Writes {
  readonly puts: Set<string>;
  readonly deletions: Set<string>;
}

/** The keys that a branch writes. A key that it puts may be in it only once. */
function writesOf(operations: readonly Operation[]): Refusal | Writes {
  const deletions = new Set<string>();
  for (const { kind, key } of operations) if (kind === "delete") deletions.add(bytesOf(key));
  const puts = new Set<string>();
  for (const operation of operations) {
    if (operation.kind !== "put") continue;
    const key = bytesOf(operation.key);
    if (puts.has(key) || deletions.has(key)) return DUPLICATE_KEY;
    puts.add(key);
  }
  return { puts, deletions };
}

function checkBranch(operations: readonly Operation[]): Refusal | undefined {
  if (operations.length < 2) return undefined;
  const writes = writesOf(operations);
  return "refused" in writes ? writes : undefined;
}

/**
 * checkIntervals, level by level: a put is compared with the puts and the deletions of the transactions before it. A deletion
 * of what a transaction before it puts is not noticed.
 */
function checkNested(txns: readonly Txn[]): Refusal | undefined {
  const puts = new Set<string>();
  const deletions = new Set<string>();
  for (const { success, failure } of txns) {
    const then = writesOf(success);
    if ("refused" in then) return then;
    const otherwise = writesOf(failure);
    if ("refused" in otherwise) return otherwise;
    for (const key of then.puts) {
      if (puts.has(key) || deletions.has(key)) return DUPLICATE_KEY;
      puts.add(key);
    }
    for (const key of otherwise.puts) {
      // Only one of the two branches is executed.
      if ((puts.has(key) && !then.puts.has(key)) || deletions.has(key)) return DUPLICATE_KEY;
      puts.add(key);
    }
    for (const key of [...then.deletions, ...otherwise.deletions]) deletions.add(key);
  }
  return undefined;
}

export type RangeResult = Omit<RangeAnswer, "header">;

/**
 * Answers a range request (executeRange in etcdserver/txn). etcd reads the whole range if the request filters or sorts, and
 * applies the limit last: `more` refers to the filtered keys, `count` to all keys in the range.
 */
export function executeRange(store: Store, range: Range, reading: Reading): Refusal | RangeResult {
  const found = store.read(intervalOf(range.key, range.end, emptyEnd(reading)), range.revision);
  if (isRefusal(found)) return found;
  const { limit = 0, maxCreateRevision = 0n } = range;
  let kvs = found;
  if (maxCreateRevision !== 0n) kvs = kvs.filter((kv) => kv.createRevision <= maxCreateRevision);
  sort(kvs, range.order);
  const more = limit > 0 && kvs.length > limit;
  const count = found.length;
  if (more) kvs = kvs.slice(0, limit);
  if (range.keysOnly) kvs = kvs.map((kv) => keysOnlyValue(kv, reading.quirks));
  return { kvs, more, count };
}

/**
 * Keys of one create revision stay in the order of their bytes, in both directions. etcd does so up to 12 keys; beyond, its
 * order is that of Go's unstable sort.Sort, which is not reproduced here.
 */
function sort(kvs: KeyValue[], order: Range["order"]): void {
  if (order === undefined || kvs.length < 2) return;
  const direction = order === "oldest first" ? 1 : -1;
  kvs.sort(({ createRevision: a }, { createRevision: b }) => (a === b ? 0 : a < b ? -direction : direction));
}
