// Invariants of a run beside those of the lab.
import { followedInDelay } from "../../lab/checker/delay-rules.js";
import { factsOf, type Facts } from "../../lab/checker/facts.js";
import type { Hold } from "../../lab/checker/calls.js";
import type { Run } from "../../lab/runner/history.js";

type Rule = (facts: Facts) => readonly string[];

/** Within one event, the times of a history differ by nanoseconds. */
const A_MOMENT = 1000n;

const nameOf = ({ p, id, lock }: Pick<Hold, "p" | "id" | "lock">): string => `${p}#${id} (${lock})`;

/** No call is granted a hold that has ended before. A hold in doubt, which is not held either, may become held again. */
const heldWhenGranted: Rule = ({ holds }) =>
  holds.flatMap((hold) => {
    const [end] = hold.ends;
    const over = end !== undefined && end.reason !== "released" && end.t <= hold.granted + A_MOMENT;
    return !hold.heldWhenGranted && over ? [`${nameOf(hold)} was granted after it had ${end.reason}`] : [];
  });

/** The revisions at which a fault has removed entries. */
const tookBy = ({ troubles }: Facts, fault: string): ReadonlySet<bigint> =>
  new Set(troubles.faults.filter((each) => each.fault === fault).flatMap(({ took }) => [...took]));

/** A release that finds no key reports the loss, unless an earlier attempt of the same release may have deleted it. */
const lossReportedAtRelease: Rule = (facts) => {
  const took = tookBy(facts, "delete-key");
  return facts.holds.flatMap((hold) => {
    const { releasing, released } = hold;
    const place = facts.placeOf.get(hold);
    if (releasing === undefined || released?.k !== "ok" || place?.deletedSeen === undefined) return [];
    if (place.deletedSeen >= releasing || !took.has(place.deleted ?? 0n)) return [];
    if (facts.troubles.hindered({ from: releasing, to: released.t })) return [];
    return [`the release of ${nameOf(hold)} resolved, though another client had deleted its key before`];
  });
};

/** A call made with a cluster is rejected with the end of a session only if it had joined a queue. */
const rejectedAfterJoinOnly: Rule = ({ calls, places }) =>
  calls.flatMap((call) => {
    const { outcome, owner, lock, invoked } = call;
    if (outcome?.err !== "SESSION_LOST" || !owner?.endsWith("/shared")) return [];
    const joined = (places.get(lock) ?? []).some(
      (place) => place.owner === owner && place.seen >= invoked && place.seen <= outcome.t,
    );
    return joined ? [] : [`${nameOf(call)} was rejected with SESSION_LOST, and had joined nothing`];
  });

/** A hold is identified by its key and the create revision of that key. */
const grantedUnderItsKey: Rule = ({ holds, placeOf }) =>
  holds
    .filter((hold) => placeOf.get(hold) === undefined)
    .map(
      (hold) => `${nameOf(hold)} was granted under the revision ${hold.token}, at which no key was created`,
    );

const RULES = {
  // The observer of a simulated run sees everything when it happens.
  "delay after a crash": (facts) => followedInDelay(facts, 0),
  "granted under its key": grantedUnderItsKey,
  "held when granted": heldWhenGranted,
  "loss reported at release": lossReportedAtRelease,
  "rejected after join": rejectedAfterJoinOnly,
} satisfies Record<string, Rule>;

/** One sentence per violation, by rule. */
export function brokenRules(run: Run): ReadonlyMap<string, readonly string[]> {
  const facts = factsOf(run);
  const found = Object.entries(RULES).map(([name, rule]) => [name, rule(facts)] as const);
  return new Map(found.filter(([, sentences]) => sentences.length > 0));
}
