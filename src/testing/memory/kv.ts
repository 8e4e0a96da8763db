// The requests of etcd's KV service as any client may send them: what leasehold's port leaves out, such as deletions of ranges,
// previous values, other compares, and transactions in transactions (etcdserver/txn, api/v3rpc/key.go).
import type { KeyValue } from "../../etcd/port.js";
import {
  DUPLICATE_KEY,
  EMPTY_KEY,
  INVALID_SORT,
  KEY_NOT_FOUND,
  LEASE_NOT_FOUND,
  LEASE_PROVIDED,
  type Refusal,
  TOO_MANY_OPERATIONS,
  VALUE_PROVIDED,
  isRefusal,
} from "./protocol.js";
import {
  type Interval,
  type LivingState,
  type Store,
  bytesOf,
  bytesOfValue,
  contains,
  intervalOf,
} from "./store.js";
import type { Quirks } from "./quirks.js";
import type { TxnContext } from "./txn.js";

/** The default of `--max-txn-ops`. */
export const MAX_OPERATIONS = 128;

/** How a request is read. */
export interface Reading {
  readonly quirks: Quirks;
  /** Writes go through raft, and so do transactions that could write. */
  readonly throughRaft: boolean;
}

export const emptyEnd = ({ quirks, throughRaft }: Reading): "" | undefined =>
  quirks.emptyEndIsOpen && !throughRaft ? "" : undefined;

/** A key without its value, as a keys-only range shows it. */
export const keysOnlyValue = <Kv extends KeyValue>(kv: Kv, { keysOnlyWithoutLeases }: Quirks): Kv => ({
  ...kv,
  value: "",
  ...("bytes" in kv && { bytes: undefined }),
  leaseId: keysOnlyWithoutLeases ? 0n : kv.leaseId,
});

export type KvRequest = KvRange | KvPut | KvDeletion | KvTxn;

export interface KvRange {
  readonly kind: "range";
  readonly key: Buffer;
  readonly end: Buffer | undefined;
  readonly limit: number;
  readonly revision: bigint;
  /** 0: none, 1: ascending, 2: descending. */
  readonly order: number;
  /** 0: key, 1: version, 2: create revision, 3: mod revision, 4: value. */
  readonly target: number;
  readonly serializable: boolean;
  readonly keysOnly: boolean;
  readonly countOnly: boolean;
  /** 0: no limit. */
  readonly minModRevision: bigint;
  readonly maxModRevision: bigint;
  readonly minCreateRevision: bigint;
  readonly maxCreateRevision: bigint;
}

export interface KvPut {
  readonly kind: "put";
  readonly key: Buffer;
  readonly value: Buffer;
  readonly leaseId: bigint;
  readonly previous: boolean;
  readonly ignoreValue: boolean;
  readonly ignoreLease: boolean;
}

export interface KvDeletion {
  readonly kind: "deletion";
  readonly key: Buffer;
  readonly end: Buffer | undefined;
  readonly previous: boolean;
}

export interface KvTxn {
  readonly kind: "txn";
  readonly compare: readonly KvCompare[];
  readonly success: readonly KvRequest[];
  readonly failure: readonly KvRequest[];
}

export interface KvCompare {
  readonly key: Buffer;
  readonly end: Buffer | undefined;
  /** 0: equal, 1: greater, 2: less, 3: not equal. */
  readonly result: number;
  /** 0: version, 1: create revision, 2: mod revision, 3: value, 4: lease. */
  readonly target: number;
  /** Of the target's type. */
  readonly with: bigint | Buffer;
}

export interface VersionedKeyValue extends KeyValue {
  readonly version: bigint;
}

export type KvAnswer =
  | {
      readonly kind: "range";
      readonly revision: bigint;
      readonly kvs: readonly VersionedKeyValue[];
      readonly more: boolean;
      readonly count: number;
    }
  | { readonly kind: "put"; readonly revision: bigint; readonly previous: VersionedKeyValue | undefined }
  | {
      readonly kind: "deletion";
      readonly revision: bigint;
      readonly deleted: number;
      readonly previous: readonly VersionedKeyValue[];
    }
  | {
      readonly kind: "txn";
      readonly revision: bigint;
      readonly succeeded: boolean;
      readonly answers: readonly KvAnswer[];
    };

export const versioned = ({ kv, version }: LivingState): VersionedKeyValue => ({ ...kv, version });

/** It needs no entry in the log. A transaction in a transaction counts as a write (IsTxnReadonly). */
export const onlyReads = (request: KvRequest): boolean =>
  request.kind === "range" ||
  (request.kind === "txn" && [...request.success, ...request.failure].every(({ kind }) => kind === "range"));

/** The member answers it from its own state. */
export const isSerializable = (request: KvRequest): boolean =>
  request.kind === "range"
    ? request.serializable
    : request.kind === "txn" && onlyReads(request) && branches(request).every(isSerializable);

/** The operations of both branches. */
export const branches = ({ success, failure }: KvTxn): readonly KvRequest[] => [...success, ...failure];

/** Whether it puts a key, in a branch that may not be taken, too. `nested`: whether transactions in it count. */
export const puts = (request: KvRequest, nested: boolean): boolean =>
  request.kind === "put" ||
  (request.kind === "txn" &&
    branches(request).some((each) => (nested || each.kind !== "txn") && puts(each, nested)));

/** What etcd rejects before anything else (api/v3rpc/key.go). */
export function checkKv(request: KvRequest, most = MAX_OPERATIONS): Refusal | undefined {
  if (request.kind !== "txn") return checkOne(request);
  const refusal = checkSizes(request, most);
  if (refusal) return refusal;
  const [then, otherwise] = [writesOf(request.success), writesOf(request.failure)];
  return isRefusal(then) ? then : isRefusal(otherwise) ? otherwise : undefined;
}

function checkOne(request: Exclude<KvRequest, KvTxn>): Refusal | undefined {
  if (request.key.length === 0) return EMPTY_KEY;
  if (request.kind === "range") return request.order > 2 || request.target > 4 ? INVALID_SORT : undefined;
  if (request.kind === "deletion") return undefined;
  if (request.ignoreValue && request.value.length > 0) return VALUE_PROVIDED;
  return request.ignoreLease && request.leaseId !== 0n ? LEASE_PROVIDED : undefined;
}

function checkSizes(request: KvRequest, most: number): Refusal | undefined {
  if (request.kind !== "txn") return checkOne(request);
  const { compare, success, failure } = request;
  const size = Math.max(compare.length, success.length, failure.length);
  if (size > most) return TOO_MANY_OPERATIONS;
  if (compare.some(({ key }) => key.length === 0)) return EMPTY_KEY;
  for (const each of [...success, ...failure]) {
    const refusal = checkSizes(each, most - size);
    if (refusal) return refusal;
  }
  return undefined;
}

interface Writes {
  readonly puts: Set<string>;
  readonly deletions: Deletions;
}

/** Single keys, and ranges: a range up to "\0" contains nothing here (checkIntervals). */
class Deletions {
  readonly #keys = new Set<string>();
  readonly #ranges: Interval[] = [];

  add({ key, end }: KvDeletion): void {
    if (end === undefined || end.length === 0) this.#keys.add(bytesOf(key));
    else this.#ranges.push({ key: bytesOf(key), end: bytesOf(end) });
  }

  addAll(other: Deletions): void {
    for (const key of other.#keys) this.#keys.add(key);
    this.#ranges.push(...other.#ranges);
  }

  has(name: string): boolean {
    return this.#keys.has(name) || this.#ranges.some((range) => contains(range, name));
  }
}

/** What a branch writes: a key that it puts may be in it only once, unless in both branches of one transaction. */
function writesOf(requests: readonly KvRequest[]): Refusal | Writes {
  const [names, deletions] = [new Set<string>(), new Deletions()];
  for (const each of requests) if (each.kind === "deletion") deletions.add(each);
  for (const each of requests) {
    if (each.kind !== "txn") continue;
    const [then, otherwise] = [writesOf(each.success), writesOf(each.failure)];
    if (isRefusal(then)) return then;
    if (isRefusal(otherwise)) return otherwise;
    for (const name of then.puts) {
      if (names.has(name) || deletions.has(name)) return DUPLICATE_KEY;
      names.add(name);
    }
    for (const name of otherwise.puts) {
      if ((names.has(name) && !then.puts.has(name)) || deletions.has(name)) return DUPLICATE_KEY;
      names.add(name);
    }
    deletions.addAll(then.deletions);
    deletions.addAll(otherwise.deletions);
  }
  for (const each of requests) {
    if (each.kind !== "put") continue;
    const name = bytesOf(each.key);
    if (names.has(name) || deletions.has(name)) return DUPLICATE_KEY;
    names.add(name);
  }
  return { puts: names, deletions };
}

/** A request of which each transaction has only the branch that is taken. */
type Taken = Exclude<KvRequest, KvTxn> | TakenTxn;

interface TakenTxn {
  readonly kind: "txn";
  readonly succeeded: boolean;
  readonly requests: readonly Taken[];
}

/** Executes a request that was checked. All compares, also those of transactions in it, come before all operations. */
export function executeKv(context: TxnContext, request: KvRequest): Refusal | KvAnswer {
  const { store, quirks } = context;
  const reading = { quirks, throughRaft: !onlyReads(request) };
  if (request.kind === "range") return readRange(store, request, reading);
  const taken = take(store, request, reading);
  const early = quirks.putsCheckedFirst ? check(context, taken, "put") : undefined;
  const refusal = early ?? check(context, taken);
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

function check(context: TxnContext, taken: Taken, only?: "put"): Refusal | undefined {
  const { store, leases } = context;
  if (taken.kind === "txn") {
    for (const each of taken.requests) {
      const refusal = check(context, each, only);
      if (refusal) return refusal;
    }
    return undefined;
  }
  if (taken.kind === "range") return only === undefined ? store.checkRevision(taken.revision) : undefined;
  if (taken.kind === "deletion") return undefined;
  if ((taken.ignoreValue || taken.ignoreLease) && store.versionOf(taken.key) === 0n) return KEY_NOT_FOUND;
  return taken.leaseId === 0n || leases.has(taken.leaseId) ? undefined : LEASE_NOT_FOUND;
}

function execute(store: Store, taken: Taken, reading: Reading): KvAnswer {
  switch (taken.kind) {
    case "txn": {
      const answers = taken.requests.map((each) => execute(store, each, reading));
      // etcd leaves the header of a transaction in a transaction empty.
      return { kind: "txn", revision: 0n, succeeded: taken.succeeded, answers };
    }
    case "range": {
      const answer = readRange(store, taken, reading);
      if (isRefusal(answer)) throw new Error(`a checked range was rejected: ${answer.refused}`);
      return answer;
    }
    case "put":
      return put(store, taken);
    case "deletion":
      return remove(store, taken);
  }
}

function put(store: Store, { key, value, leaseId, previous, ignoreValue, ignoreLease }: KvPut): KvAnswer {
  const before = store.stateAt(key, store.readRevision);
  store.put({
    key,
    value: ignoreValue && before ? bytesOfValue(before.kv) : value,
    leaseId: ignoreLease && before ? before.kv.leaseId : leaseId,
  });
  const { readRevision: revision } = store;
  return { kind: "put", revision, previous: previous && before ? versioned(before) : undefined };
}

function remove(store: Store, { key, end, previous }: KvDeletion): KvAnswer {
  const found = store.states(intervalOf(key, end)) as LivingState[];
  for (const { kv } of found) store.delete(kv.key);
  const { readRevision: revision } = store;
  return {
    kind: "deletion",
    revision,
    deleted: found.length,
    previous: previous ? found.map(versioned) : [],
  };
}

function holds(store: Store, compare: KvCompare, reading: Reading): boolean {
  const found = store.states(intervalOf(compare.key, compare.end, emptyEnd(reading)));
  if (isRefusal(found)) return false;
  // The revisions of a key that does not exist are 0; its value equals nothing, not even the empty one.
  if (found.length === 0) return compare.target !== VALUE && matches(NO_STATE, compare);
  return found.every((state) => matches(state, compare));
}

const VALUE = 3;
const NO_STATE: LivingState = {
  ...{ revision: 0n, version: 0n },
  kv: { key: Buffer.alloc(0), value: "", createRevision: 0n, modRevision: 0n, leaseId: 0n },
};

function matches(state: LivingState, { target, result, with: given }: KvCompare): boolean {
  const order =
    typeof given === "bigint"
      ? compareNumbers(numberOf(state, target), given)
      : Buffer.compare(bytesOfValue(state.kv), given);
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
const numberOf = ({ version, kv }: LivingState, target: number): bigint =>
  [version, kv.createRevision, kv.modRevision, 0n, kv.leaseId][target] ?? 0n;

const compareNumbers = (a: bigint, b: bigint): number => (a < b ? -1 : a > b ? 1 : 0);

/** executeRange: the filters come before the limit, and `count` is that of all keys in the range. */
function readRange(store: Store, range: KvRange, reading: Reading): Refusal | KvAnswer {
  const found = store.states(intervalOf(range.key, range.end, emptyEnd(reading)), range.revision);
  if (isRefusal(found)) return found;
  const { readRevision: revision } = store;
  const answer = { kind: "range", revision, count: found.length } as const;
  if (range.countOnly) return { ...answer, kvs: [], more: false };
  let states = found.filter(({ kv }) => isWanted(kv, range));
  if (limitsFirst(range)) states = states.slice(0, range.limit + 1);
  sort(states, range);
  const more = range.limit > 0 && states.length > range.limit;
  if (more) states = states.slice(0, range.limit);
  const kvs = states.map(versioned);
  if (!range.keysOnly) return { ...answer, kvs, more };
  // What is sorted by value is read with its values.
  const { quirks } = reading;
  const keysOnly = range.target === VALUE_TARGET ? { ...quirks, keysOnlyWithoutLeases: false } : quirks;
  return { ...answer, kvs: kvs.map((kv) => keysOnlyValue(kv, keysOnly)), more };
}

const VALUE_TARGET = 4;

/** Without an order and filters, etcd reads one key more than the limit, and sorts these by the target. */
const limitsFirst = (range: KvRange): boolean =>
  range.limit > 0 &&
  range.order === 0 &&
  range.minCreateRevision + range.maxCreateRevision + range.minModRevision + range.maxModRevision === 0n;

const isWanted = ({ createRevision, modRevision }: KeyValue, range: KvRange): boolean =>
  isBetween(createRevision, range.minCreateRevision, range.maxCreateRevision) &&
  isBetween(modRevision, range.minModRevision, range.maxModRevision);

const isBetween = (revision: bigint, min: bigint, max: bigint): boolean =>
  revision >= min && (max === 0n || revision <= max);

/** Without an order, another target than the key means ascending. */
function sort(states: LivingState[], { order, target }: KvRange): void {
  if (order === 0 && target === 0) return;
  const direction = order === 2 ? -1 : 1;
  // "key" is the order that they have.
  if (target === 0) return void (direction === -1 && states.reverse());
  const compare = (a: LivingState, b: LivingState): number =>
    target === VALUE_TARGET
      ? Buffer.compare(bytesOfValue(a.kv), bytesOfValue(b.kv))
      : compareNumbers(numberOf(a, target - 1), numberOf(b, target - 1));
  states.sort((a, b) => direction * compare(a, b));
}
