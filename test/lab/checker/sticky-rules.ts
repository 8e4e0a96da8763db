import { at, ms, nameOf, type Facts, type Finding, type Rule } from "./facts.js";
import type { Place } from "./places.js";
import { earlier, FOREVER, later } from "./spans.js";

/**
 * I23: a place that stays after a release leaves within one TTL when another session waits behind it, or within one TTL after the cluster has
 * settled; and from then on its session doesn't take the lock again. By etcd's record of who waits.
 */
export const keptPlaceLeavesWhenWanted: Rule = (facts) => [
  ...facts.placeOf.values().flatMap((place) => staysTooLong(facts, place)),
  ...facts.holds.flatMap((hold) => {
    const place = facts.placeOf.get(hold);
    if (hold.turn === 1 || !place) return [];
    return waitsBehind(facts, place, 0n)
      .filter(({ by, until }) => by + PASSED_ON < hold.granted && until > hold.granted)
      .map(({ from, other }) => ({
        text: `${nameOf(hold)} was granted ${at(facts, hold.granted)}, although ${other.key}@${other.create} had waited since ${at(facts, from)}`,
      }));
  }),
];

/** For so long, a session with the option `local` may pass the lock on, once it knows. */
const PASSED_ON = 100_000_000n;

interface Wait {
  readonly other: Place;
  readonly from: bigint;
  /** When the session of the place has let go. */
  readonly by: bigint;
  /** The end of its wait. */
  readonly until: bigint;
}

/** The places of other sessions that wait behind `place` after `since`. */
function waitsBehind(facts: Facts, place: Place, since: bigint): Wait[] {
  const { lock, lease, create, owner } = place;
  const p = owner?.split("/")[0] ?? "";
  return (facts.places.get(lock) ?? []).flatMap((other) => {
    if (other.create <= create || other.lease === lease) return [];
    const from = later(other.seen, since);
    const until = earlier(other.headSeen ?? FOREVER, other.deletedSeen ?? FOREVER);
    return [{ other, from, until, by: facts.troubles.limit(p, from) }];
  });
}

function staysTooLong(facts: Facts, place: Place): Finding[] {
  const hold = facts.holdOf.get(place);
  if (!place.sticky || !hold) return [];
  const end = earlier(hold.releasing ?? FOREVER, hold.ends[0]?.t ?? FOREVER);
  const gone = place.deletedSeen ?? facts.end;
  if (end > facts.end) return [];
  return waitsBehind(facts, place, end)
    .filter(({ by, until }) => by < gone && by < until)
    .map(({ from, other }) => {
      const ns = gone - from;
      const text = `the place of ${nameOf(hold)} stayed for ${ms(ns)} ${at(facts, from)}, while ${other.key}@${other.create} waited`;
      return { text, ns };
    });
}
