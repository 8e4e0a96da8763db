// The requests of etcd's KV service as any client may send them; one engine executes them all (txn.ts). A range, a put or a deletion of
// leasehold's port is such a request as it is, and `oneTxn` makes one of the port's transactions.
import type { Compare, Range, Txn } from "../../etcd/port.js";
import {
  DUPLICATE_KEY,
  EMPTY_KEY,
  INVALID_SORT,
  LEASE_PROVIDED,
  type Refusal,
  TOO_MANY_OPERATIONS,
  VALUE_PROVIDED,
} from "./protocol.js";
import { type Interval, type StoredKeyValue, bytesOf, contains } from "./store.js";

/** The default of `--max-txn-ops`. */
const MAX_OPERATIONS = 128;

export type KvRequest = KvRange | KvPut | KvDeletion | KvTxn;

export interface KvRange extends Omit<Range, "order"> {
  readonly kind: "range";
  readonly order?: Range["order"] | Order;
  readonly countOnly?: boolean;
  /** 0: no limit, as for `maxCreateRevision`. */
  readonly minModRevision?: bigint;
  readonly maxModRevision?: bigint;
  readonly minCreateRevision?: bigint;
}

/** How a range is sorted. */
export interface Order {
  /** 0: none, 1: ascending, 2: descending. */
  readonly direction: number;
  /** 0: key, 1: version, 2: create revision, 3: mod revision, 4: value. */
  readonly target: number;
}

export interface KvPut {
  readonly kind: "put";
  readonly key: string | Buffer;
  readonly value: string | Buffer;
  readonly leaseId: bigint;
  readonly previous?: boolean;
  readonly ignoreValue?: boolean;
  readonly ignoreLease?: boolean;
}

export interface KvDeletion {
  readonly kind: "delete";
  readonly key: string | Buffer;
  readonly end?: string | Buffer;
  readonly previous?: boolean;
}

export interface KvTxn {
  readonly kind: "txn";
  readonly compare: readonly KvCompare[];
  readonly success: readonly KvRequest[];
  readonly failure: readonly KvRequest[];
}

export interface KvCompare {
  readonly key: string | Buffer;
  readonly end?: string | Buffer | undefined;
  /** 0: equal, 1: greater, 2: less, 3: not equal. */
  readonly result: number;
  /** 0: version, 1: create revision, 2: mod revision, 3: value, 4: lease. */
  readonly target: number;
  /** Of the target's type. */
  readonly with: bigint | Buffer;
}

export type KvAnswer = RangeResult | PutResult | DeletionResult | TxnResult;

export interface RangeResult {
  readonly kind: "range";
  readonly revision: bigint;
  readonly kvs: readonly StoredKeyValue[];
  readonly more: boolean;
  readonly count: number;
}

interface PutResult {
  readonly kind: "put";
  readonly revision: bigint;
  readonly previous: StoredKeyValue | undefined;
}

interface DeletionResult {
  readonly kind: "delete";
  readonly revision: bigint;
  readonly deleted: number;
  readonly previous: readonly StoredKeyValue[];
}

export interface TxnResult {
  readonly kind: "txn";
  readonly revision: bigint;
  readonly succeeded: boolean;
  readonly answers: readonly KvAnswer[];
}

/** The transactions of one request of the port: several are nested in one that compares nothing. */
export function oneTxn(txns: readonly Txn[]): KvTxn {
  const all = txns.map(({ compare, success, failure }): KvTxn => ({
    ...{ kind: "txn", compare: compare.map(compareOf), success, failure },
  }));
  return all.length === 1 ? all[0]! : { kind: "txn", compare: [], success: all, failure: [] };
}

function compareOf(compare: Compare): KvCompare {
  const { key } = compare;
  switch (compare.kind) {
    case "created at":
      return createdAt(key, compare.revision);
    case "nothing in":
      return { ...createdAt(key, 0n), end: compare.end };
    case "nothing since":
      // On the wire, it has 64 bits.
      return {
        ...createdAt(key, BigInt.asIntN(64, compare.revision + 1n)),
        result: LESS,
        end: compare.end,
      };
    case "modified at":
      return { key, result: EQUAL, target: MOD_REVISION, with: compare.revision };
    case "value is":
      return { key, result: EQUAL, target: VALUE, with: Buffer.from(compare.value) };
  }
}

export const createdAt = (key: string | Buffer, revision: bigint): KvCompare => ({
  ...{ key, result: EQUAL, target: CREATE_REVISION, with: revision },
});

const [EQUAL, LESS] = [0, 2];
const [CREATE_REVISION, MOD_REVISION] = [1, 2];
export const VALUE = 3;

/** It needs no entry in the log. A transaction in a transaction counts as a write (IsTxnReadonly). */
export const onlyReads = (request: KvRequest): boolean =>
  request.kind === "range" ||
  (request.kind === "txn" && request.success.every(isRange) && request.failure.every(isRange));

const isRange = ({ kind }: KvRequest): boolean => kind === "range";

/** The member answers it from its own state. */
export const isSerializable = (request: KvRequest): boolean =>
  request.kind === "range"
    ? request.serializable === true
    : request.kind === "txn" && onlyReads(request) && branches(request).every(isSerializable);

/** The operations of both branches. */
export const branches = ({ success, failure }: KvTxn): readonly KvRequest[] => [...success, ...failure];

/** Whether it puts a key, in a branch that may not be taken, too. `nested`: whether transactions in it count. */
export const puts = (request: KvRequest, nested: boolean): boolean =>
  request.kind === "put" ||
  (request.kind === "txn" &&
    branches(request).some((each) => (nested || each.kind !== "txn") && puts(each, nested)));

/** What etcd rejects before anything else (api/v3rpc/key.go). */
export function checkKv(request: KvRequest): Refusal | undefined {
  const refusal = checkForm(request, MAX_OPERATIONS);
  if (refusal || request.kind !== "txn") return refusal;
  return writesOf(request.success) && writesOf(request.failure) ? undefined : DUPLICATE_KEY;
}

/** Each transaction takes as many operations as its longest list has off the limit of those in it. */
function checkForm(request: KvRequest, most: number): Refusal | undefined {
  if (request.kind !== "txn") return checkOperation(request);
  const { compare, success, failure } = request;
  const size = Math.max(compare.length, success.length, failure.length);
  if (size > most) return TOO_MANY_OPERATIONS;
  if (compare.some(({ key }) => key.length === 0)) return EMPTY_KEY;
  for (const branch of [success, failure])
    for (const each of branch) {
      const refusal = checkForm(each, most - size);
      if (refusal) return refusal;
    }
  return undefined;
}

function checkOperation(request: Exclude<KvRequest, KvTxn>): Refusal | undefined {
  if (request.key.length === 0) return EMPTY_KEY;
  switch (request.kind) {
    case "range": {
      const { order } = request;
      return typeof order === "object" && (order.direction > 2 || order.target > 4)
        ? INVALID_SORT
        : undefined;
    }
    case "put":
      if (request.ignoreValue && request.value.length > 0) return VALUE_PROVIDED;
      return request.ignoreLease && request.leaseId !== 0n ? LEASE_PROVIDED : undefined;
    case "delete":
      return undefined;
  }
}

/** What a branch writes. */
class Writes {
  readonly puts = new Set<string>();
  readonly deletions: Interval[] = [];

  /** Whether none of the keys was written before, except by the other branch: only one of them is executed. */
  put(keys: Iterable<string>, other?: Writes): boolean {
    for (const key of keys) {
      if (this.puts.has(key) && !other?.puts.has(key)) return false;
      if (this.deletions.some((range) => contains(range, key))) return false;
      this.puts.add(key);
    }
    return true;
  }
}

/** Undefined: it puts a key that it also puts or deletes. A deletion of what a transaction before it puts is not noticed (checkIntervals). */
function writesOf(requests: readonly KvRequest[]): Writes | undefined {
  const writes = new Writes();
  for (const each of requests) if (each.kind === "delete") writes.deletions.push(deletedBy(each));
  for (const each of requests) {
    if (each.kind !== "txn") continue;
    const [then, otherwise] = [writesOf(each.success), writesOf(each.failure)];
    if (!then || !otherwise || !writes.put(then.puts) || !writes.put(otherwise.puts, then)) return undefined;
    writes.deletions.push(...then.deletions, ...otherwise.deletions);
  }
  for (const each of requests) if (each.kind === "put" && !writes.put([bytesOf(each.key)])) return undefined;
  return writes;
}

/** An empty end is none here, and a range up to "\0" contains nothing (checkIntervals). */
const deletedBy = ({ key, end = "" }: KvDeletion): Interval => ({
  key: bytesOf(key),
  end: end.length === 0 ? undefined : bytesOf(end),
});
