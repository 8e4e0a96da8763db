import type { KeyValue, Range } from "../etcd/port.js";
import { isLockValue } from "../kinds.js";
import { prefixOf } from "../keys.js";
import { queueRange } from "../queue/lock-mode.js";

/** The leader of an election, as every client reads it. */
export interface Leader {
  readonly key: string;
  /** The value that it campaigned with or last proclaimed. */
  readonly value: string;
  /** Create revision of `key`: strictly increases from leader to leader. */
  readonly fence: bigint;
  /** Modification revision of `key`: increases with each `proclaim`. */
  readonly revision: bigint;
  readonly leaseId: bigint;
  /** bigints as decimal strings. */
  toJSON(): Readonly<Record<"key" | "value" | "fence" | "revision" | "leaseId", string>>;
}

/** All candidates, leading or waiting, in the order of their turns. */
export const candidates = (name: string): Range => ({ ...queueRange(name), order: "oldest first" });

/** The leader, given the oldest key under the name. `prefix`: of the cluster. */
export function leaderOf(name: string, oldest: KeyValue | undefined, prefix: string): Leader | undefined {
  if (oldest === undefined) return undefined;
  const relative = oldest.key.toString();
  // An entry in the queue of a name below this one: while it is first, there is no leader.
  if (relative.includes("/", prefixOf(name).length)) return undefined;
  const key = `${prefix}${relative}`;
  const { value, createRevision, modRevision, leaseId } = oldest;
  // The entry of a lock under the name of the election: its value is no candidate's.
  if (isLockValue(value)) return undefined;
  const leader = { key, value, fence: createRevision, revision: modRevision, leaseId };
  const toJSON = (): ReturnType<Leader["toJSON"]> => ({
    key,
    value,
    fence: createRevision.toString(),
    revision: modRevision.toString(),
    leaseId: leaseId.toString(),
  });
  // Not enumerable, so that logs and comparisons see only the data.
  return Object.defineProperty(leader, "toJSON", { value: toJSON }) as Leader;
}

/** Whether both are the same leader with the same proclamation, or both are vacancies. */
export const sameLeader = (a: Leader | undefined, b: Leader | undefined): boolean =>
  a?.key === b?.key && a?.revision === b?.revision;
