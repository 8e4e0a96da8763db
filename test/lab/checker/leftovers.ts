import { at, ms, nameOf, type Facts, type Finding, type Rule } from "./facts.js";
import { earlier, FOREVER } from "./spans.js";

/** I8: no place outlives its hold, no key and no lease outlives the run, and no watch outlives its use. */
export const nothingLeftBehind: Rule = (facts) => {
  const reports = facts.steps.leftovers;
  const missing = ["idle", "end"].filter((when) => !reports.some((report) => report.when === when));
  const left = reports.flatMap(({ when, keys, leases, watches = 0 }) => [
    ...keys.map((key) => `key ${key} was left (${when})`),
    ...leases.map((lease) => `lease ${lease} was left (${when})`),
    ...(watches > 0 ? [`${watches} watches were left (${when})`] : []),
  ]);
  return [
    ...missing.map((when) => ({ text: `nobody looked for leftovers (${when})` })),
    ...left.map((text) => ({ text })),
    ...outlived(facts),
  ];
};

function outlived(facts: Facts): Finding[] {
  const { end, placeOf, troubles } = facts;
  return facts.holds.flatMap((hold) => {
    const place = placeOf.get(hold);
    const over = [hold.releasing, hold.ends[0]?.t, troubles.killedAt(hold.p)].map((t) => t ?? FOREVER);
    const from = over.reduce(earlier);
    if (place === undefined || from > end) return [];
    const gone = place.deletedSeen ?? end;
    if (gone <= troubles.limit(hold.p, from)) return [];
    const ns = gone - from;
    return [
      { text: `the place of ${nameOf(hold)} was there for ${ms(ns)} after its end ${at(facts, from)}`, ns },
    ];
  });
}
