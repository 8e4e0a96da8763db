import type { Invoke, Observed, Outcome, Step, Unobserved } from "../runner/history.js";
import { at, type Facts, type Finding, type Rule } from "./facts.js";
import { groupedByPair, PairMap } from "./pair-map.js";
import { leadersOf, type Led } from "./leaders.js";

/** How many states an observer keeps for a reader that does not read. */
const MAX_UNREAD = 1000;

/**
 * I15: each observer gets what happened, in order: no leader twice, none older than the one before, and none omitted,
 * unless etcd was compacted or the reader left too many unread.
 */
export const observersAgree: Rule = (facts) => {
  const { observations } = facts.steps;
  if (observations.length === 0) return [];
  const leaders = leadersOf(facts);
  const byObserver = groupedByPair(
    observations,
    ({ p }) => p,
    ({ lock, n }) => `${lock} ${n ?? ""}`,
  );
  return [...byObserver.values()].flatMap((steps) => {
    const observed = steps.filter((step) => step.k === "observed");
    const mine = leaders.get(steps[0]?.lock ?? "") ?? [];
    return [...wrongOrder(facts, observed, mine), ...notToldOfTheEnd(facts, steps, mine)];
  });
};

/**
 * An observer that still listens gets the last state within one TTL, or within one TTL after the cluster has settled.
 */
function notToldOfTheEnd(
  { troubles }: Facts,
  steps: readonly (Observed | Unobserved)[],
  leaders: readonly Led[],
): Finding[] {
  const over = steps.find(({ k }) => k === "unobserved");
  const heard = steps.findLast((step) => step.k === "observed");
  const last = leaders.at(-1);
  if (over === undefined || last === undefined || troubles.limit(over.p, last.seen) >= over.t) return [];
  if (heard !== undefined && heard.token === last.token && heard.rev === last.rev) return [];
  return [{ text: `${over.p} was never told of the last state of ${over.lock}` }];
}

interface Last {
  readonly index: number;
  readonly step: Observed;
  /** How often the observer has since been told that there is no leader. */
  vacancies: number;
}

function wrongOrder(facts: Facts, steps: readonly Observed[], leaders: readonly Led[]): Finding[] {
  const indexOf = new Map(leaders.map((led, n) => [stateOf(led), n]));
  let last: Last | undefined;
  let vacant = false;
  return steps.flatMap((step, n): Finding[] => {
    const { token, value, p, lock } = step;
    const text = `${p} was told ${at(facts, step.t)} that ${token === undefined ? "nobody" : `fence ${token}, revision ${step.rev},`} leads ${lock}`;
    if (token === undefined) {
      const twice = vacant;
      vacant = true;
      if (last) last.vacancies++;
      return twice ? [{ text: `${text}, twice` }] : [];
    }
    vacant = false;
    const index = indexOf.get(stateOf(step));
    if (index === undefined) return [{ text: `${text}, which never was` }];
    const before = last;
    last = { index, step, vacancies: 0 };
    if (leaders[index]?.value !== value)
      return [{ text: `${text} with ${value}, which it did not say then` }];
    if (before === undefined) return [];
    if (index <= before.index)
      return [{ text: `${text}, after fence ${before.step.token}, revision ${before.step.rev}` }];
    const overflow = steps.length - n >= MAX_UNREAD;
    return missed(facts, before, { index, step, leaders, overflow }).map((what) => ({
      text: `${text}, ${what}`,
    }));
  });
}

interface Next {
  readonly index: number;
  readonly step: Observed;
  readonly leaders: readonly Led[];
  /** So many states follow from here on that the reader may have left more unread. */
  readonly overflow: boolean;
}

/** The states between the two that etcd still had. */
function missed({ troubles }: Facts, before: Last, { index, step, leaders, overflow }: Next): string[] {
  const between = leaders.slice(before.index + 1, index);
  const vacancies = between.filter(({ token }) => token === undefined).length;
  if (before.vacancies > vacancies)
    return [`with ${before.vacancies - vacancies} vacancies before it that never were`];
  // The observer had seen that state, and may not have requested the next one before the compaction.
  const since = leaders[before.index]?.seen ?? before.step.t;
  if (overflow || troubles.compacted({ from: since, to: step.t })) return [];
  const left = between.length - before.vacancies;
  return left > 0 ? [`without ${left} that came before it`] : [];
}

const stateOf = ({ token, rev }: Pick<Led, "token" | "rev"> | Observed) => `${token}/${rev}`;

/**
 * I16: what a leader has proclaimed is stored once, in order, by the leader at that time, and with the outcome that was
 * reported.
 */
export const proclaimedOnce: Rule = (facts) => {
  const proclaimed = proclaimedIn(facts);
  if (proclaimed.size === 0) return [];
  const applied = new Set<string>();
  // By place: places of several elections may have the same create revision.
  const latest = new PairMap<string, bigint, number>();
  const found: Finding[] = [];
  const puts = facts.server.filter(({ type, value }) => type === "PUT" && proclaimed.has(value));
  for (const { key, create, value, rev } of puts) {
    const { order: nth, asked } = proclaimed.get(value) as Proclaimed;
    const wrong = [
      ...(applied.has(value) ? ["was applied twice"] : []),
      ...(facts.callOf.get(asked.p, asked.id)?.hold?.create === create
        ? []
        : ["came under a place that is not its leader's"]),
      ...(nth < (latest.get(key, create) ?? -1) ? ["came after a later one"] : []),
    ];
    found.push(
      ...wrong.map((why) => ({
        text: `${asked.p}#${asked.id} proclaimed ${value} in ${key} at revision ${rev}: it ${why}`,
      })),
    );
    applied.add(value);
    latest.set(key, create, nth);
  }
  for (const [value, { asked, kind }] of proclaimed)
    if (kind === "ok" && !applied.has(value)) {
      const { p, id } = asked;
      found.push({ text: `the proclaim of ${value} by ${p}#${id} succeeded, and etcd never had the value` });
    }
  return found;
};

interface Proclaimed {
  /** How many values were proclaimed before it. */
  readonly order: number;
  readonly asked: Invoke | Outcome;
  /** Of its last step. */
  kind: Step["k"];
}

/** By value. */
function proclaimedIn({ steps }: Facts): ReadonlyMap<string, Proclaimed> {
  const found = new Map<string, Proclaimed>();
  for (const step of steps.operations) {
    if (step.f !== "proclaim" || step.value === undefined) continue;
    const known = found.get(step.value);
    if (known) known.kind = step.k;
    else found.set(step.value, { order: found.size, asked: step, kind: step.k });
  }
  return found;
}
