import { claimedTime, type Hold } from "./calls.js";
import { moment, type Facts, type Finding, type Rule } from "./facts.js";
import { grouped } from "./grouped.js";
import { order, without, type Span } from "./spans.js";

/**
 * I13: the permits of simultaneous claims to a semaphore never exceed the largest limit that its users have.
 * I2 checks each grant against the limit that applies to it. As in I1, the time in which a holder could not know of its
 * end does not count.
 */
export const permitsAreLimited: Rule = (facts) =>
  [...grouped(facts.holds, ({ lock }) => lock)].flatMap(([lock, holds]) => {
    const numbers = (facts.places.get(lock) ?? []).flatMap(({ permits }) => permits ?? []);
    if (numbers.length === 0) return [];
    return tooMany(facts, holds, { lock, permits: Math.max(...numbers) });
  });

interface Change {
  readonly t: bigint;
  readonly by: number;
}

function tooMany(
  facts: Facts,
  holds: readonly Hold[],
  { lock, permits }: { lock: string; permits: number },
): Finding[] {
  const changes = holds.flatMap((hold) => {
    // By what its caller asked for, and not by what its place says.
    const { weight = 1 } = facts.callOf.get(hold.p, hold.id) ?? {};
    return claimsOf(facts, hold).flatMap(({ from, to }): Change[] => [
      { t: from, by: weight },
      { t: to, by: -weight },
    ]);
  });
  let count = 0;
  // At the same moment, starts come before ends, because a claim may last only for that moment.
  return changes
    .sort((a, b) => order(a.t, b.t) || b.by - a.by)
    .flatMap(({ t, by }) => {
      count += by;
      if (by < 0 || count <= permits || count - by > permits) return [];
      return [{ text: `${count} claimed to hold ${lock} at ${moment(facts, t)}, of ${permits} permits` }];
    });
}

function claimsOf({ early, troubles }: Facts, hold: Hold): Span[] {
  const taking = early.get(hold);
  const unknown = taking === undefined ? [] : [{ from: taking.since, to: taking.until }];
  return claimedTime(hold, troubles.still(hold.p)).flatMap((span) => without(span, unknown));
}
