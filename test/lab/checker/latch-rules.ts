// The promises of latches, judged by etcd's record of their keys: what a caller was told must have been there while it asked.
import { LATCHES } from "../../../src/keys.js";
import type { ServerEvent } from "../runner/history.js";
import { at, type Facts, type Finding, type Rule } from "./facts.js";
import { grouped } from "./grouped.js";
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

/** A latch at one moment. */
export interface LatchState {
  readonly moment: Moment;
  /** undefined: it has no first key. */
  readonly round: string | undefined;
  readonly number: number;
  readonly saysOpen: boolean;
  readonly counted: number;
  /** The owners of the counters of the round that are enlisted, have not counted, and have no session. */
  readonly dead: readonly string[];
}

const known = new WeakMap<Moment, LatchState>();

export function latchAt(lock: string, moment: Moment): LatchState {
  let state = known.get(moment);
  if (state === undefined) known.set(moment, (state = read(lock, moment)));
  return state;
}

function read(lock: string, moment: Moment): LatchState {
  const base = `${LATCHES}${lock}//`;
  const first = moment.keys.get(`${base}latch`);
  const said = first && (JSON.parse(first.value) as { count: number; round: string; isOpen: boolean });
  const keys = [...moment.keys].filter(([key]) => key.startsWith(`${base}${said?.round}/`));
  const part = (key: string) => key.slice(base.length).split("/")[1];
  const dead = keys.filter(([key]) => {
    const other = (name: string) => moment.keys.has(key.replace("/enlisted/", `/${name}/`));
    return part(key) === "enlisted" && !other("alive") && !other("counted");
  });
  return {
    moment,
    round: said?.round,
    number: said?.count ?? 0,
    saysOpen: said?.isOpen === true,
    counted: keys.filter(([key]) => part(key) === "counted").length,
    dead: dead.map(([, event]) => ownerOf(event)),
  };
}

export const isOpen = ({ round, number, counted }: LatchState): boolean =>
  round !== undefined && counted >= number;

export const statesOf = (facts: Facts, lock: string, span?: Pick<Meeting, "from" | "seenTo">) =>
  (span ? during(momentsOf(facts, "latch", lock), span) : momentsOf(facts, "latch", lock)).map((moment) =>
    latchAt(lock, moment),
  );

const locksOf = (facts: Facts): readonly string[] => [
  ...new Set(meetingsOf(facts, "countDown", "wait", "count", "enlist").map(({ called }) => called.lock)),
];

/** I34: a latch is open only when all its counts are there, and what a caller is told of it was so while it asked. */
export const latchOpensWithItsCounts: Rule = (facts) => [
  ...locksOf(facts).flatMap((lock) => openedTooSoon(facts, lock)),
  ...meetingsOf(facts, "countDown", "wait", "count", "enlist", "counter").flatMap((meeting): Finding[] => {
    const wrong = wrongly(facts, meeting);
    return wrong === undefined ? [] : [{ text: `${say(facts, meeting)}, ${wrong}` }];
  }),
];

function openedTooSoon(facts: Facts, lock: string): Finding[] {
  const early = statesOf(facts, lock).find((state) => state.saysOpen && !isOpen(state));
  if (early === undefined) return [];
  const { counted, number, moment } = early;
  return [
    { text: `the latch ${lock} was opened ${at(facts, moment.from)} with ${counted} of ${number} counts` },
  ];
}

function wrongly(facts: Facts, meeting: Meeting): string | undefined {
  const { called, returned, status } = meeting;
  const { f, lock, number = 0 } = called;
  const states = statesOf(facts, lock, since(facts, meeting));
  switch (status) {
    case "ok":
      if (f === "wait" && !states.some((state) => isOpen(state) && state.number === number))
        return `though etcd had at most ${most(states)} of ${number} counts meanwhile`;
      if (f === "count" && !states.some((state) => missing(state, number) === returned?.n))
        return `though ${[...new Set(states.map((state) => missing(state, number)))].join(" or ")} were missing`;
      return undefined;
    case "COUNT_MISMATCH":
      return states.some((state) => state.round !== undefined && state.number !== number)
        ? undefined
        : "though nobody used another number";
    case "LATCH_BROKEN":
      if (returned?.why === "reset")
        return states.some((state, n) => n > 0 && isReset(states[n - 1], state))
          ? undefined
          : "though its round went on";
      return crashed(meeting, states);
    default:
      return undefined;
  }
}

/** A counter has been there since it was enlisted. */
function since(facts: Facts, { called, from, seenTo }: Meeting): Pick<Meeting, "from" | "seenTo"> {
  if (called.f !== "counter") return { from, seenTo };
  const enlisted = meetingsOf(facts, "enlist").find(
    (other) => other.called.p === called.p && other.called.of === called.of,
  );
  return { from: enlisted?.from ?? from, seenTo };
}

function crashed({ called, returned }: Meeting, states: readonly LatchState[]): string | undefined {
  if (returned?.why !== "crashed") return "which nobody has written";
  if (called.f === "wait" && called.onCrash !== "reject") return "which it had not asked for";
  return states.some(({ dead }) => dead.includes(returned.owners ?? ""))
    ? undefined
    : "though no such counter was dead";
}

const most = (states: readonly LatchState[]): number => Math.max(0, ...states.map(({ counted }) => counted));

const missing = (state: LatchState, number: number): number =>
  state.round === undefined ? number : isOpen(state) ? 0 : Math.max(0, state.number - state.counted);

const isReset = (before: LatchState | undefined, after: LatchState): boolean =>
  before?.round !== undefined && before.round !== after.round;

/** I35: each call of `countDown` counts once at most, and has counted when its caller is told so, unless the latch was open. */
export const eachCallCountsOnce: Rule = (facts) =>
  locksOf(facts).flatMap((lock): Finding[] => {
    const moments = momentsOf(facts, "latch", lock);
    const created = moments.flatMap(({ events }) => events.filter(isCreated));
    const enlisted = new Map(
      created
        .filter(({ key }) => key.includes("/enlisted/"))
        .map((event) => [placeOf(event), ownerOf(event)]),
    );
    const counted = grouped(
      created.filter(({ key }) => key.includes("/counted/")),
      (event) => {
        const owner = enlisted.get(placeOf(event));
        const id = event.key.split("/").at(-1) ?? "";
        return owner === undefined ? (id.startsWith("=") ? id : "any") : `by ${owner}`;
      },
    );
    const calls = grouped(
      meetingsOf(facts, "countDown", "counter").filter(({ called }) => called.lock === lock),
      ({ called: { f, item, owner } }) =>
        f === "counter" ? `by ${owner}` : item === undefined ? "any" : `=${encodeURIComponent(item)}`,
    );
    return [...new Set([...counted.keys(), ...calls.keys()])].flatMap((what) =>
      wrongCounts(facts, { what, counted: counted.get(what) ?? [], calls: calls.get(what) ?? [] }),
    );
  });

/** Round and ID. */
const placeOf = ({ key }: ServerEvent): string => key.replace(/\/(?:enlisted|counted)\//, "/");

interface Counts {
  /** "any": without an ID; "=ID"; or those of the counters of one owner. */
  readonly what: string;
  readonly counted: readonly ServerEvent[];
  readonly calls: readonly Meeting[];
}

function wrongCounts(facts: Facts, { what, counted, calls }: Counts): Finding[] {
  const effects = counted.map((event) => ({ event, over: endOf(facts, event) }));
  const more = unaccounted(effects, calls).map(({ key, tSeen }) => ({
    text: `${key} was counted ${at(facts, tSeen)}, and no call of ${what} was left that had not counted`,
  }));
  const told = calls.filter((call) => call.status === "ok" && !mayHaveNone(facts, call));
  const none = what === "any" ? withoutEffect(told, counted) : told.filter((call) => !isThere(facts, call));
  return [...more, ...none.map((call) => ({ text: `${say(facts, call)}, and has not counted` }))];
}

/** When the time of its latch was over, and with it all that it had counted. */
const endOf = ({ meetingKeys }: Facts, { key, rev }: ServerEvent): bigint =>
  meetingKeys.find((event) => event.key === key && event.type === "DELETE" && event.rev > rev)?.tSeen ??
  FOREVER;

/** The latch was open: there was nothing to count. */
export const mayHaveNone = (facts: Facts, call: Meeting): boolean =>
  statesOf(facts, call.called.lock, since(facts, call)).some(isOpen);

/** What is counted by its ID, or by its counter, was there while the call was under way, whoever has counted it. */
function isThere(facts: Facts, call: Meeting): boolean {
  const { item, lock, owner } = call.called;
  const moments = during(momentsOf(facts, "latch", lock), since(facts, call));
  if (item === undefined)
    return moments.some(({ events }) =>
      events.some((event) => event.key.includes("/counted/") && isCreated(event) && ownerOf(event) === owner),
    );
  return moments.some(({ keys }) =>
    [...keys.keys()].some((key) => key.endsWith(`/counted/=${encodeURIComponent(item)}`)),
  );
}
