import { type RuleName } from "../rules.js";
import { type Accidents, type CallerSetup, type Scenario } from "../scenarios.js";
import { letterOf, type Broken } from "../world.js";

/** A key of the queue. Deleted keys are kept: a lagging member or a late watch has not seen their deletion yet. */
export interface Key {
  readonly key: string;
  /** Every put has a value of its own. */
  readonly value: number;
  readonly lease: number;
  readonly rank: number;
  /** It is the key of a hold. Otherwise it is a place. */
  readonly granted: boolean;
  readonly created: number;
  /** The revision that deleted it, or 0 while it exists. */
  readonly deleted: number;
  readonly deletedBy: "nobody" | "its owner" | "its lease" | "hand";
  /** It is the delay key of the hold with this key. */
  readonly delays: string | undefined;
}

/** A key as its client knows it. */
export interface Entry {
  readonly key: string;
  readonly value: number;
  /** 0 until etcd has returned it. */
  readonly revision: number;
  /** Attempts to put it that were sent and not answered: each may still be applied. */
  readonly unanswered: number;
}

export interface Txn {
  /** A claim puts the key of a hold, and deletes the place of its caller if that has one. */
  readonly is: "claim" | "place" | "leave";
  readonly key: string;
  readonly value: number;
  readonly lease: number;
  readonly rank: number;
  /** Leaving: only what was created at this revision; 0 = only what has the caller's value. */
  readonly created: number;
  /** Claiming: the place, which must be there. Without one, the queue must be empty. */
  readonly place: { readonly key: string; readonly created: number } | undefined;
  /** Claiming: the keys that must be gone. */
  readonly gone: readonly string[];
  /** Claiming: nothing may have been created after this revision. */
  readonly since: number;
  /** Putting a place: its session knows that nobody holds, and that this place is next, whose claim it has not let pass. */
  readonly passes?: NextPlace | undefined;
}

/** Nobody holds, and this place is next, as an answer has shown. */
export interface NextPlace {
  readonly key: string;
  readonly created: number;
  readonly rank: number;
}

/** Sent, then executed (the answer exists), then answered. The answer shows the queue of its revision. */
export interface Call {
  readonly txn: Txn;
  readonly answer: Answer | undefined;
}

export interface Answer {
  readonly done: boolean;
  readonly leaseGone: boolean;
  readonly revision: number;
}

/** What the last answer that has shown the queue means to a call. */
export interface Outlook {
  readonly revision: number;
  /** Nobody better waits: when these are gone, it may claim, unless somebody has come since. */
  readonly blockers: readonly string[] | undefined;
  /** The key whose end it waits for. undefined: it may claim now. */
  readonly behind: { readonly key: string; readonly created: number } | undefined;
}

export type State =
  | { readonly at: "idle" | "holding" | "done" }
  /** Before its first place, or its next one: another call of its session joins. */
  | { readonly at: "line" }
  /** Before its first place, too: the claim of a call that is no worse comes first. */
  | { readonly at: "passing"; readonly next: NextPlace }
  /** It claims the lock without a place, or puts its place. */
  | { readonly at: "joining"; readonly call: Call }
  /** For the end of the key that its last answer has shown before it. */
  | {
      readonly at: "waiting";
      readonly watch: { readonly createdAt: number; readonly position: number };
      /** That key is read, since it may have ended between the answer and the watch. */
      readonly check: { readonly answer: number } | undefined;
    }
  /** For the end of the place of a better call of its own session. */
  | { readonly at: "local"; readonly below: number }
  /** `answer`: the revision of the queue that it gets, or 0. */
  | { readonly at: "reading"; readonly answer: number }
  | { readonly at: "claiming"; readonly call: Call }
  /** It claims nothing any more. Its keys are deleted independently. */
  | { readonly at: "leaving"; readonly calls: readonly Call[] };

/** A user that calls `lock({ priority })`. */
export interface Caller {
  readonly id: number;
  readonly label: string;
  readonly setup: CallerSetup;
  readonly rank: number;
  rounds: number;
  /** How many keys it has tried to put. */
  puts: number;
  place: Entry | undefined;
  /** The key that it claims, or holds. */
  hold: Entry | undefined;
  outlook: Outlook | undefined;
  state: State;
  /** It no longer waits, but the answer to a request is awaited. */
  gaveUp: boolean;
  /** A call does it once. */
  hasLetPass: boolean;
}

export interface Session {
  readonly id: number;
  readonly label: string;
  /** paused: the process is stopped. over: it knows that the session is lost. */
  client: "running" | "paused" | "over";
  member: "leading" | "lagging";
  /** By the last answer to any of its calls. */
  next: NextPlace | undefined;
  /** It looks for keys that are nobody's. */
  sweeps: boolean;
  /** The lease of its delay keys; 0 = none. */
  readonly delayLease: number;
  /** It held when its lease ended: the lock is free after the delay. */
  delaying: boolean;
}

/** One moment. */
export interface Priorities {
  readonly scenario: Scenario;
  readonly without: ReadonlySet<RuleName>;
  revision: number;
  lagging: number;
  keys: readonly Key[];
  leases: readonly boolean[];
  sessions: readonly Session[];
  callers: readonly Caller[];
  /** Transactions that nobody waits for: each may still be executed, or never. */
  late: readonly Txn[];
  /** The highest fence that was granted. */
  granted: number;
  left: Accidents;
  broken: Broken | undefined;
  said: string[];
}

/** The lease of a client that is no part of the model. */
export const STRANGER = -1;

const firstKeys = ({ firstRank: rank }: Scenario): readonly Key[] =>
  rank === undefined
    ? []
    : [
        {
          ...{ key: "jobs/Z", value: 0, lease: STRANGER, rank, granted: false, created: 1, deleted: 0 },
          ...{ deletedBy: "nobody", delays: undefined },
        },
      ];

export function firstWorld(scenario: Scenario, without: readonly RuleName[]): Priorities {
  const { sessions, accidents } = scenario;
  return {
    scenario,
    without: new Set(without),
    revision: 1,
    lagging: 1,
    keys: firstKeys(scenario),
    leases: [...sessions, ...sessions.filter(({ delays }) => delays)].map(() => true),
    sessions: sessions.map(({ member, delays }, id) => ({
      ...{
        id,
        label: letterOf(id),
        client: "running",
        member,
        next: undefined,
        sweeps: false,
        delaying: false,
      },
      delayLease: delays ? sessions.length + sessions.slice(0, id).filter((each) => each.delays).length : 0,
    })),
    callers: scenario.callers.map((setup, id) => callerOf(scenario, setup, id)),
    late: [],
    granted: 0,
    left: accidents,
    broken: undefined,
    said: [],
  };
}

function callerOf({ callers }: Scenario, setup: CallerSetup, id: number): Caller {
  const { session, rank = 0, rounds } = setup;
  const number = callers.slice(0, id + 1).filter((each) => each.session === session).length;
  const isAlone = callers.filter((each) => each.session === session).length === 1;
  return {
    ...{ id, label: `${letterOf(session)}${isAlone ? "" : number}`, setup, rank, rounds, puts: 0 },
    ...{ place: undefined, hold: undefined, outlook: undefined, state: { at: "idle" }, gaveUp: false },
    hasLetPass: false,
  };
}

export const sessionOf = ({ sessions }: Priorities, { setup }: Caller): Session => sessions[setup.session]!;

/** The other callers of its session. */
export const siblings = ({ callers }: Priorities, caller: Caller): readonly Caller[] =>
  callers.filter((other) => other !== caller && other.setup.session === caller.setup.session);

const lives = ({ created, deleted }: Key, revision: number): boolean =>
  created <= revision && (deleted === 0 || deleted > revision);

/** Oldest first. */
export const queueAt = ({ keys, revision }: Priorities, at = revision): Key[] =>
  keys.filter((key) => lives(key, at));

export const keyAt = (world: Priorities, key: string, at = world.revision): Key | undefined =>
  world.keys.find((other) => other.key === key && lives(other, at));

/** Exactly this key, though one of the same name may exist before and after it. */
export const keyOf = ({ keys }: Priorities, { key, revision }: Entry): Key | undefined =>
  keys.find((other) => other.key === key && other.created === revision);

/** Which of two places is served first. */
export const isBefore = (a: Pick<Key, "rank" | "created">, b: Pick<Key, "rank" | "created">): boolean =>
  a.rank === b.rank ? a.created < b.created : a.rank < b.rank;

/** Before the create revision of a key is known, its value shows whose it is. */
export const isOurs = ({ callers }: Priorities, { key, value, created, delays }: Key): boolean =>
  callers.some(({ place, hold }) =>
    [place, hold].some(
      (entry) =>
        entry?.key === (delays ?? key) &&
        (entry.revision === 0 ? entry.value === value : entry.revision === created),
    ),
  );
