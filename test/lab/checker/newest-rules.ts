import { type Facts, type Finding, type Rule } from "./facts.js";
import type { Place } from "./places.js";

/**
 * I33: a call with `supersede` deletes all older entries of such calls that wait, and nothing else, by etcd's record of the queue at the
 * revision of its join. No place ends that could have begun to hold. A join whose place was deleted so never gives its caller a hold.
 */
export const newestWins: Rule = ({ places, holdOf }) =>
  [...places.values()].flatMap((queue) => {
    const newest = queue.filter(({ supersedes }) => supersedes);
    return newest.flatMap((place) => [...besides(queue, place), ...returned(newest, place, holdOf)]);
  });

/** An attempt without an answer was overtaken, and a later one of the same join holds. */
function returned(
  newest: readonly Place[],
  { key, create, deleted, id }: Place,
  holdOf: Facts["holdOf"],
): Finding[] {
  if (id === undefined || !newest.some((other) => other.create === deleted)) return [];
  const again = newest.filter((other) => other.id === id && other.create > create && holdOf.has(other));
  return again.map((other) => ({
    text: `${key}@${create} was superseded, and its call holds with @${other.create}`,
  }));
}

const waitsAt = ({ headSince }: Place, revision: bigint): boolean =>
  headSince === undefined || headSince > revision;

function besides(queue: readonly Place[], { key, create }: Place): Finding[] {
  const found = (other: Place, what: string): Finding => ({
    text: `${key}@${create} has ${what} ${other.key}@${other.create}`,
  });
  return queue.flatMap((other) => {
    if (other.create >= create) return [];
    const ended = other.deleted ?? Infinity;
    if (ended === create && !other.supersedes) return [found(other, "ended the plain call")];
    if (ended === create && !waitsAt(other, create)) return [found(other, "ended the hold")];
    return ended > create && other.supersedes && waitsAt(other, create)
      ? [found(other, "left in the queue")]
      : [];
  });
}
