import type { Call } from "./calls.js";
import { moment, ms, type Facts, type Finding, type Rule } from "./facts.js";
import { processOf, type Place } from "./places.js";
import { earlier, FOREVER, later } from "./spans.js";

/**
 * I7: a waiter that reaches the head of the queue is notified within one TTL, or within one TTL after the cluster has
 * settled from the faults in this time. At the end, no waiter is left without a predecessor.
 */
export const noLostWakeUp: Rule = (facts) => {
  const notifiable: Notifiable = new Map();
  return [
    ...facts.placeOf.values().flatMap((place) => notGranted(facts, place, notifiable)),
    ...facts.calls.flatMap((call) => stillWaiting(facts, call)),
  ];
};

/** By place, when its client can notice that it is the head: each depends on those of the waiters before it. */
type Notifiable = Map<Place, bigint>;

function notGranted(facts: Facts, place: Place, notifiable: Notifiable): Finding[] {
  const { key, create, owner, headSeen, deletedSeen } = place;
  if (headSeen === undefined) return [];
  const ended = facts.firstHoldOf.get(place)?.granted ?? deletedSeen ?? facts.end;
  // A process that is killed waits no longer. How late etcd ends its lease is up to etcd.
  const end = earlier(ended, facts.troubles.killedAt(processOf(owner) ?? ""));
  if (end <= facts.troubles.limit(processOf(owner), notifiableFrom(facts, place, notifiable))) return [];
  const ns = end - headSeen;
  const whose = owner === undefined ? "" : ` of ${owner}`;
  const text = `${key}@${create}${whose} was the head for ${ms(ns)} from ${moment(facts, headSeen)} on, and not granted`;
  return [{ text, ns }];
}

/**
 * A waiter for a permit is notified when the waiter before it announces its grant or leaves. If the process of that waiter is dead,
 * etcd ends its lease. In all other modes the places before the head are gone.
 */
function notifiableFrom(facts: Facts, place: Place, notifiable: Notifiable): bigint {
  const known = notifiable.get(place);
  if (known !== undefined) return known;
  const { headSeen = 0n } = place;
  const spoken = silentBefore(facts, place).map((silent) => {
    const from = later(headSeen, notifiableFrom(facts, silent, notifiable));
    const p = processOf(silent.owner);
    const limit = facts.troubles.limit(p, from);
    const due = facts.troubles.killedAt(p ?? "") <= limit ? FOREVER : limit;
    // A waiter that is late without a reason excuses nobody.
    return spokeAt(silent) <= due ? spokeAt(silent) : headSeen;
  });
  const from = spoken.reduce(later, headSeen);
  notifiable.set(place, from);
  return from;
}

/** The waiters before the place that had neither announced their grants nor left when it became the head: fewer than its limit. */
function silentBefore({ places }: Facts, { lock, create, permits, headSeen }: Place): readonly Place[] {
  if (permits === undefined || headSeen === undefined) return [];
  const before = (places.get(lock) ?? []).filter((other) => other.create < create);
  return before.filter((other) => other.announces && spokeAt(other) > headSeen);
}

const spokeAt = ({ announcedSeen = FOREVER, deletedSeen = FOREVER }: Place): bigint =>
  earlier(announcedSeen, deletedSeen);

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
