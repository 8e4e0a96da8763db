import type { Call } from "./calls.js";
import { at, ms, type Facts, type Finding, type Rule } from "./facts.js";
import { groupedByPair } from "./pair-map.js";
import { processOf, type Place } from "./places.js";
import { becameHold } from "./priority-rules.js";
import { FOREVER } from "./spans.js";
import { BREATH } from "./troubles.js";

/** The maximum number of event-loop turns between an abort and its rejection. */
const FEW_TURNS = 3;

/**
 * I12: an aborted acquire is rejected at once, and a failed call leaves the queue while its session lives on. I6 checks
 * that the other waiters keep their order.
 */
export const abortedCallsLeave: Rule = (facts) => [
  ...facts.calls.flatMap((call) => rejectedLate(facts, call)),
  ...stayedInQueue(facts),
];

function rejectedLate(facts: Facts, { p, id, lock, aborted, outcome }: Call): Finding[] {
  if (aborted === undefined || (outcome !== undefined && outcome.t < aborted)) return [];
  const text = `${p}#${id} on ${lock}, aborted ${at(facts, aborted)},`;
  if (outcome === undefined)
    return facts.troubles.endedWell(p) ? [{ text: `${text} was never rejected` }] : [];
  if (outcome.turns !== undefined && outcome.turns > FEW_TURNS)
    return [{ text: `${text} was rejected only after ${outcome.turns} turns of the event loop` }];
  const atOnce = outcome.turns !== undefined || outcome.t <= facts.troubles.saidBy(p, aborted) + BREATH;
  const ns = outcome.t - aborted;
  return atOnce
    ? []
    : [{ text: `${text} was ${outcome.k === "ok" ? "granted" : "rejected"} ${ms(ns)} later`, ns }];
}

/**
 * The history does not say which place an ungranted call had, but it limits how many there may be: per owner and lock,
 * the places that have outlived their time must not outnumber the calls that may still have one.
 */
function stayedInQueue(facts: Facts): Finding[] {
  // The members of a group of shards stand in queues without calls of their users, and callers of `once` don't say when they join.
  if (facts.memberKeys.length > 0 || facts.steps.results.length > 0) return [];
  const overdue = facts.placeOf
    .values()
    .filter(
      (place) =>
        place.owner !== undefined &&
        !facts.holdOf.has(place) &&
        !becameHold(facts, place) &&
        (place.deletedSeen ?? facts.end) > facts.troubles.limit(processOf(place.owner), place.seen),
    );
  const groups = groupedByPair(
    overdue,
    ({ owner }) => owner,
    ({ lock }) => lock,
  );
  return [...groups.values()].flatMap((places) => {
    const { owner, lock } = places[0] as Place;
    return tooMany(facts, places, facts.callsUnder.get(owner, lock) ?? []);
  });
}

interface Change {
  readonly t: bigint;
  readonly places: number;
  readonly calls: number;
  readonly place?: Place;
}

function tooMany(facts: Facts, places: readonly Place[], calls: readonly Call[]): Finding[] {
  const { troubles } = facts;
  const changes: Change[] = [];
  const isTaken = places.some((place) => facts.early.has(place));
  for (const { p, invoked, outcome, hold } of calls) {
    const granted = hold && facts.placeOf.get(hold);
    // A call whose place was taken, or has ended with its session, has joined again, and may have been granted since: until then, the
    // earlier place was its own.
    const isEarlier = ({ lease, seen }: Place) =>
      granted !== undefined && lease !== granted.lease && invoked < seen && seen < granted.seen;
    const again = isTaken || places.some(isEarlier) ? granted?.seen : undefined;
    if (hold !== undefined && again === undefined) continue;
    const until = again ?? (outcome === undefined ? FOREVER : troubles.limit(p, outcome.t));
    changes.push({ t: invoked, places: 0, calls: 1 }, { t: until, places: 0, calls: -1 });
  }
  for (const place of places) {
    const p = calls[0]?.p;
    changes.push({ t: troubles.limit(p, place.seen), places: 1, calls: 0, place });
    changes.push({ t: place.deletedSeen ?? FOREVER, places: -1, calls: 0 });
  }
  return excesses(facts, changes);
}

/** One sentence each time the places come to outnumber the calls. */
function excesses(facts: Facts, changes: readonly Change[]): Finding[] {
  const found: Finding[] = [];
  let balance = 0;
  let latest: Place | undefined;
  // Of changes at the same moment, those that make room come first.
  const room = ({ places, calls }: Change) => places - calls;
  for (const change of changes.toSorted((a, b) => Number(a.t - b.t) || room(a) - room(b))) {
    latest = change.place ?? latest;
    const before = balance;
    balance += room(change);
    if (before > 0 || balance <= 0 || latest === undefined || change.t > facts.end) continue;
    const { key, create, owner } = latest;
    const ns = (latest.deletedSeen ?? facts.end) - change.t;
    const text = `${owner} kept the place ${key}@${create} for ${ms(ns)} ${at(facts, change.t)}, when none of its calls may have had one any more`;
    found.push({ text, ns });
  }
  return found;
}
