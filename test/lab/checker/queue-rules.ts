import type { Outcome } from "../runner/history.js";
import { exclude, isAcquire, type Hold } from "./calls.js";
import { at, ms, nameOf, type Facts, type Finding, type Rule } from "./facts.js";
import { PairMap } from "./pair-map.js";
import { ByPlace } from "./places.js";

/** I2: a process that was granted a lock had the oldest place on the server from its grant on. */
export const serverSawOneHolder: Rule = (facts) => [
  ...facts.holds.flatMap((hold) => neverAtHead(facts, hold)),
  ...usedTooEarly(facts),
];

function neverAtHead(facts: Facts, hold: Hold): Finding[] {
  const place = facts.placeOf.get(hold);
  if (place === undefined) return [{ text: `${nameOf(hold)} has no place on the server` }];
  if (place.headSince !== undefined) return [];
  const several = (facts.together.get(place)?.length ?? 1) > 1;
  const why = several ? "at no revision had all of its places their turn" : "an older place outlived it";
  return [{ text: `${nameOf(hold)} was granted ${at(facts, hold.granted)}, yet ${why} on the server` }];
}

/**
 * A read or write that a holder sent after its grant was answered at some revision: at that revision its place was the
 * head.
 */
function usedTooEarly(facts: Facts): Finding[] {
  const found: Finding[] = [];
  for (const step of facts.steps.operations) {
    if (step.k !== "ok" || (step.f !== "read" && step.f !== "write") || step.rev === undefined) continue;
    const hold = facts.callOf.get(step.p, step.id)?.hold;
    const since = hold && facts.placeOf.get(hold)?.headSince;
    if (hold === undefined || since === undefined || since <= step.rev) continue;
    found.push({ text: `${nameOf(hold)} held at revision ${step.rev}, but came to the head at ${since}` });
  }
  return found;
}

/**
 * I3: a fence is the create revision of the holder's own place, is granted once, and is higher than all fences granted
 * before. A key that has stayed gives the same fence again, with a higher turn.
 */
export const fencesRise: Rule = (facts) => {
  /** The highest turn. */
  const given = new ByPlace<number>();
  /** Per lock: the highest fence granted so far. */
  const highest = new Map<string, bigint>();
  /** Per call: the highest fence at its invocation. */
  const floors = new PairMap<string, number, bigint>();
  const found: Finding[] = [];
  for (const step of facts.steps.operations) {
    if (!isAcquire(step)) continue;
    const { p, id } = step;
    if (step.k === "invoke" && step.given !== true) floors.set(p, id, highest.get(step.lock) ?? 0n);
    if (step.k !== "ok") continue;
    const { token, lock, t, turn = 1 } = step;
    if (token === undefined) {
      found.push({ text: `${p}#${id} on ${lock} got no fence ${at(facts, t)}` });
      continue;
    }
    const slot = { lock, create: token };
    const last = given.get(slot) ?? 0;
    const wrong = wrongFence(facts, { step, token, floor: floors.get(p, id) ?? 0n, twice: turn <= last });
    given.set(slot, Math.max(turn, last));
    if (token > (highest.get(lock) ?? 0n)) highest.set(lock, token);
    for (const why of wrong)
      found.push({ text: `${p}#${id} on ${lock} got fence ${token} ${at(facts, t)}, ${why}` });
  }
  return found;
};

function wrongFence(
  facts: Facts,
  { step, token, floor, twice }: { step: Outcome; token: bigint; floor: bigint; twice: boolean },
): string[] {
  const place = facts.placeOf.get({ lock: step.lock, create: token });
  // Several keys of holds that others share may stay, in any order. A key that was taken away is taken again until its session is told.
  const [stays, shared] = [place?.sticky === true, step.shared === true];
  const untold = place && step.t <= (facts.early.get(place)?.until ?? 0n);
  const low = stays ? token < floor && !shared && !untold : token <= floor;
  return [
    ...(twice && !(stays && shared) ? ["which was given before"] : []),
    ...(low ? [`not above ${floor}, granted before it was asked`] : []),
    ...(place === undefined || place.key !== step.key ? [`not the create revision of ${step.key}`] : []),
  ];
}

/**
 * I6: a later caller is not served before an earlier one that it excludes. The neighbors of a waiter that gave up also
 * keep their order.
 */
export const servedInOrder: Rule = (facts) => {
  /** Per lock, separately for shared and exclusive holds: the youngest place granted so far. */
  const youngest = new PairMap<string, boolean, Hold>();
  return facts.holds.flatMap((hold) => {
    const { lock, shared } = hold;
    const before = [youngest.get(lock, false), youngest.get(lock, true)];
    if (hold.token > (youngest.get(lock, shared)?.token ?? -1n)) youngest.set(lock, shared, hold);
    return before.flatMap((other) => (other && exclude(other, hold) ? servedAfter(facts, hold, other) : []));
  });
};

function servedAfter(facts: Facts, hold: Hold, before: Hold): Finding[] {
  if (hold.token >= before.token) return [];
  const ns = hold.granted - before.granted;
  const text = `${nameOf(hold)} was granted ${at(facts, hold.granted)}, ${ms(ns)} after the younger place ${nameOf(before)}`;
  const excuse = servedLate(facts, hold);
  return [excuse === undefined ? { text, ns } : { text, ns, excuse }];
}

/** The process was stopped between its turn and the line that records it, or its place was taken in the meantime. */
function servedLate({ early, placeOf, troubles }: Facts, hold: Hold) {
  const { p, invoked, granted } = hold;
  const taking = early.get(hold);
  if (taking !== undefined && granted <= taking.until) return taking.cause;
  return troubles.stillness(p, { from: placeOf.get(hold)?.headSeen ?? invoked, to: granted });
}
