import type { KeyValue, Range, RangeAnswer } from "../../../src/etcd/port.js";
import { intervalOf } from "./bytes.js";
import type { Quirks } from "./quirks.js";
import { isRefusal } from "./refusals.js";
import type { Store } from "./store.js";
import type { Refusal } from "./types.js";

export type RangeResult = Omit<RangeAnswer, "header">;

/** How a request is read. */
export interface Reading {
  readonly quirks: Quirks;
  /** Writes go through raft, and so do transactions that could write. */
  readonly throughRaft: boolean;
}

export const emptyEnd = ({ quirks, throughRaft }: Reading): "" | undefined =>
  quirks.emptyEndIsOpen && !throughRaft ? "" : undefined;

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
  if (range.keysOnly) kvs = kvs.map((kv) => withoutValue(kv, reading.quirks));
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

const withoutValue = (kv: KeyValue, { keysOnlyWithoutLeases }: Quirks): KeyValue => ({
  ...kv,
  value: "",
  leaseId: keysOnlyWithoutLeases ? 0n : kv.leaseId,
});
