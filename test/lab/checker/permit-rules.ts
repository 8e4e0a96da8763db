import { claimedTime, type Hold } from "./calls.js";
import { moment, type Facts, type Finding, type Rule } from "./facts.js";
import { grouped } from "./grouped.js";
import { order, without, type Span } from "./spans.js";

/**
 * I13: there are never more claims of a semaphore's permits at a time than the largest number that its users have; what
 * each may do by the number that rules is I2. Without the time in which a holder could not know of its end, as in I1.
 */
export const permitsAreLimited: Rule = (facts) =>
  [...grouped(facts.holds, ({ lock }) => lock)].flatMap(([lock, holds]) => {
    const numbers = (facts.places.get(lock) ?? []).flatMap(({ permits }) => permits ?? []);
    if (numbers.length === 0) return [];
    return tooMany(facts, holds, { lock, permits: Math.max(...numbers) });
  });

interface Change {
  readonly t: bigint;
  readonly by: 1 | -1;
}

function tooMany(
  facts: Facts,
  holds: readonly Hold[],
  { lock, permits }: { lock: string; permits: number },
): Finding[] {
  const spans = holds.flatMap((hold) => claimsOf(facts, hold));
  const changes = spans.flatMap(({ from, to }): Change[] => [
    { t: from, by: 1 },
    { t: to, by: -1 },
  ]);
  let count = 0;
  // Of the same moment, first what begins: a claim may be a moment.
  return changes
    .sort((a, b) => order(a.t, b.t) || b.by - a.by)
    .flatMap(({ t, by }) => {
      count += by;
      if (by < 0 || count !== permits + 1) return [];
      return [{ text: `${count} claimed to hold ${lock} at ${moment(facts, t)}, of ${permits} permits` }];
    });
}

function claimsOf({ early, troubles }: Facts, hold: Hold): Span[] {
  const taking = early.get(hold);
  const unknown = taking === undefined ? [] : [{ from: taking.since, to: taking.until }];
  return claimedTime(hold, troubles.still(hold.p)).flatMap((span) => without(span, unknown));
}
