import type { Call } from "./calls.js";
import { moment, ms, type Facts, type Finding, type Rule } from "./facts.js";
import { processOf, type Place } from "./places.js";

/**
 * I7: who comes to the head of the queue is told, within one TTL, or within one TTL after the cluster has settled from
 * the faults that touched this time; and nobody still waits at the end with nobody ahead.
 */
export const noLostWakeUp: Rule = (facts) => [
  ...[...facts.placeOf.values()].flatMap((place) => notGranted(facts, place)),
  ...facts.calls.flatMap((call) => stillWaiting(facts, call)),
];

function notGranted(facts: Facts, { key, create, owner, headSeen, deletedSeen }: Place): Finding[] {
  if (headSeen === undefined) return [];
  const end = facts.holdOf.get(create)?.granted ?? deletedSeen ?? facts.end;
  if (end <= facts.troubles.limit(processOf(owner), headSeen)) return [];
  const ns = end - headSeen;
  const whose = owner === undefined ? "" : ` of ${owner}`;
  const text = `${key}@${create}${whose} was the head for ${ms(ns)} from ${moment(facts, headSeen)} on, and not granted`;
  return [{ text, ns }];
}

function stillWaiting(facts: Facts, call: Call): Finding[] {
  const { p, id, lock, invoked } = call;
  if (call.outcome !== undefined || !facts.troubles.endedWell(p)) return [];
  if ((facts.places.get(lock) ?? []).some((place) => isAhead(facts, place, call))) return [];
  const text = `${p}#${id} still waits for ${lock} at the end, since ${moment(facts, invoked)}, and nobody is ahead`;
  return [{ text }];
}

/** A living place that is held, or somebody else's. */
const isAhead = ({ holdOf }: Facts, { deleted, owner, create }: Place, call: Call) =>
  deleted === undefined && (owner === undefined || owner !== call.owner || holdOf.has(create));
