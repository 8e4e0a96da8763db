import {
  type KvAnswer,
  type KvCompare,
  type KvDeletion,
  type KvPut,
  type KvRange,
  type KvRequest,
  type KvTxn,
  type Order,
  type RangeResult,
  VALUE,
  onlyReads,
} from "./kv.js";
import type { Leases } from "./leases.js";
import { KEY_NOT_FOUND, LEASE_NOT_FOUND, type MemberRequest, type Refusal, isRefusal } from "./protocol.js";
import type { Quirks } from "./quirks.js";
import { type Store, type StoredKeyValue, bytesOfValue, intervalOf } from "./store.js";

/** The state of a cluster, as one member has it. */
export interface Replica {
  readonly store: Store;
  readonly leases: Leases;
  readonly quirks: Quirks;
}

/** What changes or reads the state of a member. */
export type Applied = Exclude<MemberRequest, { kind: "timeToLive" | "authenticate" | "administer" }>;

/** Executes a request on the state of one member (etcdserver/apply). Returns a refusal, or the answer without its header. */
export function apply(replica: Replica, request: Applied): object {
  const { store, leases } = replica;
  switch (request.kind) {
    case "kv": {
      const kv = executeKv(replica, request.request);
      return isRefusal(kv) ? kv : { kv };
    }
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

/** How a request is read. */
interface Reading {
  readonly quirks: Quirks;
  /** Writes go through raft, and so do transactions that could write. */
  readonly throughRaft: boolean;
}

/** A request of which each transaction has only the branch that is taken. */
type Taken = Exclude<KvRequest, KvTxn> | TakenTxn;

interface TakenTxn {
  readonly kind: "txn";
  readonly succeeded: boolean;
  readonly requests: readonly Taken[];
}

/**
 * Executes a request that the member that got it has checked (`AccessControl.admit`). All compares, also those of transactions in it,
 * come before all operations (etcdserver/txn/txn.go).
 */
function executeKv(replica: Replica, request: KvRequest): Refusal | KvAnswer {
  const { store, quirks } = replica;
  const reading = { quirks, throughRaft: !onlyReads(request) };
  if (request.kind === "range") return readRange(store, request, reading);
  const taken = take(store, request, reading);
  const early = quirks.putsCheckedFirst ? check(replica, taken, "put") : undefined;
  const refusal = early ?? check(replica, taken);
  if (refusal) return refusal;
  const answer = store.write(() => execute(store, taken, reading));
  return answer.kind === "txn" ? { ...answer, revision: store.revision } : answer;
}

function take(store: Store, request: KvRequest, reading: Reading): Taken {
  if (request.kind !== "txn") return request;
  const succeeded = request.compare.every((compare) => holds(store, compare, reading));
  const branch = succeeded ? request.success : request.failure;
  return { kind: "txn", succeeded, requests: branch.map((each) => take(store, each, reading)) };
}

function check(replica: Replica, taken: Taken, only?: "put"): Refusal | undefined {
  const { store, leases } = replica;
  switch (taken.kind) {
    case "txn":
      for (const each of taken.requests) {
        const refusal = check(replica, each, only);
        if (refusal) return refusal;
      }
      return undefined;
    case "range":
      return only === undefined ? store.checkRevision(taken.revision) : undefined;
    case "put":
      if ((taken.ignoreValue || taken.ignoreLease) && !store.present(taken.key)) return KEY_NOT_FOUND;
      return taken.leaseId === 0n || leases.has(taken.leaseId) ? undefined : LEASE_NOT_FOUND;
    case "delete":
      return undefined;
  }
}

/** Reads see what the operations before them, of all transactions of the request, have written. */
function execute(store: Store, taken: Taken, reading: Reading): KvAnswer {
  switch (taken.kind) {
    case "txn": {
      const answers = taken.requests.map((each) => execute(store, each, reading));
      // etcd leaves the header of a transaction in a transaction empty.
      return { kind: "txn", revision: 0n, succeeded: taken.succeeded, answers };
    }
    case "range": {
      const answer = readRange(store, taken, reading);
      // etcd panics (etcdserver/txn/txn.go): `check` has found out all reasons for a rejection.
      if (isRefusal(answer)) throw new Error(`a checked range was rejected: ${answer.refused}`);
      return answer;
    }
    case "put":
      return put(store, taken);
    case "delete":
      return remove(store, taken);
  }
}

function put(store: Store, { key, value, leaseId, previous, ignoreValue, ignoreLease }: KvPut): KvAnswer {
  const before = previous || ignoreValue || ignoreLease ? store.present(key) : undefined;
  store.put({
    key,
    value: ignoreValue && before ? bytesOfValue(before) : value,
    leaseId: ignoreLease && before ? before.leaseId : leaseId,
  });
  return { kind: "put", revision: store.readRevision, previous: previous ? before : undefined };
}

function remove(store: Store, { key, end, previous }: KvDeletion): KvAnswer {
  const found = store.read(intervalOf(key, end)) as StoredKeyValue[];
  for (const kv of found) store.delete(kv.key);
  const { readRevision: revision } = store;
  return { kind: "delete", revision, deleted: found.length, previous: previous ? found : [] };
}

function holds(store: Store, compare: KvCompare, reading: Reading): boolean {
  const found = store.read(intervalOf(compare.key, compare.end, emptyEnd(reading)));
  if (isRefusal(found)) return false;
  // The revisions of a key that does not exist are 0; its value equals nothing, not even the empty one.
  if (found.length === 0) return compare.target !== VALUE && matches(NO_KEY, compare);
  return found.every((kv) => matches(kv, compare));
}

const emptyEnd = ({ quirks, throughRaft }: Reading): "" | undefined =>
  quirks.emptyEndIsOpen && !throughRaft ? "" : undefined;

const NO_KEY: StoredKeyValue = {
  ...{ key: Buffer.alloc(0), value: "", createRevision: 0n, modRevision: 0n, version: 0n, leaseId: 0n },
};

function matches(kv: StoredKeyValue, { target, result, with: given }: KvCompare): boolean {
  const order =
    typeof given === "bigint"
      ? compareNumbers(numberOf(kv, target), given)
      : Buffer.compare(bytesOfValue(kv), given);
  switch (result) {
    case 0:
      return order === 0;
    case 1:
      return order > 0;
    case 2:
      return order < 0;
    default:
      return order !== 0;
  }
}

/** The numbers of a key by `KvCompare.target`. */
const NUMBERS = ["version", "createRevision", "modRevision", undefined, "leaseId"] as const;

function numberOf(kv: StoredKeyValue, target: number): bigint {
  const number = NUMBERS[target];
  return number === undefined ? 0n : kv[number];
}

const compareNumbers = (a: bigint, b: bigint): number => (a < b ? -1 : a > b ? 1 : 0);

/**
 * executeRange: `count` is that of all keys in the range, and `more` refers to the filtered ones. With an order or filters, etcd reads
 * the whole range, and applies the limit last. Otherwise it reads one key more than the limit, and sorts these by the target.
 */
function readRange(store: Store, range: KvRange, reading: Reading): Refusal | RangeResult {
  const found = store.read(intervalOf(range.key, range.end, emptyEnd(reading)), range.revision);
  if (isRefusal(found)) return found;
  const { limit = 0 } = range;
  const { readRevision: revision } = store;
  const count = found.length;
  if (range.countOnly) return { kind: "range", revision, kvs: [], more: false, count };
  const order = orderOf(range);
  const isFiltered = filters(range);
  let kvs = isFiltered ? found.filter((kv) => isWanted(kv, range)) : found;
  if (limit > 0 && order.direction === 0 && !isFiltered) kvs = kvs.slice(0, limit + 1);
  sort(kvs, order);
  const more = limit > 0 && kvs.length > limit;
  if (more) kvs = kvs.slice(0, limit);
  if (range.keysOnly) {
    // What is sorted by value is read with its values.
    const withLeases = order.target === VALUE_TARGET || !reading.quirks.keysOnlyWithoutLeases;
    kvs = kvs.map((kv) => ({ ...kv, value: "", bytes: undefined, leaseId: withLeases ? kv.leaseId : 0n }));
  }
  return { kind: "range", revision, kvs, more, count };
}

const VALUE_TARGET = 4;

const UNSORTED: Order = { direction: 0, target: 0 };
const OLDEST_FIRST: Order = { direction: 1, target: 2 };
const NEWEST_FIRST: Order = { direction: 2, target: 2 };

function orderOf({ order = UNSORTED }: KvRange): Order {
  if (typeof order === "object") return order;
  return order === "oldest first" ? OLDEST_FIRST : NEWEST_FIRST;
}

const filters = ({
  minCreateRevision = 0n,
  maxCreateRevision = 0n,
  minModRevision = 0n,
  maxModRevision = 0n,
}: KvRange): boolean =>
  minCreateRevision !== 0n || maxCreateRevision !== 0n || minModRevision !== 0n || maxModRevision !== 0n;

const isWanted = ({ createRevision, modRevision }: StoredKeyValue, range: KvRange): boolean =>
  isBetween(createRevision, range.minCreateRevision, range.maxCreateRevision) &&
  isBetween(modRevision, range.minModRevision, range.maxModRevision);

const isBetween = (revision: bigint, min = 0n, max = 0n): boolean =>
  revision >= min && (max === 0n || revision <= max);

/**
 * Without an order, another target than the key means ascending. Equal keys stay in the order of their bytes, in both directions. etcd
 * does so up to 12 keys; beyond, its order is that of Go's unstable sort.Sort, which is not reproduced here.
 */
function sort(kvs: StoredKeyValue[], { direction, target }: Order): void {
  const isDescending = direction === 2;
  // "key" is the order that they have.
  if (target === 0) return void (isDescending && kvs.reverse());
  const compare = (a: StoredKeyValue, b: StoredKeyValue): number =>
    target === VALUE_TARGET
      ? Buffer.compare(bytesOfValue(a), bytesOfValue(b))
      : compareNumbers(numberOf(a, target - 1), numberOf(b, target - 1));
  kvs.sort((a, b) => (isDescending ? -compare(a, b) : compare(a, b)));
}
