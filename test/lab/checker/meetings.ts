// What the rules of latches and barriers share: calls from their invocation to what their caller was told, and etcd's keys at each revision.
import { BARRIERS, LATCHES } from "../../../src/keys.js";
import type { Called, Meeting as MeetingCall, Returned, ServerEvent } from "../runner/history.js";
import { at, type Facts } from "./facts.js";
import { grouped } from "./grouped.js";
import { earlier, FOREVER, order, type Span } from "./spans.js";

/** A call. `to`: FOREVER if its caller was never told. */
export interface Meeting extends Span {
  /** What etcd did before it ended was seen then, at the latest. */
  readonly seenTo: bigint;
  readonly called: Called;
  readonly returned: Returned | undefined;
  /** "": never told. */
  readonly status: string;
  /** When its caller gave up; FOREVER if it did not. */
  readonly gaveUp: bigint;
  /** What it did was seen then, at the latest: a request may be late, unless it was answered. */
  readonly mayActTo: bigint;
}

/** etcd's keys from one revision on until the next one that changes them. */
export interface Moment extends Span {
  readonly rev: bigint;
  readonly keys: ReadonlyMap<string, ServerEvent>;
  /** What has led to it. */
  readonly events: readonly ServerEvent[];
}

interface Gathered {
  readonly meetings: readonly Meeting[];
  readonly moments: Map<string, readonly Moment[]>;
}
const known = new WeakMap<Facts, Gathered>();

function gathered(facts: Facts): Gathered {
  let found = known.get(facts);
  if (found === undefined) known.set(facts, (found = { meetings: readMeetings(facts), moments: new Map() }));
  return found;
}

export const meetingsOf = (facts: Facts, ...calls: readonly MeetingCall[]): readonly Meeting[] =>
  gathered(facts).meetings.filter(({ called }) => calls.includes(called.f));

function readMeetings({ steps, troubles }: Facts): readonly Meeting[] {
  return [...grouped(steps.meetings, ({ p, id }) => `${p}#${id}`).values()].map((about) => {
    const called = about.find((step) => step.k === "called") as Called;
    const returned = about.find((step) => step.k === "returned");
    const gaveUp = about.find((step) => step.k === "gave-up")?.t ?? FOREVER;
    const [to, status] = [returned?.t ?? FOREVER, returned?.status ?? ""];
    const seenTo = troubles.seenBy(to);
    const mayActTo = status === "ok" ? seenTo : FOREVER;
    return { from: called.t, to, seenTo, called, returned, status, gaveUp, mayActTo };
  });
}

/** What a latch or a barrier has in etcd. */
export type Part = "latch" | "gate" | "double";
const PREFIXES: Readonly<Record<Part, (lock: string) => readonly string[]>> = {
  latch: (lock) => [`${LATCHES}${lock}//`],
  gate: (lock) => [`${lock}/gate`, `${BARRIERS}${lock}/gate//`],
  double: (lock) => [`${lock}/double/`, `${BARRIERS}${lock}/double//`],
};

/** In the order of their revisions; the first one has no keys. */
export function momentsOf(facts: Facts, part: Part, lock: string): readonly Moment[] {
  const { moments } = gathered(facts);
  const id = `${part} ${lock}`;
  let found = moments.get(id);
  if (found === undefined) moments.set(id, (found = readMoments(facts, PREFIXES[part](lock))));
  return found;
}

function readMoments({ meetingKeys }: Facts, prefixes: readonly string[]): readonly Moment[] {
  const mine = meetingKeys.filter(({ key }) => prefixes.some((prefix) => key.startsWith(prefix)));
  const revisions = [...grouped(mine, ({ rev }) => rev)];
  const keys = new Map<string, ServerEvent>();
  const first = revisions[0]?.[1][0]?.tSeen ?? FOREVER;
  const moments: Moment[] = [{ from: 0n, to: first, rev: 0n, keys: new Map(), events: [] }];
  revisions.forEach(([rev, events], n) => {
    for (const event of events)
      if (event.type === "PUT") keys.set(event.key, event);
      else keys.delete(event.key);
    const to = revisions[n + 1]?.[1][0]?.tSeen ?? FOREVER;
    moments.push({ from: events[0]?.tSeen ?? 0n, to, rev, keys: new Map(keys), events });
  });
  return moments;
}

/** Those that may have a time in common with the call. */
export const during = (
  moments: readonly Moment[],
  { from, seenTo }: Pick<Meeting, "from" | "seenTo">,
): readonly Moment[] => moments.filter((moment) => moment.from <= seenTo && moment.to >= from);

export const isCreated = ({ type, rev, create }: ServerEvent): boolean => type === "PUT" && rev === create;

export const ownerOf = ({ value }: ServerEvent): string =>
  String((JSON.parse(value) as { readonly owner?: unknown }).owner);

/** What a call has put, and when that was deleted. */
export interface Effect {
  readonly event: ServerEvent;
  /** Since then, its call may put it anew: it was in a latch whose time is over. */
  readonly over: bigint;
}

/**
 * The effects that no call accounts for, if each call has at most one, and has it until `mayActTo`: of the calls under way, that which
 * ends first.
 */
export function unaccounted(effects: readonly Effect[], calls: readonly Meeting[]): readonly ServerEvent[] {
  const until = new Map<Meeting, bigint>();
  const found: ServerEvent[] = [];
  for (const { event, over } of effects) {
    const t = event.tSeen;
    const free = calls.filter((call) => call.from <= t && t <= call.mayActTo && (until.get(call) ?? 0n) <= t);
    const [first] = free.toSorted((a, b) => order(a.mayActTo, b.mayActTo));
    if (first) until.set(first, over);
    else found.push(event);
  }
  return found;
}

/** The calls that have had none of the effects, if each needs one of its own while it is under way. */
export function withoutEffect(
  calls: readonly Meeting[],
  effects: readonly ServerEvent[],
): readonly Meeting[] {
  const left = [...effects];
  return calls
    .toSorted((a, b) => order(a.to, b.to))
    .filter(({ from, seenTo }) => {
      const n = left.findIndex(({ tSeen }) => from <= tSeen && tSeen <= seenTo);
      if (n >= 0) left.splice(n, 1);
      return n < 0;
    });
}

/** How a sentence names a call, and what its caller was told. */
export function say(facts: Facts, { called, returned, from, to }: Meeting): string {
  const { p, id, f, lock, number, onCrash, item, owner } = called;
  const given = [number, onCrash, item, owner].filter((each) => each !== undefined).join(" ");
  const { status, n, why, phase, owners } = returned ?? {};
  const told = [status, n, why, phase, owners].filter((each) => each !== undefined).join(" ");
  const end = earlier(to, facts.end);
  return `${p}#${id} ${f}(${given}) of ${lock}, ${at(facts, from)}, told "${told}" ${at(facts, end)}`;
}
