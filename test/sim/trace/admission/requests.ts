import type { Compare, Operation, Range, Txn } from "../../../../src/etcd/port.js";
import { folderOf } from "./places.js";

/** What a transaction asks of a queue with places of several modes. */
export type SharedRequest =
  | {
      readonly is: "join" | "try";
      readonly key: string;
      readonly value: string;
      /** It reads who is before it. */
      readonly asks: boolean;
    }
  | { readonly is: "announcement"; readonly key: string; readonly created: number; readonly value: string }
  /** 0: the key is deleted only if it has this value. */
  | { readonly is: "leave"; readonly key: string; readonly created: number; readonly value: string }
  | { readonly is: "unknown"; readonly key: string }
  /** It writes nothing. */
  | { readonly is: "other" };

const OTHER = { is: "other" } as const;

const isWrite = (operation: Operation): operation is Exclude<Operation, { kind: "range" }> =>
  operation.kind !== "range";

export function sharedRequestOf(txn: Txn, locks: string): SharedRequest {
  const [write, ...more] = txn.success.filter(isWrite);
  const key = write && String(write.key);
  if (write === undefined || key === undefined || !key.startsWith(locks)) return OTHER;
  const unknown = { is: "unknown", key } as const;
  if (more.length > 0 || txn.failure.some(isWrite)) return unknown;
  if (txn.compare.some((each) => each.kind === "created at" && each.revision === -1n)) return OTHER;
  return write.kind === "delete" ? leaveOf(txn.compare, key) : putOf(txn, { key, value: write.value });
}

function leaveOf([compare, ...more]: readonly Compare[], key: string): SharedRequest {
  if (compare === undefined || more.length > 0 || String(compare.key) !== key) return { is: "unknown", key };
  if (compare.kind === "value is") return { is: "leave", key, created: 0, value: compare.value };
  if (compare.kind !== "created at") return { is: "unknown", key };
  return { is: "leave", key, created: Number(compare.revision), value: "" };
}

function putOf(txn: Txn, place: { readonly key: string; readonly value: string }): SharedRequest {
  const { key } = place;
  const [first, ...more] = txn.compare;
  const own = first?.kind === "created at" && String(first.key) === key ? first.revision : undefined;
  const asks = txn.success.some(({ kind }) => kind === "range");
  const isSame = more.every(({ kind, key: other }) => kind === "modified at" && String(other) === key);
  if (own !== undefined && own > 0n && isSame) return { is: "announcement", ...place, created: Number(own) };
  if (own === 0n && more.length === 0) return { is: "join", ...place, asks };
  if (isTry(txn.compare, key)) return { is: "try", ...place, asks };
  return { is: "unknown", key };
}

/** A mutex or a writer needs an empty queue; a reader one without keys before and behind those of readers, but for a known one. */
function isTry([first, ...more]: readonly Compare[], key: string): boolean {
  const { name, folder } = folderOf(key);
  if (folder !== "/read")
    return more.length === 0 && isCovered([`${name}/`, `${name}0`], first ? [first] : []);
  const own = first?.kind === "created at" && String(first.key) === key && first.revision === 0n;
  const [before, behind] = [[`${name}/`, `${name}/read/`] as const, [`${name}/read0`, `${name}0`] as const];
  return own && isCovered(before, more) && isCovered(behind, more);
}

/** Whether the compares leave no gap between the two keys. */
function isCovered([from, to]: readonly [string, string], compares: readonly Compare[]): boolean {
  const ends = new Map(
    compares.flatMap((each): [string, string][] => {
      if (each.kind === "nothing in") return [[each.key, each.end]];
      return each.kind === "modified at" ? [[each.key, `${each.key}\0`]] : [];
    }),
  );
  let at = from;
  while (at < to && ends.has(at)) at = ends.get(at)!;
  return at === to;
}

/** The create revision of the place that reads its queue, or undefined if none does. */
export function readerOf(
  ranges: readonly Range[],
  locks: string,
): { name: string; created: number } | undefined {
  const queues = ranges.filter(({ key, end }) => String(key).startsWith(locks) && end !== undefined);
  const [queue] = queues;
  if (queue?.maxCreateRevision === undefined) return undefined;
  const own = ranges.find(({ end }) => end === undefined);
  const name = own ? folderOf(String(own.key)).name : String(queue.key).slice(0, -1);
  // A reader asks for what is before it, all others for that and for their own key.
  return { name, created: Number(queue.maxCreateRevision) + (own ? 1 : 0) };
}
