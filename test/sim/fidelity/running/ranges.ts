import type { Key } from "../programs/program.js";

const bytes = (key: Key): Buffer => (typeof key === "string" ? Buffer.from(key) : key);

/** Whether a watch of `key` to `end` covers `found`, by the rules of etcd's rpc.proto for `range_end`. An empty key is "\0". */
export function covers(key: Key, end: Key | undefined, found: Buffer): boolean {
  const low = bytes(key.length === 0 ? "\0" : key);
  const high = end === undefined ? Buffer.alloc(0) : bytes(end);
  if (high.length === 0) return low.equals(found);
  if (Buffer.compare(found, low) < 0) return false;
  return (high.length === 1 && high[0] === 0) || Buffer.compare(found, high) < 0;
}
