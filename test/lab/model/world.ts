import type { RuleName } from "./rules.js";
import type { Accidents, CallerSetup, Scenario } from "./scenarios.js";

/** A key of a queue. The dead ones are kept: a member that lags, or a watch that is late, has yet to see them go. */
export interface Key {
  readonly name: string;
  readonly key: string;
  /** Every place puts another value: after a lost answer it tells whose key this is. */
  readonly value: number;
  readonly lease: number;
  /** Create revision: the order of the queue. */
  readonly created: number;
  /** The revision that deleted it, 0 while it lives. */
  readonly deleted: number;
  readonly deletedBy: "nobody" | "its owner" | "its lease" | "hand";
}

/** One key of ours in a queue, as its client knows it: (key, create revision), never a key alone. */
export interface Place {
  readonly key: string;
  readonly value: number;
  /** 0 until etcd has told it. */
  readonly revision: number;
  /** Attempts to put the key that were sent and not answered: each may be applied yet. */
  readonly unanswered: number;
}

/** A transaction, as it is sent. */
export interface Txn {
  readonly is: "join" | "try" | "leave";
  readonly name: string;
  readonly key: string;
  readonly value: number;
  readonly lease: number;
  /** Leaving: delete only what was created at this revision; 0 = only what has our value. */
  readonly created: number;
  /** Joining: who is before me? Leaving: who is first after me? */
  readonly asks: boolean;
}

export interface Answer {
  /** The conditions were true, and it was done. */
  readonly done: boolean;
  readonly leaseGone: boolean;
  /** etcd's revision after the transaction. */
  readonly revision: number;
  readonly position: Position | undefined;
  /** A refused join: what is there under our key. */
  readonly own: Key | undefined;
  readonly first: Key | undefined;
}

/** Where a place stands in its queue. */
export interface Position {
  readonly revision: number;
  /** The key is there, with the create revision that we know. */
  readonly mine: boolean;
  readonly predecessor: Predecessor | undefined;
}

export interface Predecessor {
  readonly key: string;
  readonly revision: number;
  /** It is known that nobody is before it. */
  readonly holder: boolean;
}

/** A call on its way: sent, then executed (the answer exists), then answered. */
export interface Call {
  readonly txn: Txn;
  readonly answer: Answer | undefined;
}

export interface Read {
  /** Asked of a quorum; else of the member that serves the watches, which may lag. */
  readonly linearizable: boolean;
  /** An answer of an older state does not count. */
  readonly atLeast: number;
  readonly answer: Position | undefined;
}

/** A watch for the deletion of a key, which tells what happens after `position`. */
export interface Watch {
  readonly key: string;
  /** 0 until etcd has created it. */
  readonly createdAt: number;
  readonly position: number;
}

/** Waiting for one's turn behind a place of another session. */
export interface Turn {
  readonly at: "waiting";
  readonly predecessor: Predecessor | undefined;
  readonly predecessorWatch: Watch | undefined;
  readonly ownWatch: Watch | undefined;
  /** Both watches are there, and a read after that has found the predecessor alive. */
  readonly verified: boolean;
  /** The deletion of the predecessor was heard. */
  readonly deleted: boolean;
  readonly atLeast: number;
  readonly read: Read | undefined;
}

export interface Holding {
  readonly at: "holding";
  readonly ownWatch: Watch | undefined;
  /** Makes sure that the key was there when the watch began. */
  readonly read: Read | undefined;
}

export type State =
  /** It will ask for the lock when it pleases. */
  | { readonly at: "idle" }
  /** It lost its place while waiting, and joins anew. */
  | { readonly at: "again" }
  | { readonly at: "joining"; readonly call: Call }
  /** Behind a place of its own session: woken by that one's end, it needs no watch. */
  | { readonly at: "local"; readonly below: number }
  | Turn
  | Holding
  /** It claims nothing any more; the delete of its key is under way. */
  | { readonly at: "leaving"; readonly call: Call; readonly releases: boolean; readonly repeated: boolean }
  | { readonly at: "done" };

/** Somebody who calls `lock()` or `tryLock()`. */
export interface Caller {
  readonly id: number;
  /** "A", or "A2" for the second caller of a session that has several. */
  readonly label: string;
  readonly setup: CallerSetup;
  /** How often it will still ask. */
  rounds: number;
  /** How many places it has had. */
  places: number;
  place: Place | undefined;
  state: State;
  /** It waits no longer, but its join is under way. */
  gaveUp: boolean;
  /** The fence of a write that it decided upon while it held; 0 = none. */
  writing: number;
}

export interface Session {
  readonly id: number;
  readonly label: string;
  readonly lease: number;
  /** paused: the process stands still. over: it knows that the session is lost. */
  client: "running" | "paused" | "over";
  /** The member that serves its watches and serializable reads. */
  member: "leading" | "lagging";
  /** Keys of which a late put may come yet, or that are there with a value not ours: given to no other place for a while. */
  doubted: readonly string[];
  /** It has had a key in doubt: it looks for keys that are no place to the end of the lease. */
  sweeps: boolean;
}

/** One moment: what etcd stores, what every client believes, and what is on its way between them. */
export interface World {
  readonly scenario: Scenario;
  /** The rules that are switched off. */
  readonly without: ReadonlySet<RuleName>;
  revision: number;
  /** How far the lagging member has come. */
  lagging: number;
  /** In the order of their creation. */
  keys: readonly Key[];
  /** By lease: `true` while etcd has it. */
  leases: readonly boolean[];
  sessions: readonly Session[];
  callers: readonly Caller[];
  /** Transactions that nobody waits for any more: each may be executed yet, or never. */
  late: readonly Txn[];
  /** By name: the highest fence that was granted while its key lived, and the highest that wrote. */
  granted: Readonly<Record<string, number>>;
  written: Readonly<Record<string, number>>;
  /** Accidents that may still happen. */
  left: Accidents;
  /** Set by the step that breaks a promise. */
  broken: Broken | undefined;
  /** What the last step was, in words. */
  said: string[];
}

export type Invariant = "single holder" | "fencing" | "no lost wake-up" | "no ghost" | "true losses";

export interface Broken {
  readonly invariant: Invariant;
  readonly what: string;
}

/** Does the model keep to this rule, or is it switched off? */
export const keeps = (world: World, rule: RuleName): boolean => !world.without.has(rule);

export const tell = (world: World, what: string): void => void world.said.push(what);

export const breaks = (world: World, invariant: Invariant, what: string): void => {
  world.broken ??= { invariant, what };
};

export const sessionOf = (world: World, { setup }: Caller): Session => world.sessions[setup.session]!;

/** Sessions, and their leases, are called A, B, C. */
export const letterOf = (index: number): string => String.fromCharCode(65 + index);

/** Go's layout: the lease under the name, and `-n` for further places of one session. */
export const keyName = (name: string, lease: number, n: number): string =>
  `${name}/${letterOf(lease)}${n > 1 ? `-${n}` : ""}`;

export const placeOf = (caller: Caller): Place => caller.place!;
