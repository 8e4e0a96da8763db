// The bytes of protobuf messages, by field numbers: for answers that no generated code would produce.

/**
 * A number or bigint is a varint, text and bytes are length-delimited, a list is a nested message.
 * @typedef {number | bigint | boolean | string | Uint8Array | Field[]} Value
 * @typedef {[number: number, value: Value]} Field
 */

/** @param {number | bigint} value negative ones as etcd writes them: two's complement in 64 bits */
function varint(value) {
  const bytes = [];
  let rest = BigInt.asUintN(64, BigInt(value));
  for (; rest > 0x7fn; rest >>= 7n) bytes.push(Number(rest & 0x7fn) | 0x80);
  return Buffer.from([...bytes, Number(rest)]);
}

/** @param {Field} field */
function fieldBytes([number, value]) {
  if (typeof value === "number" || typeof value === "bigint" || typeof value === "boolean")
    return Buffer.concat([varint(number << 3), varint(typeof value === "boolean" ? Number(value) : value)]);
  const body = Array.isArray(value) ? message(value) : Buffer.from(value);
  return Buffer.concat([varint((number << 3) | 2), varint(body.length), body]);
}

/** @param {readonly Field[]} fields @returns {Buffer} */
export const message = (fields) => Buffer.concat(fields.map(fieldBytes));

/**
 * Varints as bigints, everything length-delimited as bytes: `message(fieldsOf(bytes))` is the same message.
 * @param {Uint8Array} bytes
 * @returns {[number: number, value: bigint | Buffer][]}
 */
export function fieldsOf(bytes) {
  const buffer = Buffer.from(bytes);
  /** @type {[number: number, value: bigint | Buffer][]} */
  const fields = [];
  let at = 0;
  const next = () => {
    let value = 0n;
    for (let shift = 0n; ; shift += 7n) {
      const byte = buffer[at++];
      if (byte === undefined) throw new RangeError("Expected a protobuf message, got a truncated one");
      value |= BigInt(byte & 0x7f) << shift;
      if (byte < 0x80) return value;
    }
  };
  const nextBytes = () => {
    const size = Number(next());
    at += size;
    return buffer.subarray(at - size, at);
  };
  while (at < buffer.length) {
    const tag = Number(next());
    fields.push([tag >>> 3, (tag & 7) === 0 ? next() : nextBytes()]);
  }
  return fields;
}

/**
 * The first field with that number; undefined for a missing message.
 * @param {Uint8Array | bigint | undefined} bytes @param {number} number
 */
export const fieldOf = (bytes, number) =>
  bytes instanceof Uint8Array ? fieldsOf(bytes).find(([each]) => each === number)?.[1] : undefined;
