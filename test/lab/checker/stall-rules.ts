import { at, nameOf, type Facts, type Finding, type Rule } from "./facts.js";
import type { Fault } from "./faults.js";

const SECOND = 1_000_000_000n;
/** etcd looks for leases that have expired every half of a second, and deletes their keys then. */
const EXPIRY = (3n * SECOND) / 2n;

/** I18: what a process holds ends if its main thread stands still for longer than `maxStallMs`, and a TTL. */
export const stuckProcessesLoseTheirs: Rule = (facts) => {
  const { maxStall, faults } = facts.troubles;
  if (maxStall === undefined) return [];
  return faults.filter(({ blocks }) => blocks).flatMap((fault) => keptBy(facts, fault, maxStall));
};

function keptBy(facts: Facts, { target, from, to }: Fault, maxStall: bigint): Finding[] {
  const { troubles, holds, placeOf, end } = facts;
  const due = from + maxStall + troubles.ttl + EXPIRY;
  if (due >= to || due >= end || troubles.hindered({ from, to: due })) return [];
  return holds.flatMap((hold) => {
    if (hold.p !== target || hold.granted >= from) return [];
    const place = placeOf.get(hold);
    if (place === undefined || (place.deletedSeen !== undefined && place.deletedSeen <= due)) return [];
    const text = `${nameOf(hold)} still had its place ${at(facts, due)}, though its main thread had stood still since ${at(facts, from)}`;
    return [{ text }];
  });
}
