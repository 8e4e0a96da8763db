import type { Invoke, Operation, Outcome } from "../runner/history.js";
import type { Call } from "./calls.js";
import { at, ms, type Facts, type Finding, type Rule } from "./facts.js";
import { groupedByPair } from "./pair-map.js";
import { earlier, FOREVER, later } from "./spans.js";

/**
 * I17: a healthy majority is never refused for longer than one fail-over. A call reports a refusal only if the whole
 * cluster refuses, and only while it does; a caller's place, session or release is confirmed within one fail-over.
 */
export const healthyMajorityServes: Rule = (facts) => [
  ...refusals(facts),
  ...facts.calls.flatMap((call) => joinedLate(facts, call)),
  ...answeredLate(facts),
];

function refusals(facts: Facts): Finding[] {
  const found: Finding[] = [];
  for (const step of facts.steps.operations) {
    if (step.k === "invoke" || step.err !== "ETCD_REFUSED") continue;
    if (!facts.troubles.refusedByAll(step.p, step.t)) found.push(refused(facts, step));
  }
  return found;
}

function refused(facts: Facts, { p, id, lock, f, t, said }: Outcome): Finding {
  const what = lock === "" ? `${f} of ${p}#${id}` : `${f} of ${p}#${id} on ${lock}`;
  const words = said === undefined ? "" : ` (${said})`;
  return {
    text: `the ${what} was refused ${at(facts, t)}, though the whole cluster refused nothing${words}`,
  };
}

/** While a call waits, its place is not known: any place that its owner put under the name counts. */
function joinedLate(facts: Facts, { p, id, lock, owner, invoked, outcome }: Call): Finding[] {
  const { end, troubles, places } = facts;
  const until = outcome?.t ?? end;
  const due = troubles.limit(p, waitsFrom(facts, { lock, owner, invoked, until }), troubles.failOver);
  if (until <= due || !wasThere(facts, p, due)) return [];
  const mine = (places.get(lock) ?? []).some(
    (place) => place.owner === owner && place.seen >= invoked && place.seen <= due,
  );
  if (mine) return [];
  const ns = until - invoked;
  const text = `${p}#${id} asked for ${lock} ${at(facts, invoked)} and had no place for ${ms(ns)}, though a majority was healthy`;
  return [{ text, ns }];
}

/** A call of `once` that waits for another one's run has no place before that has ended, with its lock. */
function waitsFrom(
  { places, steps }: Facts,
  { lock, owner, invoked, until }: Pick<Call, "lock" | "owner" | "invoked"> & { readonly until: bigint },
): bigint {
  if (steps.results.length === 0) return invoked;
  const runs = (places.get(lock) ?? []).filter(
    (place) =>
      place.seen < until &&
      (place.deletedSeen ?? FOREVER) > invoked &&
      (place.owner !== owner || place.seen < invoked),
  );
  return runs.reduce((from, { deletedSeen = until }) => later(from, earlier(deletedSeen, until)), invoked);
}

const ASKED: readonly Operation[] = ["open", "release", "proclaim"];

/** A session, a release, a proclamation: these wait for etcd only. */
const answeredLate = (facts: Facts): Finding[] =>
  ASKED.flatMap((operation) => {
    const asked = facts.steps.operations.filter(({ f }) => f === operation);
    const byId = groupedByPair(
      asked,
      ({ p }) => p,
      ({ id }) => id,
    );
    return [...byId.values()].flatMap((steps) => eachAnsweredLate(facts, steps));
  });

/** `steps`: all of one operation with one number. */
const eachAnsweredLate = (facts: Facts, steps: readonly (Invoke | Outcome)[]): Finding[] =>
  steps.flatMap((step, n) => {
    if (step.k !== "invoke") return [];
    const { p, id, f, t } = step;
    const due = facts.troubles.limit(p, t, facts.troubles.failOver);
    const answered = steps[n + 1]?.t ?? FOREVER;
    if (answered <= due || !wasThere(facts, p, due)) return [];
    const ns = (answered === FOREVER ? facts.end : answered) - t;
    const text = `the ${f} of ${p}#${id}, asked for ${at(facts, t)}, waited ${ms(ns)} for etcd, though a majority was healthy`;
    return [{ text, ns }];
  });

/** The process, and the run, lasted until then. */
const wasThere = ({ end, troubles }: Facts, p: string, due: bigint): boolean =>
  due < end && troubles.killedAt(p) > due && troubles.crashedAt(p) > due;
