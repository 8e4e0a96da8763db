import { type Finding, type Rule } from "./facts.js";
import type { Place } from "./places.js";

/**
 * I33: a call with `supersede` deletes all older entries of such calls that wait, and nothing else, by etcd's record of the queue at the
 * revision of its join. No place ends that could have begun to hold.
 */
export const newestWins: Rule = ({ places }) =>
  [...places.values()].flatMap((queue) =>
    queue.flatMap((place) => (place.supersedes ? besides(queue, place) : [])),
  );

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
