import type { InspectedKey, QueueKind } from "./entry.js";

/** The entries of a queue, in its order. */
export interface Split<E> {
  readonly holders: readonly E[];
  readonly waiters: readonly E[];
}

/** What the judgement is made of. */
export type Judged = Pick<InspectedKey, "place"> & { readonly facts: Pick<InspectedKey["facts"], "permits"> };

/**
 * Who holds, by the rules of the lock modes in queue/: every key under the name counts, of whatever client. A reader holds
 * while only readers are before it; a permit, while fewer keys are before it than the oldest one has in its value (1 if it
 * has none); any other key, while it is the oldest.
 */
export function splitQueue<E extends Judged>(entries: readonly E[]): Split<E> {
  const permits = entries[0]?.facts.permits ?? 1;
  const holders: E[] = [];
  const waiters: E[] = [];
  let onlyReaders = true;
  for (const [rank, entry] of entries.entries()) {
    const { place, facts } = entry;
    const isPermit = place === "direct" && facts.permits !== undefined;
    const limit = isPermit ? permits : 1;
    const holds = place === "reader" ? onlyReaders : rank < limit;
    (holds ? holders : waiters).push(entry);
    onlyReaders &&= place === "reader" || place === "below readers";
  }
  return { holders, waiters };
}

/** By the oldest entry that shows it. */
export const kindOfQueue = (
  entries: readonly { readonly facts: Pick<InspectedKey["facts"], "kind"> }[],
): QueueKind => entries.find(({ facts }) => facts.kind !== "unknown")?.facts.kind ?? "unknown";

/** In the order of their create revisions. A transaction may put several keys at one revision. */
export const inOrder = (entries: readonly InspectedKey[]): InspectedKey[] => [...entries].sort(byAge);

type Aged = Pick<InspectedKey, "createRevision" | "key">;
export const byAge = (a: Aged, b: Aged): number =>
  compare(a.createRevision, b.createRevision) || compare(a.key, b.key);

function compare<T extends bigint | string | Buffer>(a: T, b: T): number {
  if (a === b) return 0;
  return a < b ? -1 : 1;
}
