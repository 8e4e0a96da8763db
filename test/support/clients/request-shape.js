// What an etcd request contains, read from its protobuf bytes: enough to distinguish a join from a release.
import { fieldOf, fieldsOf } from "./protobuf.js";

/** Field numbers of `etcdserverpb.TxnRequest` and `RequestOp`. */
const BRANCHES = /** @type {Record<number, "success" | "failure">} */ ({ 2: "success", 3: "failure" });
const OPS = /** @type {Record<number, string>} */ ({ 1: "range", 2: "put", 3: "delete", 4: "txn" });

/**
 * The kinds of operations per branch, those of nested transactions included.
 * @param {Buffer} bytes a `TxnRequest`
 * @returns {{ success: Set<string>, failure: Set<string> }}
 */
export function txnShape(bytes) {
  const shape = { success: new Set(), failure: new Set() };
  for (const [field, value] of fieldsOf(bytes)) {
    const branch = BRANCHES[field];
    if (branch === undefined) continue;
    for (const [op, request] of fieldsOf(/** @type {Buffer} */ (value))) {
      const kind = OPS[op];
      if (kind !== "txn") shape[branch].add(kind);
      else
        for (const inner of Object.values(txnShape(/** @type {Buffer} */ (request))))
          for (const it of inner) shape[branch].add(it);
    }
  }
  return shape;
}

/** @param {Buffer} bytes a `TxnRequest` @returns {boolean} it puts a place: a join or a tryLock */
export const takesPlace = (bytes) => txnShape(bytes).success.has("put");
/** @param {Buffer} bytes a `TxnRequest` @returns {boolean} it removes a place: a release or a cleanup */
export const givesBack = (bytes) => txnShape(bytes).success.has("delete");

/** @param {Buffer} bytes a `TxnRequest` @returns {boolean} several transactions in one */
export const isBatch = (bytes) =>
  fieldsOf(bytes).some(
    ([branch, value]) =>
      BRANCHES[branch] !== undefined &&
      fieldsOf(/** @type {Buffer} */ (value)).some(([op]) => OPS[op] === "txn"),
  );

/**
 * @param {Buffer} bytes a `LeaseGrantRequest`
 * @returns {bigint} the lease ID that the client chose; 0n if it left that to etcd
 */
export const grantedId = (bytes) =>
  // Field 1 is the TTL, field 2 the ID.
  BigInt.asIntN(64, /** @type {bigint} */ (fieldOf(bytes, 2) ?? 0n));
