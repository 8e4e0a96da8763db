import { claimedTime, stretchesOf, type Hold } from "./calls.js";
import type { Early } from "./early.js";
import { moment, ms, nameOf, type Facts, type Finding, type Rule } from "./facts.js";
import { excuseFor } from "./loss.js";
import { PairMap } from "./pair-map.js";
import { byStart, earlier, FOREVER, type Span } from "./spans.js";

export interface Overlap extends Span {
  readonly first: Hold;
  readonly second: Hold;
}

/**
 * I1: no two processes claim a lock at the same time, and the earlier holder is notified before the next one is
 * granted. What a holder could not know (it was stopped, or its place was taken) is excused for a bounded time.
 */
export const claimsNeverOverlap: Rule = (facts) => {
  const both = claimOverlaps(facts).flatMap((overlap) => bothClaimed(facts, overlap));
  const reported = new Set(both.map(({ pair }) => pair));
  const untold = beliefOverlaps(facts)
    .filter((overlap) => !reported.has(pairOf(overlap)))
    .map((overlap) => notYetTold(facts, overlap));
  return [...both, ...untold];
};

/** The time in which two holders of a lock both read that they hold. */
export const claimOverlaps = ({ holds, troubles }: Facts): Overlap[] =>
  overlapsOf(
    holds.flatMap((hold) => claimedTime(hold, troubles.still(hold.p)).map((span) => ({ hold, span }))),
  );

/**
 * The time in which one process reads that it holds, or is granted, while another has not yet been notified of its end.
 */
export const beliefOverlaps = ({ holds }: Facts): Overlap[] =>
  overlapsOf(
    holds.flatMap((hold) => stretchesOf(hold).map(({ from, told }) => ({ hold, span: { from, to: told } }))),
  );

function bothClaimed(facts: Facts, overlap: Overlap): (Finding & { pair: string })[] {
  const { first, second, from, to } = overlap;
  const early = robbed(facts, overlap);
  if (early !== undefined && to <= early.until) return [];
  const excused = early === undefined ? "" : ` (${early.cause}, excused until ${moment(facts, early.until)})`;
  const text = `${nameOf(first)} and ${nameOf(second)} both claimed to hold, for ${ms(to - from)} from ${moment(facts, from)} on`;
  return [{ text: text + excused, ns: to - from, pair: pairOf(overlap) }];
}

function notYetTold(facts: Facts, overlap: Overlap): Finding {
  const { from, to } = overlap;
  const [older, younger] = byAge(overlap);
  const ns = to - from;
  const text = `${nameOf(older)} had not been told of its end when ${nameOf(younger)} held, for ${ms(ns)} from ${moment(facts, from)} on`;
  const excuse = excuseFor(facts, older, { due: from, told: to, taking: robbed(facts, overlap) });
  return excuse === undefined ? { text, ns } : { text, ns, excuse };
}

/** Whether the older place had been taken early when the younger one reached the head of the queue. */
function robbed({ early, placeOf }: Facts, overlap: Overlap): Early | undefined {
  const [older, younger] = byAge(overlap);
  const taking = early.get(older);
  // If the younger place is at the head, the older one is gone. One of several names may be taken from the younger one, which
  // then counts as never at the head: I2 judges its grant.
  if (placeOf.get(younger)?.headSince === undefined && !early.has(younger)) return undefined;
  return taking !== undefined && taking.since <= overlap.from ? taking : undefined;
}

const byAge = ({ first, second }: Overlap) =>
  first.token < second.token ? ([first, second] as const) : ([second, first] as const);
const pairOf = ({ first, second }: Overlap) =>
  [first, second].map(({ p, id, token }) => `${p}#${id}@${token}`).join();

/** What a hold claims in a stretch. */
interface Claimed {
  readonly hold: Hold;
  readonly span: Span;
}

/** A writer that becomes a reader shares the lock from its call on. Whether others may hold by then, etcd's record of its put tells: I2. */
function partsOf({ hold, span }: Claimed): (Claimed & { readonly shared: boolean })[] {
  const { shared, downgrading = FOREVER } = hold;
  if (shared || span.to <= downgrading) return [{ hold, span, shared }];
  if (span.from >= downgrading) return [{ hold, span, shared: true }];
  return [
    { hold, span: { ...span, to: downgrading }, shared },
    { hold, span: { ...span, from: downgrading }, shared: true },
  ];
}

/** Per lock, each stretch together with the earlier one that reaches furthest among those that exclude it. */
function overlapsOf(stretches: readonly Claimed[]): Overlap[] {
  const furthest = new PairMap<string, boolean, Claimed>();
  const found: Overlap[] = [];
  for (const next of stretches.flatMap(partsOf).sort((a, b) => byStart(a.span, b.span))) {
    const { hold, span } = next;
    for (const shared of [false, true]) {
      const before = furthest.get(hold.lock, shared);
      if (before === undefined || before.hold === hold || (shared && next.shared)) continue;
      if (before.span.to > span.from)
        found.push({
          ...{ first: before.hold, second: hold },
          ...{ from: span.from, to: earlier(before.span.to, span.to) },
        });
    }
    const { shared } = next;
    const { lock } = hold;
    if (span.to > (furthest.get(lock, shared)?.span.to ?? -1n)) furthest.set(lock, shared, next);
  }
  return found;
}
