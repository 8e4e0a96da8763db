import type { KeyValue, Range } from "../etcd/port.js";
import { prefixOf } from "../keys.js";
import { queueRange } from "../queue/lock-mode.js";

/** Who leads an election, as everybody sees it. */
export interface Leader {
  readonly key: string;
  /** What it campaigned with, or has proclaimed since. */
  readonly value: string;
  /** Create revision of `key`: strictly rises from leader to leader. */
  readonly fence: bigint;
  /** Modification revision: rises with each `proclaim`. */
  readonly revision: bigint;
  readonly leaseId: bigint;
  /** bigints as decimal strings. */
  toJSON(): Readonly<Record<"key" | "value" | "fence" | "revision" | "leaseId", string>>;
}

/** All who lead or wait to lead, the one whose turn it is first. */
export const candidates = (name: string): Range => ({ ...queueRange(name), order: "oldest first" });

/** Who leads when `oldest` is the oldest key under the name. */
export function leaderOf(name: string, oldest: KeyValue | undefined): Leader | undefined {
  if (oldest === undefined) return undefined;
  const key = oldest.key.toString();
  // A place in the queue of a name below this one: while it comes first, nobody leads.
  if (key.includes("/", prefixOf(name).length)) return undefined;
  const { value, createRevision, modRevision, leaseId } = oldest;
  const leader = { key, value, fence: createRevision, revision: modRevision, leaseId };
  const toJSON = (): ReturnType<Leader["toJSON"]> => ({
    key,
    value,
    fence: createRevision.toString(),
    revision: modRevision.toString(),
    leaseId: leaseId.toString(),
  });
  // Not enumerable, so that what is logged or compared is the data.
  return Object.defineProperty(leader, "toJSON", { value: toJSON }) as Leader;
}

/** Is it the same leader with the same proclamation, or still nobody? */
export const sameLeader = (a: Leader | undefined, b: Leader | undefined): boolean =>
  a?.key === b?.key && a?.revision === b?.revision;
