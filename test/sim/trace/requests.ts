import type { Operation, Range, Txn } from "../../../src/etcd/port.js";
import { MARKS } from "../../../src/keys.js";

/** A transaction of the protocol, as the model knows it. */
export type Request =
  | {
      readonly is: "join" | "try";
      readonly name: string;
      readonly key: string;
      readonly value: string;
      readonly lease: string;
      /** It reads who is before it. */
      readonly asks: boolean;
      /** How many names the transaction has. */
      readonly among: number;
      /** It also compares the mark of a slot of `once`, which may be the reason of a refusal. */
      readonly marks?: boolean;
    }
  | {
      readonly is: "leave";
      readonly name: string;
      readonly key: string;
      readonly lease: string;
      /** 0: the key is deleted only if it has this value. */
      readonly created: number;
      readonly value: string;
      readonly asks: boolean;
    }
  /** A holder puts its key again: a leader its next value, a permit its own one, to announce its grant. */
  | {
      readonly is: "proclaim" | "announcement";
      readonly name: string;
      readonly key: string;
      readonly lease: string;
      readonly created: number;
      /** A proclaim: the revision at which its client knows the key to be put last. */
      readonly modified: number;
      readonly value: string;
    }
  /** It changes no queue, or nothing at all. */
  | { readonly is: "other" }
  | { readonly is: "unknown"; readonly name: string; readonly key: string; readonly lease: string };

export type JoinRequest = Extract<Request, { is: "join" | "try" }>;
export type LeaveRequest = Extract<Request, { is: "leave" }>;

export const isJoin = (request: Request): request is JoinRequest =>
  request.is === "join" || request.is === "try";

const OTHER = { is: "other" } as const;

/** `name/lease` or `name/lease-n`. */
export function partsOf(key: string): { readonly name: string; readonly lease: string } {
  const slash = key.lastIndexOf("/");
  const [lease = ""] = key.slice(slash + 1).split("-");
  return { name: key.slice(0, slash), lease };
}

const isWrite = (operation: Operation): operation is Exclude<Operation, { kind: "range" }> =>
  operation.kind !== "range";

/** What a client asks with a transaction, for each name. Any that the model does not know is "unknown". */
export function requestsOf(asked: Txn, locks: string): Request[] {
  const txn = withoutMarks(asked);
  const requests = requestsOfQueues(txn, locks);
  const [request] = requests;
  const [end] = asked.success.flatMap((each) => endOf(each));
  if (end && !(request?.is === "leave" && request.key === end.key && request.created === end.created))
    return [{ is: "unknown", key: end.key, ...partsOf(end.key) }];
  const marks = txn.compare.length < asked.compare.length;
  return requests.map((each) => (isJoin(each) ? { ...each, marks } : each));
}

const isMark = ({ key }: { readonly key: string | Buffer }): boolean => String(key).startsWith(MARKS);

/** Marks are in no queue. */
const withoutMarks = (txn: Txn): Txn => ({
  ...txn,
  compare: txn.compare.filter((compare) => !isMark(compare)),
  success: txn.success.filter((operation) => !isMark(operation)),
});

/** The place whose run a put of a mark ends: only the deletion of that place may put it. */
function endOf(operation: Operation): { readonly key: string; readonly created: number }[] {
  if (operation.kind !== "put" || !isMark(operation)) return [];
  const { state, key, fence } = JSON.parse(operation.value) as Record<string, string>;
  return state === "started" ? [] : [{ key: key!, created: Number(fence) }];
}

function requestsOfQueues(txn: Txn, locks: string): Request[] {
  const writes = txn.success.filter(isWrite);
  const [first] = writes;
  if (first === undefined || writes.length === 1 || !String(first.key).startsWith(locks))
    return [requestOf(txn, locks)];
  const keys = writes.map(({ key }) => String(key));
  const unknown = { is: "unknown", key: keys.join(" and "), ...partsOf(keys[0]!) } as const;
  const apart = txn.compare.length === keys.length && writes.length === txn.success.length;
  const parts = writes.flatMap((write, i): Request[] =>
    apart && write.kind === "put" && !txn.failure.some(isWrite)
      ? [putOf({ ...txn, compare: [txn.compare[i]!] }, { ...write, key: keys[i]! }, unknown)]
      : [unknown],
  );
  const joint = parts.every(({ is }) => is === parts[0]!.is && (is === "try" || is === "join"));
  return joint ? parts.map((part) => ({ ...part, among: parts.length }) as Request) : [unknown];
}

/** The queues that a transaction without writes reads. */
export const readsOf = ({ success }: Txn, locks: string): ReadRequest[] =>
  success.some(isWrite)
    ? []
    : success.map((range) => (range.kind === "range" ? readOf(range, locks) : OTHER));

function requestOf(txn: Txn, locks: string): Request {
  const [write, ...more] = txn.success.filter(isWrite);
  const key = write && String(write.key);
  if (write === undefined || key === undefined || !key.startsWith(locks)) return OTHER;
  const unknown = { is: "unknown", key, ...partsOf(key) } as const;
  if (more.length > 0 || txn.failure.some(isWrite)) return unknown;
  return write.kind === "put" ? putOf(txn, { ...write, key }, unknown) : (leaveOf(txn, key) ?? unknown);
}

function putOf(txn: Txn, { key, value }: { key: string; value: string }, unknown: Request): Request {
  const [compare, ...more] = txn.compare;
  if (compare === undefined) return unknown;
  // It checks whether the lease is the reason for a rejection: it never holds.
  if (txn.compare.some((each) => each.kind === "created at" && each.revision === -1n)) return OTHER;
  const { name, lease } = partsOf(key);
  const place = { name, key, value, lease, among: 1 };
  const asks = txn.success.some(({ kind }) => kind === "range");
  if (compare.kind === "created at" && compare.revision > 0n) return rewriteOf(txn, place) ?? unknown;
  if (more.length > 0 || String(compare.key) !== (compare.kind === "nothing in" ? `${name}/` : key))
    return unknown;
  if (compare.kind === "nothing in") return { is: "try", ...place, asks };
  return compare.kind === "created at" && compare.revision === 0n ? { is: "join", ...place, asks } : unknown;
}

function rewriteOf(
  { compare: [created, modified, ...more] }: Txn,
  place: { readonly name: string; readonly key: string; readonly lease: string; readonly value: string },
): Request | undefined {
  if (created?.kind !== "created at" || String(created.key) !== place.key || more.length > 0)
    return undefined;
  const { name, key, lease, value } = place;
  const rewrite = { name, key, lease, value, created: Number(created.revision) };
  if (modified === undefined) return { is: "announcement", ...rewrite, modified: 0 };
  if (modified.kind !== "modified at" || modified.key !== place.key) return undefined;
  return { is: "proclaim", ...rewrite, modified: Number(modified.revision) };
}

function leaveOf(txn: Txn, key: string): Request | undefined {
  const [compare, ...more] = txn.compare;
  if (compare === undefined || more.length > 0 || String(compare.key) !== key) return undefined;
  const asks = txn.success.length > 1;
  const leave = { is: "leave", key, ...partsOf(key), asks } as const;
  if (compare.kind === "value is") return { ...leave, created: 0, value: compare.value };
  if (compare.kind !== "created at") return undefined;
  return { ...leave, created: Number(compare.revision), value: "" };
}

/** A read of the queue by the place that was created at `revision`, or of one key. */
export type ReadRequest =
  | { readonly is: "queue"; readonly name: string; readonly place: number; readonly quorum: boolean }
  | { readonly is: "key"; readonly name: string; readonly lease: string; readonly key: string }
  | { readonly is: "other" };

export function readOf({ key, end, maxCreateRevision, serializable }: Range, locks: string): ReadRequest {
  const text = String(key);
  if (!text.startsWith(locks)) return OTHER;
  if (end === undefined) return { is: "key", key: text, ...partsOf(text) };
  if (maxCreateRevision === undefined) return OTHER;
  const place = Number(maxCreateRevision);
  return { is: "queue", name: text.slice(0, -1), place, quorum: serializable !== true };
}
