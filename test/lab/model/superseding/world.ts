import { type RuleName } from "../rules.js";
import { type Accidents, type CallerSetup, type Scenario } from "../scenarios.js";
import { letterOf, type Broken, type Known } from "../world.js";

/** A key of the queue. Deleted keys are kept: etcd's history has them. */
export interface Key {
  readonly key: string;
  /** Every put has a value of its own, which begins with its caller. */
  readonly value: number;
  readonly lease: number;
  readonly created: number;
  /** The revision that deleted it, or 0 while it exists. */
  readonly deleted: number;
  readonly deletedBy: "nobody" | "its owner" | "a newer call" | "its lease" | "hand";
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
  readonly is: "join" | "leave";
  readonly key: string;
  readonly value: number;
  readonly lease: number;
  /** Leaving: only what was created at this revision; 0 = only what has the caller's value. */
  readonly created: number;
  /** Joining: nothing may have been put after this revision; undefined: the queue must be empty. A plain call joins in any case. */
  readonly since: number | undefined;
  readonly plain: boolean;
  /** Joining: the oldest key, if any is deleted. It must be there. */
  readonly guard: Known | undefined;
  /** Joining: the keys of older calls that wait. They are deleted. */
  readonly overtaken: readonly string[];
}

/** Sent, then executed (the answer exists), then answered. The answer shows the queue of its revision. */
export interface Call {
  readonly txn: Txn;
  readonly answer:
    { readonly done: boolean; readonly leaseGone: boolean; readonly revision: number } | undefined;
}

export type State =
  | { readonly at: "idle" | "waiting" | "holding" | "done" }
  /** Its key was deleted at `then`: it reads the queue of that moment, or that of now if it doesn't know the moment. */
  | { readonly at: "asking"; readonly then: number; readonly answer: number }
  | { readonly at: "joining"; readonly call: Call }
  /** It reads what was put between `inDoubt.since` and its own put. */
  | { readonly at: "checking" }
  /** It claims nothing any more. */
  | { readonly at: "leaving"; readonly call: Call };

/** A user that calls `lock({ supersede: true })`, or `lock()`. */
export interface Caller {
  readonly id: number;
  readonly label: string;
  readonly setup: CallerSetup;
  rounds: number;
  /** How many keys it has tried to put. */
  puts: number;
  entry: Entry | undefined;
  /** The revision of the queue that the last answer has shown, after which it joins. */
  shownAt: number | undefined;
  overtaken: readonly Key[];
  guard: Known | undefined;
  /** The create revisions of its keys, as far as it knows. The first one is its age. */
  own: readonly number[];
  /** Attempts without an answer: the values that they may have put, after this revision. */
  inDoubt: { readonly since: number; readonly values: readonly number[] } | undefined;
  /** Its key was deleted at this revision; 0: at one that it does not know. */
  lost: number | undefined;
  state: State;
  gaveUp: boolean;
  /** The create revision of the first key with which it has waited; 0: none. */
  age: number;
}

export interface Session {
  readonly id: number;
  readonly label: string;
  /** The next one begins when a lease is lost. */
  lease: number;
}

/** One moment. Each caller has a session of its own. */
export interface Superseding {
  readonly scenario: Scenario;
  readonly without: ReadonlySet<RuleName>;
  revision: number;
  /** In the order of their creation. */
  keys: readonly Key[];
  leases: readonly boolean[];
  sessions: readonly Session[];
  callers: readonly Caller[];
  /** Transactions that nobody waits for: each may still be executed, or never. */
  late: readonly Txn[];
  left: Accidents;
  broken: Broken | undefined;
  said: string[];
}

export const firstWorld = (scenario: Scenario, without: readonly RuleName[]): Superseding => ({
  scenario,
  without: new Set(without),
  revision: 1,
  keys: [],
  leases: scenario.sessions.map(() => true),
  sessions: scenario.sessions.map((_, id) => ({ id, label: letterOf(id), lease: id })),
  callers: scenario.callers.map((setup, id) => ({
    ...{ id, label: letterOf(id), setup, rounds: setup.rounds, puts: 0, gaveUp: false, age: 0 },
    ...NEW_CALL,
    state: { at: "idle" },
  })),
  late: [],
  left: scenario.accidents,
  broken: undefined,
  said: [],
});

/** What a call knows at its begin. */
export const NEW_CALL = {
  ...{ entry: undefined, shownAt: undefined, overtaken: [], guard: undefined, own: [] },
  ...{ inDoubt: undefined, lost: undefined },
};

export const sessionOf = ({ sessions }: Superseding, { id }: Caller): Session => sessions[id]!;

const lives = ({ created, deleted }: Key, revision: number): boolean =>
  created <= revision && (deleted === 0 || deleted > revision);

/** Oldest first. */
export const queueAt = ({ keys, revision }: Superseding, at = revision): Key[] =>
  keys.filter((key) => lives(key, at));

export const keyAt = (world: Superseding, key: string, at = world.revision): Key | undefined =>
  world.keys.find((other) => other.key === key && lives(other, at));

/** Exactly this key, though one of the same name may exist before and after it. */
export const keyOf = ({ keys }: Superseding, { key, revision }: Entry): Key | undefined =>
  keys.find((other) => other.key === key && other.created === revision);

export const callerOf = ({ callers }: Superseding, { value }: Pick<Key, "value">): Caller =>
  callers[Math.floor(value / 16)]!;

/** As its value says. */
export const supersedes = (world: Superseding, key: Key): boolean =>
  callerOf(world, key).setup.supersedes === true;

/** Before the create revision of a key is known, its value shows whose it is. */
export const isOurs = ({ callers }: Superseding, { key, value, created }: Key): boolean =>
  callers.some(
    ({ entry }) =>
      entry?.key === key && (entry.revision === 0 ? entry.value === value : entry.revision === created),
  );
