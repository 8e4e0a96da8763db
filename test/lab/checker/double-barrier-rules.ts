// The promises of double barriers, judged by etcd's record of their members.
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
  type Meeting,
  type Moment,
} from "./meetings.js";
import { order } from "./spans.js";

/** The key of one member in one round. */
export interface Member {
  readonly id: string;
  readonly owner: string;
  readonly number: number;
  readonly create: bigint;
  readonly seen: bigint;
}

/** The members that a `ready` has let in. */
export interface Round {
  readonly opened: Moment;
  readonly members: readonly Member[];
}

const memberIn = (event: ServerEvent): Member => ({
  id: event.key.split("/").at(-1) ?? "",
  owner: ownerOf(event),
  number: (JSON.parse(event.value) as { readonly members: number }).members,
  create: event.create,
  seen: event.tSeen,
});

const isMember = (lock: string, key: string): boolean => key.startsWith(`${lock}/double/waiters/`);

const membersKnown = new WeakMap<Moment, readonly Member[]>();
/** The oldest first. */
export function membersAt(lock: string, moment: Moment): readonly Member[] {
  let found = membersKnown.get(moment);
  if (found === undefined) {
    const events = [...moment.keys].flatMap(([key, event]) => (isMember(lock, key) ? [event] : []));
    found = events.map(memberIn).sort((a, b) => order(a.create, b.create));
    membersKnown.set(moment, found);
  }
  return found;
}

const readyAt = (lock: string, { keys }: Moment): ServerEvent | undefined => keys.get(`${lock}/double/ready`);

/** The first ones, of those that wait for so many. */
const firstsOf = (members: readonly Member[], number: number): readonly Member[] =>
  members.filter((member) => member.number === number).slice(0, number);

const openingsOf = (facts: Facts, lock: string): readonly Moment[] =>
  momentsOf(facts, "double", lock).filter(({ events }) =>
    events.some(({ type, key }) => type === "PUT" && key === `${lock}/double/ready`),
  );

/** Its own keys: of its owner, put while it was under way. Others of a session that is shared are taken for its own, too. */
export function ownMembers(
  facts: Facts,
  { called: { lock, owner }, from, seenTo }: Meeting,
): readonly Member[] {
  return momentsOf(facts, "double", lock).flatMap(({ events }) =>
    events
      .filter(
        (event) =>
          isCreated(event) && isMember(lock, event.key) && from <= event.tSeen && event.tSeen <= seenTo,
      )
      .map(memberIn)
      .filter((member) => member.owner === owner),
  );
}

/** The rounds that a call of `enter` may have entered. */
export function roundsOf(facts: Facts, enter: Meeting): readonly Round[] {
  const { lock, number = 0 } = enter.called;
  const own = new Set(ownMembers(facts, enter).map(({ create }) => create));
  return openingsOf(facts, lock).flatMap((opened): Round[] => {
    if (opened.from < enter.from || opened.from > enter.seenTo) return [];
    const members = firstsOf(membersAt(lock, opened), number);
    return members.length === number && members.some(({ create }) => own.has(create))
      ? [{ opened, members }]
      : [];
  });
}

/** Those whose key was deleted while their record stayed as it was, as seen by then. */
export function deadBy(facts: Facts, lock: string, until: bigint): readonly Member[] {
  const moments = momentsOf(facts, "double", lock);
  return moments.flatMap((moment, n) => {
    const before = moments[n - 1];
    if (!before || moment.from > until) return [];
    return membersAt(lock, before).filter(({ id }) => {
      const record = moment.keys.get(`${BARRIERS}${lock}/double//m/${id}`);
      return !moment.keys.has(`${lock}/double/waiters/${id}`) && record && !moment.events.includes(record);
    });
  });
}

/** I37: a double barrier opens only when all its members are there, and nobody is told that all have left before they have, or have died. */
export const membersMeet: Rule = (facts) => {
  const calls = meetingsOf(facts, "enter", "leave");
  const locks = [...new Set(calls.map(({ called }) => called.lock))];
  return [
    ...locks.flatMap((lock) => openedTooSoon(facts, lock)),
    ...calls.flatMap((call): Finding[] => {
      const wrong = call.called.f === "enter" ? wronglyEntered(facts, call) : wronglyLeft(facts, call);
      return wrong === undefined ? [] : [{ text: `${say(facts, call)}, ${wrong}` }];
    }),
  ];
};

const openedTooSoon = (facts: Facts, lock: string): Finding[] =>
  openingsOf(facts, lock).flatMap((opened): Finding[] => {
    const members = membersAt(lock, opened);
    if (members.some(({ number }) => firstsOf(members, number).length === number)) return [];
    const numbers = [...new Set(members.map(({ number }) => number))].join(" or ");
    const text = `the double barrier ${lock} opened ${at(facts, opened.from)} with ${members.length} of ${numbers} members`;
    return [{ text }];
  });

function wronglyEntered(facts: Facts, call: Meeting): string | undefined {
  const { called, returned, status } = call;
  const { lock, number = 0, owner = "", onCrash } = called;
  const moments = during(momentsOf(facts, "double", lock), call);
  switch (status) {
    case "ok":
      return roundsOf(facts, call).length > 0
        ? undefined
        : "though it was not among so many members when the barrier opened";
    case "BARRIER_FULL":
      return moments.some((moment) => isFull(lock, moment, number)) ? undefined : "though there was room";
    case "COUNT_MISMATCH":
      return moments.some((moment) => membersAt(lock, moment).some((member) => member.number !== number))
        ? undefined
        : "though nobody waited for another number";
    case "BARRIER_BROKEN": {
      const dead = new Set(deadBy(facts, lock, call.seenTo).map((member) => member.owner));
      const told = (returned?.owners ?? "").split(",");
      if (told.some((each) => !dead.has(each))) return "though no such member had died";
      return onCrash === "reject" || told.includes(owner) ? undefined : "which it had not asked for";
    }
    default:
      return undefined;
  }
}

/** Without the one who comes. */
function isFull(lock: string, moment: Moment, number: number): boolean {
  const members = membersAt(lock, moment);
  const ready = readyAt(lock, moment);
  const isInside = ready !== undefined && members.some(({ create }) => create < ready.rev);
  return isInside || members.filter((member) => member.number === number).length > number;
}

/** The call of `enter` before it. */
export const entranceOf = (facts: Facts, { called }: Meeting): Meeting | undefined =>
  meetingsOf(facts, "enter").find(
    ({ called: { p, of }, status }) => p === called.p && of === called.of && status === "ok",
  );

function wronglyLeft(facts: Facts, call: Meeting): string | undefined {
  if (call.status !== "ok" && call.status !== "BARRIER_BROKEN") return undefined;
  const enter = entranceOf(facts, call);
  const rounds = enter ? roundsOf(facts, enter) : [];
  const wrong = rounds.map((round) => wrongEnd(facts, call, round));
  return wrong.length === 0 || wrong.includes(undefined) ? undefined : `though ${wrong[0]}`;
}

/** Why the members of the round had not all left, or died as it was told. */
function wrongEnd(facts: Facts, call: Meeting, { members }: Round): string | undefined {
  const { lock, onCrash, owner } = call.called;
  const creates = new Set(members.map(({ create }) => create));
  const moments = during(momentsOf(facts, "double", lock), call);
  const there = (moment: Moment) => membersAt(lock, moment).filter(({ create }) => creates.has(create));
  const dead = deadBy(facts, lock, call.seenTo).filter(({ create }) => creates.has(create));
  const told = call.returned?.owners?.split(",");
  if (told?.some((each) => !dead.some((member) => member.owner === each))) return "no such member had died";
  const isOwn = told?.length === 1 && told[0] === owner;
  const least = Math.min(...moments.map((moment) => there(moment).length));
  if (!isOwn && least > 0) return `${least} of ${members.length} members had not left`;
  if (call.status === "ok" && onCrash === "reject" && dead.length > 0)
    return `${dead.map((member) => member.owner).join()} had died`;
  if (call.status !== "ok" && onCrash === "continue" && !isOwn) return "it had not asked for that";
  return undefined;
}
