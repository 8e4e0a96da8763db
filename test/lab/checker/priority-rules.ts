import type { Facts, Finding, Rule } from "./facts.js";
import { type GrowingPlace, isBetter, type Place } from "./places.js";
import { FOREVER, order } from "./spans.js";

/**
 * I39: a call with a priority is granted only while no better one waits, by the values and etcd's record of the queue at the revision of the
 * grant: the transaction that puts the key of the hold deletes the best place, or there is none.
 */
export const bestIsNext: Rule = ({ places }) =>
  [...places.values()].flatMap((queue) =>
    queue.flatMap((place) => (place.priority?.granted ? overtaken(queue, place) : [])),
  );

function overtaken(queue: readonly Place[], { key, create }: Place): Finding[] {
  const waiting = queue.filter(
    (other) =>
      other.priority?.granted === false && other.create < create && (other.deleted ?? FOREVER) >= create,
  );
  const own = waiting.find(({ deleted }) => deleted === create);
  return waiting.flatMap((other) => {
    if (other === own || (own && !isBetter(other, own))) return [];
    const whose = own ? `${own.key}@${own.create}, rank ${own.priority?.rank}` : "no place";
    return [
      {
        text: `${key}@${create} was granted to ${whose}, while ${other.key}@${other.create}, rank ${other.priority?.rank}, waited`,
      },
    ];
  });
}

/** The place of a call with a priority: the transaction that deleted it has put the key of a hold of its session. */
export const becameHold = ({ places }: Facts, { priority, lock, lease, deleted }: Place): boolean =>
  priority?.granted === false &&
  (places.get(lock) ?? []).some(
    (other) => other.priority?.granted && other.lease === lease && other.create === deleted,
  );

/**
 * The turn of a hold comes with its key, unless another one is held then. That of a place comes when nobody holds and no better one waits,
 * and passes when a better one comes.
 */
export function findTurnsByRank(places: readonly GrowingPlace[]): void {
  const changes = places
    .flatMap((place) => [
      { rev: place.create, seen: place.seen, place },
      { rev: place.freed ?? FOREVER, seen: place.freedSeen ?? FOREVER, place },
    ])
    .filter(({ rev }) => rev < FOREVER)
    .sort((a, b) => order(a.rev, b.rev));
  const alive = new Set<GrowingPlace>();
  changes.forEach(({ rev, seen, place }, n) => {
    if (rev === place.create) alive.add(place);
    else alive.delete(place);
    if (changes[n + 1]?.rev === rev) return;
    const all = [...alive];
    const holds = all.filter(({ priority }) => priority?.granted !== false);
    const best = all.reduce<GrowingPlace | undefined>((a, b) => (a && isBetter(a, b) ? a : b), undefined);
    for (const each of all) {
      const isHead = holds.length === 0 ? each === best : holds.length === 1 && each === holds[0];
      if (!isHead) each.headSince = each.headSeen = undefined;
      else if (each.headSince === undefined) [each.headSince, each.headSeen] = [rev, seen];
    }
  });
}
