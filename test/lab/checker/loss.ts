import { readingsOf, type Hold } from "./calls.js";
import type { Early } from "./early.js";
import { at, ms, nameOf, type Facts, type Finding, type Rule } from "./facts.js";
import type { Place } from "./places.js";
import { later } from "./spans.js";

/**
 * I9: no process claims to hold after etcd deleted its place, and the holder was notified before. The observer gets a
 * DELETE only after etcd executed it, so anything later than that is too late.
 */
export const lossIsToldInTime: Rule = (facts) =>
  facts.holds.flatMap((hold) => {
    const place = facts.placeOf.get(hold);
    if (place?.deletedSeen === undefined) return [];
    return [...claimedLate(facts, hold, place.deletedSeen), ...toldLate(facts, hold, place.deletedSeen)];
  });

/** This includes a process that was stopped: it reads its clock when it continues. */
function claimedLate(facts: Facts, hold: Hold, gone: bigint): Finding[] {
  const late = readingsOf(hold).findLast(({ held, t }) => held && t > gone);
  if (late === undefined) return [];
  const early = facts.early.get(hold);
  const ns = late.t - gone;
  const text = `${nameOf(hold)} claimed to hold ${ms(ns)} after etcd deleted its place ${at(facts, gone)}`;
  return [early !== undefined && late.t <= early.until ? { text, ns, excuse: early.cause } : { text, ns }];
}

function toldLate(facts: Facts, hold: Hold, gone: bigint): Finding[] {
  const by = mustBeToldBy(facts, hold, gone);
  if (facts.troubles.killedAt(hold.p) <= by) return [];
  const told = hold.ends[0]?.t;
  // A crash is reported as such, and the end of the run cuts everything short.
  if (told === undefined && (by >= facts.end || facts.troubles.crashed(hold.p))) return [];
  const name = nameOf(hold);
  if (told === undefined)
    return [{ text: `${name} was never told that etcd deleted its place ${at(facts, gone)}` }];
  if (told <= gone) return [];
  const ns = told - gone;
  const text = `${name} was told of its end ${ms(ns)} after etcd deleted its place ${at(facts, gone)}`;
  const excuse = excuseFor(facts, hold, { due: gone, told, taking: facts.early.get(hold) });
  return [excuse === undefined ? { text, ns } : { text, ns, excuse }];
}

/** The latest time at which the process must have recorded the end of a hold whose place was deleted at `gone`. */
function mustBeToldBy({ troubles, early }: Facts, hold: Hold, gone: bigint): bigint {
  return later(troubles.toldBy(hold.p, gone), early.get(hold)?.until ?? gone);
}

interface Late {
  readonly due: bigint;
  readonly told: bigint;
  readonly taking: Early | undefined;
}

/** Why a holder was notified of its end later than was due: known causes come before possible ones. */
export function excuseFor({ troubles }: Facts, { p }: Hold, { due, told, taking }: Late): string | undefined {
  const taken = taking !== undefined && told <= taking.until ? taking : undefined;
  if (taken?.known === true) return taken.cause;
  const still = told <= troubles.saidBy(p, due) ? troubles.silentBecause(p, due) : undefined;
  const inDoubt = told <= troubles.toldBy(p, due) ? "its machine was suspended" : undefined;
  return still ?? inDoubt ?? taken?.cause;
}

/** The owner knew of its end before, or could not know of it, or had died. */
export function knewOfItsEnd(facts: Facts, hold: Hold, { deletedSeen = 0n }: Place): boolean {
  const by = mustBeToldBy(facts, hold, deletedSeen);
  return (hold.ends[0]?.t ?? facts.end) <= by || facts.troubles.killedAt(hold.p) <= by;
}
