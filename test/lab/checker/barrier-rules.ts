// The promises of barriers that one process closes, judged by etcd's record of their keys.
import { BARRIERS } from "../../../src/keys.js";
import type { ServerEvent } from "../runner/history.js";
import { at, type Facts, type Finding, type Rule } from "./facts.js";
import {
  during,
  isCreated,
  meetingsOf,
  momentsOf,
  ownerOf,
  say,
  unaccounted,
  withoutEffect,
  type Meeting,
  type Moment,
} from "./meetings.js";
import { FOREVER } from "./spans.js";

interface Gate {
  readonly gate: ServerEvent | undefined;
  /** Without a gate: its holder has died. */
  readonly mark: ServerEvent | undefined;
}

const gateAt = (lock: string, { keys }: Moment): Gate => ({
  gate: keys.get(`${lock}/gate`),
  mark: keys.get(`${BARRIERS}${lock}/gate//hold`),
});

export const isClosed = (lock: string, moment: Moment): boolean => gateAt(lock, moment).gate !== undefined;
/** By somebody: nothing is left of its holder. */
export const isReleased = (lock: string, moment: Moment): boolean => isFree(gateAt(lock, moment));
const isFree = ({ gate, mark }: Gate): boolean => !gate && !mark;
const isBroken = ({ gate, mark }: Gate): boolean => !gate && mark !== undefined;

/** I36: a barrier closes once for each `hold`, and opens only by a `release` or the end of its session; what a caller is told was so. */
export const barrierOpensByRelease: Rule = (facts) => {
  const calls = meetingsOf(facts, "hold", "release", "pass");
  const locks = [...new Set(calls.map(({ called }) => called.lock))];
  return [
    ...locks.flatMap((lock) => wrongChanges(facts, lock)),
    ...calls.flatMap((call): Finding[] => {
      const wrong = wrongly(facts, call);
      return wrong === undefined ? [] : [{ text: `${say(facts, call)}, ${wrong}` }];
    }),
  ];
};

function wrongChanges(facts: Facts, lock: string): Finding[] {
  const moments = momentsOf(facts, "gate", lock);
  const mine = (f: "hold" | "release") => meetingsOf(facts, f).filter(({ called }) => called.lock === lock);
  const holds = mine("hold");
  const closed = moments.flatMap(({ events }) =>
    events.filter((event) => isCreated(event) && event.key === `${lock}/gate`),
  );
  const released = moments.flatMap((moment, n) => {
    const before = moments[n - 1];
    return before && !isFree(gateAt(lock, before)) && isFree(gateAt(lock, moment)) ? [moment] : [];
  });
  const freely = released.filter(
    ({ from }) => !mine("release").some((call) => call.from <= from && from <= call.mayActTo),
  );
  return [
    ...unaccounted(
      closed.map((event) => ({ event, over: FOREVER })),
      holds,
    ).map(({ tSeen }) => ({
      text: `the barrier ${lock} was closed ${at(facts, tSeen)}, and no hold was left that had not closed it`,
    })),
    ...freely.map(({ from }) => ({
      text: `the barrier ${lock} opened ${at(facts, from)}, and nobody had released it`,
    })),
    ...withoutEffect(
      holds.filter(({ status, returned }) => status === "ok" && returned?.n === 1),
      closed,
    ).map((call) => ({ text: `${say(facts, call)}, and has not closed it` })),
  ];
}

function wrongly(facts: Facts, call: Meeting): string | undefined {
  const { called, returned, status } = call;
  const { f, lock } = called;
  const gates = during(momentsOf(facts, "gate", lock), call).map((moment) => gateAt(lock, moment));
  if (status === "BARRIER_BROKEN")
    return gates.some((gate) => isBroken(gate) && ownerOf(gate.mark as ServerEvent) === returned?.owners)
      ? undefined
      : "though no such holder had died";
  if (status !== "ok") return undefined;
  if (f === "hold")
    return returned?.n === 1 || gates.some(({ gate }) => gate) ? undefined : "though it was open";
  return gates.some(isFree) ? undefined : "though it was never open meanwhile";
}
