import type { Hold } from "./calls.js";
import { at, nameOf, type Facts, type Finding, type Rule } from "./facts.js";
import { BREATH } from "./troubles.js";

/** I11: nobody is told of a loss that nothing has caused: etcd had the place, and the way to it was free. */
export const noFalseLoss: Rule = (facts) =>
  facts.holds.flatMap((hold) => [...toldOfLoss(facts, hold), ...releaseToldOfLoss(facts, hold)]);

function toldOfLoss(facts: Facts, hold: Hold): Finding[] {
  return hold.ends.flatMap(({ reason, t }) => {
    if (reason === "released" || reason === "closed" || hasCause(facts, hold, { told: t, before: t }))
      return [];
    const text = `${nameOf(hold)} was told that it is lost (${reason}) ${at(facts, t)}, though etcd had its place and nothing had touched its lease`;
    return [{ text }];
  });
}

/** The release ends the hold at once, and may find out only then that the place was not there any more. */
function releaseToldOfLoss(facts: Facts, hold: Hold): Finding[] {
  const { released, releasing } = hold;
  if (releasing === undefined || released?.err !== "LOCK_LOST" || hold.ends[0]?.reason !== "released")
    return [];
  if (hasCause(facts, hold, { told: released.t, before: releasing })) return [];
  return [
    {
      text: `the release of ${nameOf(hold)} said ${at(facts, released.t)} that it had been lost, though it had not`,
    },
  ];
}

/** The place was gone `before`, or was taken, or something may have cost the lease. */
function hasCause(facts: Facts, hold: Hold, { told, before }: { told: bigint; before: bigint }): boolean {
  const places = facts.together.get(hold) ?? [facts.placeOf.get(hold)];
  const gone = places.flatMap((place) => place?.deletedSeen ?? []);
  if (gone.some((t) => t <= before)) return true;
  // Its own watch may tell a holder sooner than the observer is told.
  if (facts.early.has(hold) && gone.some((t) => t <= told + BREATH)) return true;
  return facts.troubles.mayCostLease(hold.p, told);
}
