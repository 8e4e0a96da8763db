import type { End } from "../runner/history.js";
import type { Call, Hold } from "./calls.js";
import { at, ms, nameOf, type Facts, type Finding, type Rule } from "./facts.js";
import { knewOfItsEnd } from "./loss.js";
import type { Place } from "./places.js";
import { becameHold } from "./priority-rules.js";
import { countUntil, earlier, FOREVER, later } from "./spans.js";

/**
 * I10: a hold ends once, for the reason that was recorded; it is never held again, and no other process's release ends
 * it.
 */
export const endsOnce: Rule = (facts) => {
  const closed = firstCloses(facts);
  const ends = facts.holds.flatMap((hold) =>
    endsOf(facts, hold, closed).map((what) => ({ text: `${nameOf(hold)} ${what}` })),
  );
  return [...ends, ...deletedByOthers(facts)];
};

function endsOf(facts: Facts, hold: Hold, closed: ReadonlyMap<string, bigint>): string[] {
  const [end, ...more] = hold.ends;
  if (end === undefined) {
    if (!facts.troubles.endedWell(hold.p)) return [];
    return [`was granted ${at(facts, hold.granted)} and has no end, though its process came to its own`];
  }
  const told = `ended as ${end.reason} ${at(facts, end.t)}`;
  const why = unfounded(hold, end, closed);
  const again = hold.claims.findLast(({ t, held }) => held && t > end.t);
  return [
    ...more.map(({ t, reason }) => `${told}, and again as ${reason} ${at(facts, t)}`),
    ...(why === undefined ? [] : [`${told}, though ${why}`]),
    ...(again === undefined ? [] : [`${told}, and claimed to hold ${ms(again.t - end.t)} later`]),
  ];
}

function unfounded(hold: Hold, { reason, t }: End, closed: ReadonlyMap<string, bigint>): string | undefined {
  const released = hold.releasing !== undefined && hold.releasing <= t;
  if (reason === "released") return released ? undefined : "nobody released it";
  if (reason === "closed" && (closed.get(hold.p) ?? t + 1n) > t) return "nobody closed its session";
  return hold.released?.k === "ok" ? "its release was confirmed" : undefined;
}

/** Per process, when it first closed a session. */
function firstCloses({ steps }: Facts): Map<string, bigint> {
  const closed = new Map<string, bigint>();
  for (const step of steps.operations)
    if (step.k === "invoke" && step.f === "close" && !closed.has(step.p)) closed.set(step.p, step.t);
  return closed;
}

/**
 * A place that was deleted alone while its lease lived on, although its owner neither left nor was notified: a late or
 * unguarded delete of another caller. I9 judges a place that ended with its lease.
 */
function deletedByOthers(facts: Facts): Finding[] {
  return facts.placeOf.values().flatMap((place) => {
    const { key, create, owner, lock, lease, deleted, deletedSeen } = place;
    if (deleted === undefined || deletedSeen === undefined || facts.early.has(place)) return [];
    if (becameHold(facts, place)) return [];
    const hold = facts.holdOf.get(place);
    const livedOn = (facts.lastUse.get(lease) ?? 0n) > deleted || hold?.ends[0]?.reason === "deleted";
    if (!livedOn) return [];
    const mine = owner === undefined ? [] : (facts.callsUnder.get(owner, lock) ?? []);
    const known = hold ? knewOfItsEnd(facts, hold, place) : !lostWhileWaiting(facts, place, mine);
    if (known) return [];
    const whose = hold === undefined ? `, for which ${owner} waited,` : ` of ${nameOf(hold)}`;
    const text = `the place ${key}@${create}${whose} was deleted ${at(facts, deletedSeen)}, not by its owner, and its lease lived on`;
    return [{ text }];
  });
}

/**
 * A place without a grant belongs to one of the owner's calls that were pending when it was created; none of them may
 * have failed. While etcd is hindered, or the process is stopped, it may be the effect of a lost request, which cannot
 * be decided.
 */
function lostWhileWaiting(facts: Facts, place: Place, calls: readonly Call[]): boolean {
  const { troubles } = facts;
  const { seen, deletedSeen = 0n } = place;
  const time = { from: seen, to: later(seen, deletedSeen) };
  if (troubles.hindered(time)) return false;
  let pending = false;
  // Latest first: that is the most likely one.
  for (let n = countUntil(calls, seen, ({ invoked }) => invoked) - 1; n >= 0; n--) {
    const call = calls[n] as Call;
    const { p, outcome } = call;
    if (outcome !== undefined && troubles.limit(p, outcome.t) < seen) continue;
    pending = true;
    const left = overAt(call, place, facts) <= troubles.limit(p, deletedSeen);
    if (left || troubles.stillness(p, time) !== undefined) return false;
  }
  return pending;
}

/**
 * When the call gave up its place, whose deletion may be observed before the call is rejected. A refused try has put no
 * place, except for a permit: of several callers that see the last free one, all but one leave again; and except to ask for the key of
 * another session's sticky lock.
 */
function overAt(call: Call, place: Place, facts: Facts): bigint {
  const { p, outcome, aborted } = call;
  const { troubles } = facts;
  const refused = outcome?.err === "busy" && place.permits === undefined && !asksForKept(facts, place, call);
  const failed = outcome !== undefined && outcome.k !== "ok" && !refused;
  return [failed ? outcome.t : FOREVER, aborted ?? FOREVER, troubles.killedAt(p)].reduce(earlier);
}

/** The key of another session's sticky lock was there before the place, and during the call. */
const asksForKept = ({ places }: Facts, { lock, lease, create }: Place, { invoked }: Call): boolean =>
  (places.get(lock) ?? []).some(
    (other) =>
      other.sticky &&
      other.lease !== lease &&
      other.create < create &&
      (other.deletedSeen ?? FOREVER) > invoked,
  );
