import type { AuthInfo } from "../auth/tokens.js";
import type { Change } from "../store.js";
import type { UnaryRequest } from "../types.js";

export interface Verdict {
  /** A refusal, or the answer without its header. */
  readonly result: object;
  /** The permissions and the quota let it pass. */
  readonly isExecuted: boolean;
  /** What it changed in the store. */
  readonly change: Change | undefined;
}

/** A request on its way into the log. Its member knows it again when it is applied. */
export interface Proposal {
  readonly request: UnaryRequest;
  /** The user of the request; undefined: no permission is checked. */
  readonly info?: AuthInfo | undefined;
  /** Decided once, when it is committed: users, roles and the quota are not part of the members' states. */
  verdict?: Verdict;
}

/** One entry of the log. Two members have the same entry if it is the same object. */
export interface Entry {
  readonly term: bigint;
  /** `undefined`: the entry with which a leader begins its term. */
  readonly proposal: Proposal | undefined;
}

/** A part of the leader's log: its first `length` entries. The array may grow; its first `length` entries do not change. */
export interface LogPart {
  readonly entries: readonly Entry[];
  readonly length: number;
}

/** Makes `log` begin with the part. Entries of `log` that differ from it are removed, in a copy. Returns the log. */
export function merged(log: Entry[], { entries, length }: LogPart): Entry[] {
  let same = Math.min(log.length, length);
  // Equal entries have equal entries before them (Log Matching, Raft section 5.3).
  while (same > 0 && log[same - 1] !== entries[same - 1]) same--;
  const result = same < log.length && same < length ? log.slice(0, same) : log;
  for (let n = same; n < length; n++) if (n >= result.length) result.push(entries[n]!);
  return result;
}

/** Whether a candidate with log `a` may lead a member with log `b` (Raft section 5.4.1). */
export function isUpToDate(a: readonly Entry[], b: readonly Entry[]): boolean {
  const [lastOfA, lastOfB] = [a.at(-1)?.term ?? 0n, b.at(-1)?.term ?? 0n];
  return lastOfA === lastOfB ? a.length >= b.length : lastOfA > lastOfB;
}
