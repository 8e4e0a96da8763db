import { type Finding, type Rule } from "./facts.js";
import type { Place } from "./places.js";

/**
 * I32: no call holds that has joined a queue in which as many entries wait as its `maxWaiting` allows, by etcd's record of the queue at the
 * revision of the join. All calls of such a run have the same number. A call that many others have overtaken joins in any case, and leaves at once.
 */
export const queuesAreBounded: Rule = ({ setting: { maxWaiting }, places, holdOf }) => {
  if (maxWaiting === undefined) return [];
  return [...places.values()].flatMap((queue) =>
    queue.flatMap((place) => (holdOf.has(place) ? tooMany(queue, place, maxWaiting) : [])),
  );
};

function tooMany(queue: readonly Place[], { key, create, owner }: Place, maxWaiting: number): Finding[] {
  const before = queue.filter((other) => other.create < create && (other.freed ?? create) >= create);
  const waiting = before.length + 1 - (before[0]?.permits ?? 1);
  if (owner === undefined || waiting <= maxWaiting) return [];
  const names = before.map((other) => `${other.key}@${other.create}`).join(", ");
  return [{ text: `${key}@${create} joined as waiter ${waiting} of ${maxWaiting}, behind ${names}` }];
}
