// The promises of `once` with strings and of `share`, judged by etcd's record of the marks and of the queues: what a call was told must have
// been there while it asked.
import { createHash } from "node:crypto";
import type { Answered, Asked, ServerEvent, SettledWork, Worked } from "../runner/history.js";
import { KEEP_MS } from "../runner/result-lane.js";
import { at, ms, type Facts, type Finding, type Rule } from "./facts.js";
import { grouped } from "./grouped.js";
import type { Place } from "./places.js";
import { FOREVER } from "./spans.js";

/** Marks may go so much sooner than their time: by the way of a put to etcd, and as its clock drifts. */
const EARLY_MS = 300;

/** The shortest lease of a mark, less what its clock may drift. */
const LEASE_NS = 1_900_000_000n;
/** A run that was lost is known as such for so long. */
const LOST_MS = 3_600_000;

/** What a mark says, from its put until the next one, or its deletion. */
interface State {
  readonly event: ServerEvent;
  readonly mark: MarkValue;
  readonly to: bigint;
  /** It was deleted, and not put anew. */
  readonly isLast: boolean;
  readonly before: State | undefined;
}

interface MarkValue {
  readonly state: "started" | "done" | "failed";
  readonly id: string;
  readonly key: string;
  readonly fence?: string;
  readonly fingerprint?: string;
  readonly result?: { readonly json?: { readonly run?: string } };
}

/** A call, from its question to its answer. */
interface Dialog {
  readonly asked: Asked;
  readonly answered: Answered;
}

const known = new WeakMap<Facts, ReadonlyMap<string, readonly State[]>>();

function statesOf(facts: Facts): ReadonlyMap<string, readonly State[]> {
  let states = known.get(facts);
  if (states === undefined) known.set(facts, (states = readStates(facts.marks)));
  return states;
}

function readStates(marks: readonly ServerEvent[]): ReadonlyMap<string, readonly State[]> {
  const all = new Map<string, readonly State[]>();
  for (const [key, events] of grouped(marks, (event) => event.key)) {
    const states: State[] = [];
    events.forEach((event, n) => {
      if (event.type === "DELETE" || event.value === "") return;
      const next = events[n + 1];
      states.push({
        event,
        mark: JSON.parse(event.value) as MarkValue,
        to: next?.tSeen ?? FOREVER,
        isLast: next?.type === "DELETE",
        before: states.at(-1),
      });
    });
    all.set(key, states);
  }
  return all;
}

const keyOf = ({ lock, slot }: { readonly lock: string; readonly slot: string }, part = "value"): string =>
  `/leasehold/once/${lock}//${slot === "*" ? `*${part}` : `=${slot}`}`;
/** The lock under which the slot runs. */
const lockOf = ({ lock, slot }: Pick<Asked, "lock" | "slot">): string =>
  slot === "*" ? lock : `${lock}/${slot}`;

function dialogsOf({ steps }: Facts): Dialog[] {
  const asked = new Map<string, Asked>();
  return steps.results.flatMap((step) => {
    const id = `${step.p}#${step.id}`;
    if (step.k === "asked") asked.set(id, step);
    const question = step.k === "answered" ? asked.get(id) : undefined;
    return question && step.k === "answered" ? [{ asked: question, answered: step }] : [];
  });
}

/** I29: what a call is told was in etcd while it asked, and belongs to a request with no other fingerprint. */
export const answersAreKept: Rule = (facts) => {
  const dialogs = dialogsOf(facts);
  return dialogs.flatMap(({ asked, answered }): Finding[] => {
    const first = asked.slot === "*" ? firstOf(dialogs, asked) : asked;
    const wrong = wrongAnswer(facts, { asked: { ...asked, t: first.t }, answered });
    const { p, id, status, value = "" } = answered;
    const what = `${p}#${id} was told ${status} ${value} of ${keyOf(asked)} ${at(facts, answered.t)}`;
    return wrong === undefined ? [] : [{ text: `${what}, ${wrong}` }];
  });
};

/** The calls of a process for a shared value that are under way together share what the first of them has read. */
function firstOf(dialogs: readonly Dialog[], call: Asked): Asked {
  const together = dialogs.filter(
    ({ asked: { p, lock, slot, t }, answered }) =>
      p === call.p && lock === call.lock && slot === call.slot && t <= call.t && answered.t >= call.t,
  );
  return together.reduce((first, { asked }) => (asked.t < first.t ? asked : first), call);
}

function wrongAnswer(facts: Facts, { asked, answered }: Dialog): string | undefined {
  const { status, value } = answered;
  const part = status === "RUN_FAILED" ? "run" : "value";
  const states = (statesOf(facts).get(keyOf(asked, part)) ?? []).filter((state) =>
    meets(facts, state, { asked, answered }),
  );
  const other = ({ mark }: State): boolean =>
    asked.fingerprint !== undefined &&
    mark.fingerprint !== undefined &&
    mark.fingerprint !== HASHES[asked.fingerprint];
  switch (status) {
    case "done": {
      const found = states.filter(({ mark }) => mark.state === "done" && mark.result?.json?.run === value);
      if (value === undefined || found.length === 0) return "which etcd did not have meanwhile";
      return found.every(other) ? "the result of another request" : undefined;
    }
    case "failed":
    case "RUN_FAILED":
      return states.some(({ mark }) => mark.state === "failed")
        ? undefined
        : "though no run had failed meanwhile";
    case "lost":
      return states.some((state) => isLost(facts, asked, { state, until: answered.t }))
        ? undefined
        : "though no run was lost meanwhile";
    case "running":
    case "ONCE_RUNNING":
      return states.some((state) => runs(facts, asked, state)) ? undefined : "though none ran meanwhile";
    case "FINGERPRINT_MISMATCH":
      return states.some(other) ? undefined : "though no other request was there meanwhile";
    default:
      // The codes of leasehold, and what works throw.
      return /^(?:[A-Z_]+|expired|held|missed|Error)$/.test(status) ? undefined : "which no user knows";
  }
}

/** SHA-256 of the fingerprints of the lanes. */
const HASHES: Readonly<Record<string, string>> = {
  a: createHash("sha256").update("a").digest("base64url"),
  b: createHash("sha256").update("b").digest("base64url"),
};

/** The state was there between the two. Only the record of a simulated run is dated when things happen. */
function meets(facts: Facts, { event, to }: State, { asked, answered }: Dialog): boolean {
  const exact = facts.sights.length > 0;
  return exact ? event.tSeen <= answered.t && to >= asked.t : to + 1_000_000_000n >= asked.t;
}

/** One transaction has put both, or the mark names the entry. */
const fenceOf = ({ event, mark }: State): bigint =>
  mark.fence === undefined ? event.rev : BigInt(mark.fence);

const entryOf = (facts: Facts, asked: Pick<Asked, "lock" | "slot">, state: State): Place | undefined =>
  facts.placeOf.get({ lock: lockOf(asked), create: fenceOf(state) });

function isLost(
  facts: Facts,
  asked: Asked,
  { state, until }: { readonly state: State; readonly until: bigint },
): boolean {
  if (state.mark.state !== "started") return false;
  const deleted = entryOf(facts, asked, state)?.deletedSeen ?? FOREVER;
  return facts.sights.length === 0 ? deleted < FOREVER : deleted <= until && deleted < state.to;
}

function runs(facts: Facts, asked: Asked, state: State): boolean {
  const place = entryOf(facts, asked, state);
  return state.mark.state === "started" && place !== undefined && (place.deletedSeen ?? FOREVER) >= asked.t;
}

/** I30: a work begins with a mark of its own, after no other run of its slot but those that the call may follow. */
export const runsOnce: Rule = (facts) =>
  facts.steps.results.flatMap((step): Finding[] => {
    if (step.k !== "worked") return [];
    const own = statesOf(facts)
      .get(keyOf(step, "run"))
      ?.find((state) => state.mark.state === "started" && fenceOf(state) === step.token);
    const what = `${step.p}#${step.id} worked on ${keyOf(step, "run")} ${at(facts, step.t)}`;
    if (own === undefined) return [{ text: `${what} without a mark` }];
    const wrong = step.slot === "*" ? undefined : wrongBefore(facts, own, step);
    return wrong === undefined ? [] : [{ text: `${what}, ${wrong}` }];
  });

/** Why the run must not follow what was there before. */
function wrongBefore(facts: Facts, own: State, step: Worked): string | undefined {
  const { before, mark, event } = own;
  if (before === undefined) return undefined;
  // A mark that a call had to put again, perhaps after another call has taken its place, and has given it back before its work.
  if (before.mark.id === mark.id) return wrongBefore(facts, before, step);
  if (before.before?.mark.id === mark.id && !workOf(facts, before, step))
    return wrongBefore(facts, before.before, step);
  if (before.isLast) {
    if (facts.sights.length === 0) return undefined;
    if (workOf(facts, before, step)) return goneTooSoon(facts, before, step);
    // Its work has not begun, and the mark was given back: what its call has replaced counts.
    return wrongBefore(facts, { ...own, before: replacedBy(before) }, step);
  }
  const { rerun } = step;
  if (before.mark.state === "done") return "which had been done";
  if (before.mark.state === "failed") return rerun === "if_failed" ? undefined : "which had failed";
  const deleted = entryOf(facts, step, before)?.deletedSeen;
  if (deleted === undefined || (facts.sights.length > 0 && deleted > event.tSeen)) return "which was running";
  return rerun === "never" ? "whose run had been lost" : undefined;
}

/** What was there before the first mark of its call, which may have put it again. */
const replacedBy = ({ before, mark }: State): State | undefined =>
  before?.mark.id === mark.id ? replacedBy(before) : before;

/** The step is one of the run that has put the mark. */
const isOf = (state: State, step: Worked, other: Worked | SettledWork): boolean =>
  keyOf(other) === keyOf(step) && other.token === fenceOf(state);

const workOf = (facts: Facts, before: State, step: Worked): Worked | undefined =>
  facts.steps.results.find((other): other is Worked => other.k === "worked" && isOf(before, step, other));

/** A mark is kept for its time from the end of the work on, and for an hour from the call on if that has not ended. */
function goneTooSoon(facts: Facts, before: State, step: Worked): string | undefined {
  const work = workOf(facts, before, step);
  const isEnded = before.mark.state !== "started";
  const since = facts.steps.results.find((other) =>
    isEnded
      ? other.k === "settled-work" && isOf(before, step, other)
      : other.k === "asked" && other.p === work?.p && other.id === work.ask,
  );
  if (since === undefined) return undefined;
  const keptMs = Number(before.to - since.t) / 1e6;
  return keptMs < (isEnded ? KEEP_MS - EARLY_MS : LOST_MS)
    ? `though its mark was kept for ${keptMs.toFixed(0)} ms only`
    : undefined;
}

/** Its caller has closed the session without giving it time: what is under way then is lost. */
const wasClosed = (
  { steps }: Facts,
  p: string,
  owner: string | undefined,
  { from, to }: { readonly from: bigint; readonly to: bigint },
): boolean =>
  steps.operations.some(
    (step) =>
      step.k === "invoke" &&
      step.f === "close" &&
      step.p === p &&
      step.owner === owner &&
      step.t >= from &&
      step.t <= to,
  );

/**
 * I31: a run whose work has ended, and that has released its lock, has ended its mark in the same transaction; unless its session was closed
 * by its caller, or etcd, by the record of the faults, has refused to store the mark or was hindered for so long that a lease of the mark was
 * gone. What the call was told is not asked.
 */
export const marksEnd: Rule = (facts) => {
  const { troubles } = facts;
  const ended = facts.steps.results.filter((step) => step.k === "settled-work");
  return ended.flatMap((step): Finding[] => {
    const place = facts.placeOf.get({ lock: lockOf(step), create: step.token });
    const hold = place && facts.holdOf.get(place);
    if (!place?.deleted || hold?.ends[0]?.reason !== "released") return [];
    const states = statesOf(facts).get(keyOf(step, "run")) ?? [];
    const own = states.find(({ event }) => event.rev === place.deleted);
    const wanted = step.fails ? "failed" : "done";
    const gone = place.deletedSeen ?? step.t;
    const isLong = gone - step.t >= LEASE_NS && troubles.hindered({ from: step.t, to: gone });
    if (troubles.refusedByAll(step.p, gone) || isLong) return [];
    // With its lease, the run was lost.
    const livedOn = (facts.lastUse.get(place.lease) ?? 0n) > place.deleted;
    if (own?.mark.state === wanted || facts.early.has(place) || !livedOn) return [];
    if (wasClosed(facts, step.p, place.owner, { from: step.t, to: gone })) return [];
    const late = ms(gone - step.t);
    return [
      {
        text: `${step.p}#${step.id} ended its work ${at(facts, step.t)}, and its lock left ${late} later without a mark that says ${wanted}`,
      },
    ];
  });
};
