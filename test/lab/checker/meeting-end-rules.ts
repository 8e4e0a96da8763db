// The ends of calls for latches and barriers: each has one, and none that its caller has to guess at.
import type { Meeting as MeetingCall } from "../runner/history.js";
import { isClosed } from "./barrier-rules.js";
import { entranceOf, membersAt, ownMembers, roundsOf } from "./double-barrier-rules.js";
import { at, ms, type Facts, type Finding, type Rule } from "./facts.js";
import { isOpen, latchAt } from "./latch-rules.js";
import { grouped } from "./grouped.js";
import { meetingsOf, momentsOf, ownerOf, say, type Meeting, type Moment, type Part } from "./meetings.js";
import { earlier, FOREVER, later } from "./spans.js";
import { BREATH } from "./troubles.js";

const MS = 1_000_000n;
/** So long a call may take to learn what etcd has, if nothing disturbs it. */
const SECOND = 1000n * MS;

const ANYWHERE = ["ok", "GAVE_UP", "ETCD_UNAVAILABLE", "ETCD_REFUSED", "SESSION_CLOSED"];
const WITH_A_SESSION = ["SESSION_LOST"];

/** The codes that a caller may be told. */
const TOLD: Readonly<Record<MeetingCall, readonly string[]>> = {
  countDown: ["COUNT_MISMATCH"],
  count: ["COUNT_MISMATCH"],
  reset: [],
  wait: ["COUNT_MISMATCH", "LATCH_BROKEN", "WAIT_TIMEOUT"],
  enlist: ["COUNT_MISMATCH", ...WITH_A_SESSION],
  counter: ["LATCH_BROKEN", "COUNT_MISMATCH", ...WITH_A_SESSION],
  quit: [],
  hold: ["BARRIER_BROKEN", ...WITH_A_SESSION],
  release: [],
  pass: ["BARRIER_BROKEN", "WAIT_TIMEOUT"],
  enter: ["BARRIER_BROKEN", "BARRIER_FULL", "COUNT_MISMATCH", "WAIT_TIMEOUT", ...WITH_A_SESSION],
  leave: ["BARRIER_BROKEN", "WAIT_TIMEOUT", ...WITH_A_SESSION],
};
const ALL = Object.keys(TOLD) as readonly MeetingCall[];

/** I38: a call ends with what it waits for, or with an error that its documentation names, in time; nothing waits for the dead. */
export const meetingsEnd: Rule = (facts) => [
  ...keptByTheDead(facts),
  ...meetingsOf(facts, ...ALL).flatMap((call) => [
    ...toldStrangely(facts, call),
    ...endedLate(facts, call),
    ...leftWaiting(facts, call),
  ]),
];

/** What a killed process has put with the lease of its session, and would hold others up. */
function keptByTheDead(facts: Facts): Finding[] {
  const own = facts.meetingKeys.filter(({ key }) => key.includes("/waiters/") || key.includes("/alive/"));
  return [...grouped(own, ({ key, create }) => `${create} ${key}`).values()].flatMap((events): Finding[] => {
    const [put] = events;
    const p = put && ownerOf(put).split("/")[0];
    const died = p === undefined ? FOREVER : facts.troubles.killedAt(p);
    if (put === undefined || died === FOREVER) return [];
    const gone = events.find(({ type }) => type === "DELETE")?.tSeen ?? facts.end;
    if (gone <= facts.troubles.seenBy(facts.troubles.limit(p, later(died, put.tSeen)))) return [];
    return [{ text: `${put.key} of ${p}, dead ${at(facts, died)}, was there until ${at(facts, gone)}` }];
  });
}

function toldStrangely(facts: Facts, call: Meeting): Finding[] {
  const { called, status, to, from } = call;
  const what = say(facts, call);
  if (status === "") return [];
  if (![...ANYWHERE, ...TOLD[called.f]].includes(status))
    return [{ text: `${what}, which is not documented` }];
  if (status === "GAVE_UP" && call.gaveUp > to) return [{ text: `${what}, and had not given up` }];
  if (status === "ETCD_REFUSED" && !facts.troubles.refusedByAll(called.p, to))
    return [{ text: `${what}, though the whole cluster refused nothing` }];
  if (status !== "WAIT_TIMEOUT") return [];
  const { limitMs } = called;
  // A timer may run a little early, on a clock that drifts.
  const least = limitMs === undefined ? FOREVER : (BigInt(limitMs) * MS * 95n) / 100n - 2n * MS;
  return to - from >= least ? [] : [{ text: `${what}, ${ms(to - from)} after its call` }];
}

/** A call with a limit of time, and one that its caller has given up. */
function endedLate(facts: Facts, call: Meeting): Finding[] {
  const { called, from, to, gaveUp } = call;
  const { p, limitMs } = called;
  // Some have two parts, each with the limit.
  const limit =
    limitMs === undefined
      ? FOREVER
      : afterRunning(facts, p, { from, ns: 2n * BigInt(limitMs) * MS + BREATH });
  const due = facts.troubles.saidBy(p, earlier(limit, gaveUp === FOREVER ? FOREVER : gaveUp + BREATH));
  return to > due && wasThere(facts, p, due) ? [{ text: `${say(facts, call)}, due ${at(facts, due)}` }] : [];
}

/** When the process has run for so long: a timer may stand still with it. */
function afterRunning({ troubles }: Facts, p: string, { from, ns }: { from: bigint; ns: bigint }): bigint {
  let end = from + ns;
  for (const stop of troubles.still(p))
    if (stop.to >= from && stop.from <= end) end += stop.to - later(stop.from, from);
  return end;
}

/** The process, and the run, lasted until then. */
const wasThere = ({ end, troubles }: Facts, p: string, due: bigint): boolean =>
  due < end && troubles.killedAt(p) > due && troubles.crashedAt(p) > due;

const PARTS: Partial<Record<MeetingCall, Part>> = {
  ...{ wait: "latch", pass: "gate", enter: "double", leave: "double" },
};

/** etcd has had what the call waits for, or what it must be told, for long enough without a break. */
function leftWaiting(facts: Facts, call: Meeting): Finding[] {
  const { called, from, to } = call;
  const part = PARTS[called.f];
  if (part === undefined) return [];
  const reasonAt = reasons(facts, call);
  let since: { readonly reason: string; readonly from: bigint } | undefined;
  for (const moment of momentsOf(facts, part, called.lock)) {
    if (moment.to < from) continue;
    const reason = reasonAt(moment);
    if (reason !== since?.reason)
      since = reason === undefined ? undefined : { reason, from: later(moment.from, from) };
    if (since === undefined) continue;
    // The last one to enter opens a double barrier, for all; all else is told by etcd.
    const due =
      called.f === "enter"
        ? facts.troubles.limit(undefined, since.from)
        : facts.troubles.limit(called.p, since.from, SECOND);
    // It was so until then: what ended it was seen later than it could have been.
    if (facts.troubles.seenBy(due) < moment.to && to > due && wasThere(facts, called.p, due))
      return [{ text: `${say(facts, call)}, waited on, though ${since.reason} ${at(facts, since.from)}` }];
  }
  return [];
}

/** Why it must end in this state. */
function reasons(facts: Facts, call: Meeting): (moment: Moment) => string | undefined {
  const { f, lock, number = 0, onCrash } = call.called;
  if (f === "wait")
    return (moment) => {
      const state = latchAt(lock, moment);
      if (state.round === undefined) return undefined;
      if (state.number !== number) return "others used another number";
      if (isOpen(state)) return "all had counted";
      return onCrash === "reject" && state.dead.length > 0 ? "a counter was dead" : undefined;
    };
  if (f === "pass") return (moment) => (isClosed(lock, moment) ? undefined : "nobody held it");
  if (f === "enter") {
    const own = new Set(ownMembers(facts, call).map(({ create }) => create));
    return (moment) => {
      const firsts = membersAt(lock, moment)
        .filter((member) => member.number === number)
        .slice(0, number);
      const isIn = firsts.length === number && firsts.some(({ create }) => own.has(create));
      return isIn ? `${firsts.map(({ create }) => create).join()} were all there` : undefined;
    };
  }
  const enter = entranceOf(facts, call);
  const rounds = enter ? roundsOf(facts, enter) : [];
  const creates = new Set(rounds.flatMap(({ members }) => members.map(({ create }) => create)));
  return (moment) =>
    creates.size > 0 && !membersAt(lock, moment).some(({ create }) => creates.has(create))
      ? "all had left"
      : undefined;
}
