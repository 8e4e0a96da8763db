import type { Call } from "./calls.js";
import { moment, ms, type Facts, type Finding, type Rule } from "./facts.js";
import { processOf, type Place } from "./places.js";
import { FOREVER } from "./spans.js";

/**
 * I7: a waiter that reaches the head of the queue is notified within one TTL, or within one TTL after the cluster has
 * settled from the faults in this time. At the end, no waiter is left without a predecessor.
 */
export const noLostWakeUp: Rule = (facts) => [
  ...facts.placeOf.values().flatMap((place) => notGranted(facts, place)),
  ...facts.calls.flatMap((call) => stillWaiting(facts, call)),
];

function notGranted(facts: Facts, place: Place): Finding[] {
  const { key, create, owner, headSeen, deletedSeen } = place;
  if (headSeen === undefined) return [];
  const end = facts.holdOf.get(place)?.granted ?? deletedSeen ?? facts.end;
  const inTime = (p: string | undefined) => end <= facts.troubles.limit(p, headSeen);
  if (inTime(processOf(owner)) || notifiersOf(facts, place).some(inTime)) return [];
  const ns = end - headSeen;
  const whose = owner === undefined ? "" : ` of ${owner}`;
  const text = `${key}@${create}${whose} was the head for ${ms(ns)} from ${moment(facts, headSeen)} on, and not granted`;
  return [{ text, ns }];
}

/**
 * A waiter for a permit is notified by the waiter before it, which puts its key again when it is granted. If the process of that waiter
 * is stopped or dead, the end of its lease notifies instead. In all other modes a place is the head only when those before it are gone.
 */
function notifiersOf({ places }: Facts, { lock, create, permits, headSince, headSeen }: Place) {
  if (permits === undefined || headSince === undefined || headSeen === undefined) return [];
  const silent = ({ deleted = FOREVER, announcedSeen = FOREVER, ...before }: Place): boolean =>
    deleted > headSince && before.headSince !== before.create && announcedSeen > headSeen;
  const before = (places.get(lock) ?? []).filter((each) => each.create < create && silent(each));
  return before.map(({ owner }) => processOf(owner));
}

function stillWaiting(facts: Facts, { p, id, lock, invoked, owner, outcome }: Call): Finding[] {
  if (outcome !== undefined || !facts.troubles.endedWell(p)) return [];
  const living = (facts.places.get(lock) ?? []).filter(({ deleted }) => deleted === undefined);
  const mine = living.find((place) => place.owner === owner && !facts.holdOf.has(place));
  if (living.some((place) => mine === undefined || place.create < mine.create)) return [];
  // Its places under other names may be waiting for another holder.
  if (mine !== undefined && facts.together.has(mine) && mine.headSince === undefined) return [];
  const text = `${p}#${id} still waits for ${lock} at the end, since ${moment(facts, invoked)}, and nobody is ahead`;
  return [{ text }];
}
