import type { Hold } from "./calls.js";
import { at, nameOf, type Facts, type Finding, type Rule } from "./facts.js";
import { touching, type Span } from "./spans.js";
import { BREATH } from "./troubles.js";

/**
 * After this many joins of one process through a proxy that repeats a third of them, the process has seen that requests
 * are sent twice.
 */
const JOINS_THAT_SHOW_REPEATS = 20;

/** I11: no loss is reported without a cause, while etcd had the place and the connection to it was undisturbed. */
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

/** The release ends the hold at once, and may find out only then that the place was already gone. */
function releaseToldOfLoss(facts: Facts, hold: Hold): Finding[] {
  const { released, releasing } = hold;
  if (releasing === undefined || released?.err !== "LOCK_LOST" || hold.ends[0]?.reason !== "released")
    return [];
  if (hasCause(facts, hold, { told: released.t, before: releasing })) return [];
  const text = `the release of ${nameOf(hold)} said ${at(facts, released.t)} that it had been lost, though it had not`;
  if (!repeatedUnseen(facts, hold, { from: releasing, to: released.t })) return [{ text }];
  return [{ text, excuse: "its release was sent twice, and no join of its process before" }];
}

/** A proxy may have repeated the release. A process learns only from a join that its requests are sent twice. */
function repeatedUnseen({ troubles, calls }: Facts, { p }: Hold, releasing: Span): boolean {
  const during = (name: string) => troubles.faults.filter(({ fault }) => fault === name);
  if (touching(during("repeat-releases"), releasing).length === 0) return false;
  const joins = during("repeat-joins").filter(({ to }) => to < releasing.from);
  const seen = calls.filter(
    ({ p: by, hold }) =>
      by === p && hold && joins.some(({ from, to }) => from <= hold.invoked && hold.granted <= to),
  );
  return seen.length < JOINS_THAT_SHOW_REPEATS;
}

/** The place was gone `before`, or was taken, or something may have cost the lease. */
function hasCause(facts: Facts, hold: Hold, { told, before }: { told: bigint; before: bigint }): boolean {
  const places = facts.together.get(hold) ?? [facts.placeOf.get(hold)];
  const gone = places.flatMap((place) => place?.deletedSeen ?? []);
  if (gone.some((t) => t <= before)) return true;
  // A holder's own watch may report the deletion before the observer sees it.
  if (facts.early.has(hold) && gone.some((t) => t <= told + BREATH)) return true;
  return facts.troubles.mayCostLease(hold.p, told);
}
