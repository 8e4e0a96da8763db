import type { Sight } from "../runner/history.js";
import { readingsOf, type Hold } from "./calls.js";
import { at, ms, nameOf, type Facts, type Finding, type Rule } from "./facts.js";
import { grouped } from "./grouped.js";
import type { Place } from "./places.js";

/**
 * I20: a call that resolves is held at that moment, or its signal has aborted. By etcd's record: each of its keys is there, unless
 * nothing that its process had received showed that it was gone. A client has received an event of a watch, or an answer, when its
 * connection has handed it over: what the client does later, it does with that knowledge. Before the answer that shows a client its own
 * place, an event concerns nobody: a watch that an earlier hold of the same key has left behind reports it.
 */
export const grantedIsHeld: Rule = (facts) => {
  const sightsOf = grouped(facts.sights, ({ p }) => p);
  return facts.holds.flatMap((hold) => {
    const text = `${nameOf(hold)} was granted ${at(facts, hold.granted)}`;
    const again = hold.claims.find(({ entered, held, t }) => entered && !held && !toldBy(hold, t));
    if (again !== undefined) {
      const what = `${nameOf(hold)} was entered again ${at(facts, again.t)}, was not held, and its signal had not aborted`;
      return [excused(facts, hold, { text: what, from: again.t })];
    }
    if (toldAtOnce(hold)) return [];
    if (!hold.heldWhenGranted) {
      const what = `${text}, was not held, and its signal had not aborted`;
      return [excused(facts, hold, { text: what, from: hold.granted })];
    }
    const place = facts.placeOf.get(hold);
    if (place?.deletedSeen === undefined || place.deletedSeen > hold.granted) return [];
    const sights = sightsOf.get(hold.p) ?? [];
    const known = sights.findIndex((sight) => showsCreated(sight, place));
    const seen = known < 0 ? undefined : sights.slice(known).find((sight) => showsGone(sight, place));
    if (seen === undefined || seen.t >= hold.granted) return [];
    const since = `${ms(hold.granted - seen.t)} after its process had received that revision ${place?.deleted} deleted its key`;
    return [{ text: `${text}, ${since}` }];
  });
};

const toldBy = ({ ends: [end] }: Hold, t: bigint): boolean => end !== undefined && end.t <= t;

/** The end is recorded right after the grant: the signal had aborted. */
const toldAtOnce = ({ heldWhenGranted, ends: [end] }: Hold): boolean =>
  !heldWhenGranted && end !== undefined && end.late !== true;

/**
 * I21: the signal aborts in the turn of the event loop in which `held` turns false. Nobody sees that moment, but whoever reads that it
 * is false: until the end of that turn, the signal must have aborted.
 */
export const signalIsNotLate: Rule = (facts) =>
  facts.holds.flatMap((hold) => {
    const [end] = hold.ends;
    const first = hold.heldWhenGranted ? readingsOf(hold).find(({ held }) => !held) : undefined;
    // A hold without an end is judged by I10.
    if (first === undefined || end?.late !== true) return [];
    const ns = end.t - first.t;
    const text = `the signal of ${nameOf(hold)} aborted (${end.reason}) ${ms(ns)} after \`held\` was false ${at(facts, first.t)}`;
    return [{ ...excused(facts, hold, { text, from: first.t }), ns }];
  });

/**
 * After a suspend, the lease may have ended, or not, as far as the clocks tell: only an answered renewal shows which. Until then, `held`
 * is false, and the signal has not aborted, because the hold may be held again.
 */
function excused(
  { troubles }: Facts,
  { p }: Hold,
  { text, from }: { readonly text: string; readonly from: bigint },
): Finding {
  return troubles.inDoubt(p, from) ? { text, excuse: "its machine was suspended" } : { text };
}

const isAt =
  ({ key, create }: Place) =>
  (kv: { readonly key: { toString(): string }; readonly createRevision: bigint }): boolean =>
    kv.createRevision === create && kv.key.toString() === key;

const showsCreated = ({ revision, put, read }: Sight, place: Place): boolean =>
  (revision === place.create && put?.includes(place.key)) || (read?.found.some(isAt(place)) ?? false);

/**
 * Whether the session of the place knows from that on that it is gone. All sessions of a process share its watches. A read is an answer
 * to one of them: to the join of its lease, or to a wait for this place, which asks for nothing younger, or about its key. Whoever waits
 * right behind it may ask for nothing younger than that, too.
 */
function showsGone({ revision, deleted, read }: Sight, place: Place): boolean {
  const { key, create, deleted: end, lease } = place;
  if (end === undefined || revision < end) return false;
  if (deleted?.includes(key)) return true;
  if (read === undefined || read.found.some(isAt(place))) return false;
  if (read.end === undefined) return read.key === key;
  const isTheirs = read.lease !== undefined && read.lease !== lease;
  const isOwn =
    read.maxCreateRevision === create || (read.lease === lease && read.maxCreateRevision === undefined);
  if (isTheirs) return false;
  return isOwn && read.key <= key && key < read.end;
}
