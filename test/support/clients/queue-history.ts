import type { Operation, RangeAnswer, Txn, TxnAnswer } from "../../../src/etcd/port.js";

/** A transaction of a queue, from its call to its answer, in times of one clock. */
export interface Done {
  readonly txn: Txn;
  readonly answer: TxnAnswer;
  readonly asked: number;
  readonly answered: number;
}

interface Key {
  readonly value: string;
  /** Create revision. */
  readonly revision: bigint;
}
export type Keys = ReadonlyMap<string, Key>;

/**
 * Whether there is a sequential order, consistent with real time (no transaction comes before one that had been
 * answered when it was sent), that gives every transaction the answer that it got and ends with `after`. Tries all
 * orders, so only for a few transactions.
 */
export function hasOrder(done: readonly Done[], before: Keys, after: Keys): boolean {
  if (done.length === 0) return sameKeys(before, after);
  const firstAnswered = Math.min(...done.map(({ answered }) => answered));
  return done.some((next) => {
    const keys = next.asked < firstAnswered ? applied(next, before) : undefined;
    const rest = done.filter((other) => other !== next);
    return keys !== undefined && hasOrder(rest, keys, after);
  });
}

const sameKeys = (keys: Keys, others: Keys): boolean =>
  keys.size === others.size &&
  [...keys].every(([key, { revision, value }]) => {
    const other = others.get(key);
    return other?.revision === revision && other.value === value;
  });

/** The keys after it; undefined if its answer would have been different on these keys. */
function applied({ txn, answer }: Done, before: Keys): Keys | undefined {
  const succeeds = txn.compare.every((compare) => {
    if (compare.kind === "nothing in") return within(before, compare).length === 0;
    if (compare.kind === "nothing since")
      return within(before, compare).every((key) => before.get(key)!.revision <= compare.revision);
    const there = before.get(compare.key.toString());
    return compare.kind === "value is"
      ? there?.value === compare.value
      : (there?.revision ?? 0n) === compare.revision;
  });
  if (succeeds !== answer.succeeded) return undefined;
  const keys = new Map(before);
  const operations = succeeds ? txn.success : txn.failure;
  const told = operations.every((operation, i) => asTold(keys, operation, answer, i));
  return told ? keys : undefined;
}

/** Applies the operation to `keys`; false if the answer contradicts it. */
function asTold(keys: Map<string, Key>, operation: Operation, answer: TxnAnswer, i: number): boolean {
  if (operation.kind === "range") return sameRange(keys, operation, answer.ranges[i]);
  if (operation.kind === "delete") return keys.delete(operation.key.toString());
  const { revision } = answer.header;
  const queue = queueOf(operation.key);
  // The order of a queue is that of its create revisions: they are unique, and a later key has a higher one.
  const last = [...keys].every(([key, old]) => !nested(queueOf(key), queue) || old.revision < revision);
  keys.set(operation.key, { value: operation.value, revision });
  return last;
}

const queueOf = (key: string): string => key.slice(0, key.lastIndexOf("/"));
const nested = (a: string, b: string): boolean => `${a}/`.startsWith(`${b}/`) || `${b}/`.startsWith(`${a}/`);

const within = (
  keys: Keys,
  { key, end }: { readonly key: string | Buffer; readonly end?: string | Buffer },
): string[] => {
  const from = key.toString();
  return [...keys.keys()].filter((each) => (end === undefined ? each === from : each >= from && each < end));
};

type RangeOperation = Extract<Operation, { kind: "range" }>;

function sameRange(
  keys: Keys,
  range: RangeOperation,
  told: Omit<RangeAnswer, "header"> | undefined,
): boolean {
  const all = within(keys, range);
  const revisionOf = (key: string): bigint => keys.get(key)?.revision ?? 0n;
  const sign = range.order === "newest first" ? -1 : 1;
  const found = all
    .filter((key) => revisionOf(key) <= (range.maxCreateRevision ?? revisionOf(key)))
    .sort((a, b) => sign * Number(revisionOf(a) - revisionOf(b)))
    .slice(0, range.limit ?? all.length);
  const actual = told?.kvs.map(({ key, createRevision }) => `${key.toString()}@${createRevision}`);
  return (
    told?.count === all.length && actual?.join() === found.map((key) => `${key}@${revisionOf(key)}`).join()
  );
}
