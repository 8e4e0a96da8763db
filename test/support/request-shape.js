// What an etcd request asks for, read from its protobuf bytes: enough to tell a join from a release.

/** Field numbers of `etcdserverpb.TxnRequest` and `RequestOp`. */
const BRANCHES = /** @type {Record<number, "success" | "failure">} */ ({ 2: "success", 3: "failure" });
const OPS = /** @type {Record<number, string>} */ ({ 1: "range", 2: "put", 3: "delete", 4: "txn" });

/**
 * @param {Buffer} bytes
 * @returns {Generator<{ field: number, value: Buffer }>} the length-delimited fields
 */
function* fieldsOf(bytes) {
  let at = 0;
  const varint = () => {
    let value = 0;
    for (let shift = 0; ; shift += 7) {
      const byte = bytes[at++];
      if (byte === undefined) throw new RangeError("Expected a protobuf message, got a truncated one");
      value += (byte & 0x7f) * 2 ** shift;
      if (byte < 0x80) return value;
    }
  };
  while (at < bytes.length) {
    const tag = varint();
    const wire = tag & 7;
    const size = wire === 0 ? (varint(), 0) : wire === 1 ? 8 : wire === 5 ? 4 : varint();
    if (wire === 2) yield { field: tag >>> 3, value: bytes.subarray(at, at + size) };
    at += size;
  }
}

/**
 * The kinds of operations per branch, those of nested transactions included.
 * @param {Buffer} bytes a `TxnRequest`
 * @returns {{ success: Set<string>, failure: Set<string> }}
 */
export function txnShape(bytes) {
  const shape = { success: new Set(), failure: new Set() };
  for (const { field, value } of fieldsOf(bytes)) {
    const branch = BRANCHES[field];
    if (branch === undefined) continue;
    for (const op of fieldsOf(value)) {
      const kind = OPS[op.field];
      if (kind !== "txn") shape[branch].add(kind);
      else
        for (const inner of Object.values(txnShape(op.value))) for (const it of inner) shape[branch].add(it);
    }
  }
  return shape;
}

/** @param {Buffer} bytes a `TxnRequest` @returns {boolean} it puts a place: a join or a tryLock */
export const takesPlace = (bytes) => txnShape(bytes).success.has("put");
/** @param {Buffer} bytes a `TxnRequest` @returns {boolean} it removes a place: a release or a cleanup */
export const givesBack = (bytes) => txnShape(bytes).success.has("delete");

/**
 * @param {Buffer} bytes a `LeaseGrantRequest`
 * @returns {bigint} the lease ID that the client chose; 0n if it left that to etcd
 */
export function grantedId(bytes) {
  // Field 1 is the TTL, a few bytes; field 2 the ID: both varints.
  let at = 0;
  const varint = () => {
    let value = 0n;
    for (let shift = 0n; at < bytes.length; shift += 7n) {
      const byte = BigInt(/** @type {number} */ (bytes[at++]));
      value |= (byte & 0x7fn) << shift;
      if (byte < 0x80n) break;
    }
    return value;
  };
  while (at < bytes.length) {
    const field = varint() >> 3n;
    const value = varint();
    if (field === 2n) return BigInt.asIntN(64, value);
  }
  return 0n;
}
