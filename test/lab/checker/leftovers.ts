import { delayedBy } from "../../../src/keys.js";
import { at, ms, nameOf, type Facts, type Finding, type Rule } from "./facts.js";
import type { Place } from "./places.js";
import { earlier, FOREVER } from "./spans.js";

/**
 * I8: no place outlives its hold, no key and no lease outlives the run, and no watch outlives its use. The place of a sticky lock may stay
 * after a release, with one watch, while its session is open: I23.
 */
export const nothingLeftBehind: Rule = (facts) => {
  const reports = facts.steps.leftovers;
  const missing = ["idle", "end"].filter((when) => !reports.some((report) => report.when === when));
  const staying = facts.placeOf.values().filter((place) => mayStay(facts, place));
  const ids = new Set(staying.map(({ key, create }) => `${create} ${key}`));
  // The delay key of a place stays with it.
  const delays = facts.delayKeys.filter(({ key, create }) => ids.has(`${create} ${delayedBy(key)}`));
  const kept = new Set([...staying, ...delays].map(({ key }) => key));
  const left = reports.flatMap(({ when, keys, leases, watches = 0 }) => {
    const strays = keys.filter((key) => when === "end" || !kept.has(key));
    const idle = keys.filter((key) => staying.some((place) => place.key === key)).length;
    return [
      ...strays.map((key) => `key ${key} was left (${when})`),
      ...leases.map((lease) => `lease ${lease} was left (${when})`),
      ...(watches > idle ? [`${watches} watches were left (${when})`] : []),
    ];
  });
  return [
    ...missing.map((when) => ({ text: `nobody looked for leftovers (${when})` })),
    ...left.map((text) => ({ text })),
    ...outlived(facts),
  ];
};

const mayStay = (facts: Facts, place: Place): boolean =>
  place.sticky && facts.holdOf.get(place)?.releasing !== undefined;

function outlived(facts: Facts): Finding[] {
  const { end, placeOf, troubles } = facts;
  return facts.holds.flatMap((hold) => {
    const place = placeOf.get(hold);
    const over = [hold.releasing, hold.ends[0]?.t, troubles.killedAt(hold.p)].map((t) => t ?? FOREVER);
    const from = over.reduce(earlier);
    if (place === undefined || from > end) return [];
    if (place.sticky && (from === hold.releasing || facts.holdOf.get(place) !== hold)) return [];
    const gone = place.deletedSeen ?? end;
    if (gone <= troubles.limit(hold.p, from)) return [];
    const ns = gone - from;
    return [
      { text: `the place of ${nameOf(hold)} was there for ${ms(ns)} after its end ${at(facts, from)}`, ns },
    ];
  });
}
