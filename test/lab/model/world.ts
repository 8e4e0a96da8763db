import type { RuleName } from "./rules.js";
import type { Accidents, CallerSetup, Scenario } from "./scenarios.js";

/** A key of a queue. Deleted keys are kept: a lagging member or a late watch has not seen their deletion yet. */
export interface Key {
  readonly name: string;
  readonly key: string;
  /** Every place puts a different value: after a lost answer, it shows whose key this is. */
  readonly value: number;
  readonly lease: number;
  /** Create revision: the order of the queue. */
  readonly created: number;
  /** The revision that deleted it, or 0 while it exists. */
  readonly deleted: number;
  readonly deletedBy: "nobody" | "its owner" | "a transfer" | "its lease" | "hand";
  /** The revision of the put that has made its writer a reader. */
  readonly downgraded?: number;
  /** The revision of its last put, if that is not the first one. */
  readonly modified?: number;
  /** A leader has handed over to it. */
  readonly named?: true;
  /** It is the delay key of the place with this key, on the delay lease of its session. */
  readonly delays?: string;
}

/** One key of a client in a queue, as the client knows it: (key, create revision), never a key alone. */
export interface Place {
  readonly key: string;
  readonly value: number;
  /** 0 until etcd has returned it. */
  readonly revision: number;
  /** Attempts to put the key that were sent and not answered: each may still be applied. */
  readonly unanswered: number;
  /** How often the lock was taken with this key. */
  readonly turn: number;
  /** Its writer becomes a reader: others may read beside it. */
  readonly downgraded?: true;
  /** The revision of its last put, if that is known to be a later one. */
  readonly modified?: number;
  /** The process before may have held it: the fence is the same then. */
  readonly adopted?: true;
}

/** The key of another client, as a read has shown it. */
export interface Known {
  readonly key: string;
  readonly revision: number;
}

/** A transaction as it is sent. */
export interface Txn {
  readonly is: "join" | "try" | "leave" | "take over" | "downgrade" | "transfer";
  readonly name: string;
  readonly key: string;
  readonly value: number;
  readonly lease: number;
  /** Leaving, handing over, taking over, or becoming a reader: only what was created at this revision; 0 = only what has the caller's value. */
  readonly created: number;
  /** Becoming a reader: only what was put last at this revision. */
  readonly modified?: number;
  /** Joining: which place is before this one? Leaving: which one is first after it? */
  readonly asks: boolean;
  /** Handing over: who is next then, and those before it, whose keys are deleted, too. */
  readonly target?: Known;
  readonly moved?: readonly Known[];
  /** A leader has named the next one, and shows that by a put of its key. */
  readonly names?: true;
}

export interface Answer {
  /** The conditions were true, and the transaction was executed. */
  readonly done: boolean;
  readonly leaseGone: boolean;
  /** etcd's revision after the transaction. */
  readonly revision: number;
  readonly position: Position | undefined;
  /** A refused join or downgrade: what exists under the caller's key. */
  readonly own: Key | undefined;
  readonly first: Key | undefined;
  /** A refused transfer: who is there. */
  readonly queue?: readonly Key[];
}

/** Where a place stands in its queue. */
export interface Position {
  readonly revision: number;
  /** The key exists with the expected create revision. */
  readonly mine: boolean;
  readonly predecessor: Predecessor | undefined;
  /** A place is behind it: for holders that want to know. */
  readonly isFollowed?: boolean;
}

export interface Predecessor {
  readonly key: string;
  readonly revision: number;
  /** It is known that no place is before it. */
  readonly holder: boolean;
  /** More than three places are before the caller's. */
  readonly isFar: boolean;
  /** It is a writer before a reader: it may become a reader. */
  readonly mayDowngrade?: boolean;
  /** Its key may stay with its session after a release: then it ends about now. */
  readonly mayBeKept?: boolean;
  /** The place before it, if one is known. */
  readonly before: Omit<Predecessor, "before" | "isFar" | "mayDowngrade" | "mayBeKept"> | undefined;
}

/** A call in progress: sent, then executed (the answer exists), then answered. */
export interface Call {
  readonly txn: Txn;
  readonly answer: Answer | undefined;
}

export interface Read {
  /** The read asks a quorum; otherwise it asks the member that serves the watches, which may lag. */
  readonly linearizable: boolean;
  /** An answer that shows an older state does not count. */
  readonly atLeast: number;
  readonly answer: Position | undefined;
}

/** A watch for the deletion of a key, which reports what happens after `position`. */
export interface Watch {
  readonly key: string;
  /** It reports the deletion of this key, too: if one revision deletes both, it reports both at once. */
  readonly with: string | undefined;
  /** 0 until etcd has created it. */
  readonly createdAt: number;
  readonly position: number;
}

/** A caller waits for its turn behind a place of another session. */
export interface Turn {
  readonly at: "waiting";
  readonly predecessor: Predecessor | undefined;
  readonly predecessorWatch: Watch | undefined;
  readonly ownWatch: Watch | undefined;
  /** On the place before the predecessor, which was created at `of`. */
  readonly beforeWatch: (Watch & { readonly of: number }) | undefined;
  /** For the puts of a predecessor that may become a reader. */
  readonly putsWatch?: Watch | undefined;
  /** The watches that are needed exist, and a read after that has found the predecessor alive. */
  readonly verified: boolean;
  /** The watch has reported the predecessor's deletion. */
  readonly deleted: boolean;
  readonly atLeast: number;
  /** The predecessor holds since this revision, if the end of the place before it has shown that. */
  readonly holdsSince: number;
  /** The last answer that showed the predecessor and the own key is of this revision. */
  readonly seenAt: number;
  readonly read: Read | undefined;
}

/** Far from the turn, only the place before the predecessor is watched. Otherwise that watch only saves a read. */
export function neededWatches({
  predecessorWatch,
  ownWatch,
  beforeWatch,
  putsWatch,
}: Turn): readonly Watch[] {
  if (!predecessorWatch && beforeWatch) return [beforeWatch];
  return [predecessorWatch, ownWatch, putsWatch].filter((watch) => watch !== undefined);
}

/** etcd has created all watches that are needed. */
export function watches(turn: Turn): boolean {
  const needed = neededWatches(turn);
  return needed.length > 0 && needed.every(({ createdAt }) => createdAt > 0);
}

export interface Holding {
  readonly at: "holding";
  readonly ownWatch: Watch | undefined;
  /** Verifies that the key existed when the watch began. */
  readonly read: Read | undefined;
  readonly demand: Demand | undefined;
  /** A writer becomes a reader. */
  readonly call?: Call;
  /** A candidate with a priority whose turn has come: it may hand over before it leads. */
  readonly chooses?: true;
}

/** What a session knows of those that join behind a key that may stay with it. */
export interface Demand {
  readonly watch: Watch | undefined;
  /** A read after the watch has shown nobody. */
  readonly verified: boolean;
  readonly wanted: boolean;
  /** Since then: so many callers of its process may still take the lock first, and so many have. */
  readonly passes: number;
  readonly passed: number;
}

/** It no longer claims anything; the delete of its key is in progress. */
export interface Leaving {
  readonly at: "leaving";
  readonly call: Call;
  readonly releases: boolean;
  readonly repeated: boolean;
  /** Of a transfer that could not be: it only leaves. */
  readonly refused?: true;
  /** It has not led: it joins again. */
  readonly yields?: true;
}

/** The lock is free, and the key stays with the session. */
export interface Kept {
  readonly at: "kept";
  readonly demand: Demand;
  readonly read: Read | undefined;
}

export type State =
  /** It may request the lock at any time. */
  | { readonly at: "idle" }
  /** It lost its place while waiting, and joins again. */
  | { readonly at: "again" }
  | { readonly at: "joining"; readonly call: Call }
  /** Behind a place of its own session: that one's end wakes it, so it needs no watch. */
  | { readonly at: "local"; readonly below: number }
  | Turn
  | Holding
  | Kept
  /** It waits in the process, without a place: its session has a key that may stay. */
  | { readonly at: "line" }
  | Leaving
  | { readonly at: "done" };

/** A user that calls `lock()` or `tryLock()`. */
export interface Caller {
  readonly id: number;
  /** "A", or "A2" for the second caller of a session that has several. */
  readonly label: string;
  readonly setup: CallerSetup;
  /** How often it will still request the lock. */
  rounds: number;
  /** How many places it has had. */
  places: number;
  place: Place | undefined;
  state: State;
  /** It no longer waits, but its join is in progress. */
  gaveUp: boolean;
  /** The sessions to which it has handed over without leading. */
  tried: readonly number[];
  /** Its try was refused, and it has joined behind the key in the way. */
  asked?: boolean;
  /** The fence of a write that it decided on while it held, with its turn: see `tokenOf`. 0 = none. */
  writing: number;
}

export interface Session {
  readonly id: number;
  readonly label: string;
  readonly lease: number;
  /** Another session, whose lease it adopts when that one's process has ended: until then, it has not begun. */
  readonly adopts: number | undefined;
  /** The keys that it has found then, and that no caller has taken over. */
  adopted: readonly Key[];
  /** paused: the process is stopped. over: it knows that the session is lost. */
  client: "not begun" | "running" | "paused" | "over";
  /** The member that serves its watches and serializable reads. */
  member: "leading" | "lagging";
  /**
   * Keys for which a late put may still arrive, or that exist with an unknown value: given to no other place for a
   * while.
   */
  doubted: readonly string[];
  /** It has had a key in doubt: it looks for keys that are not places until the end of the lease. */
  sweeps: boolean;
  /** The lease of its delay keys; 0 = none. */
  readonly delayLease: number;
  /** The names that it held when its lease ended before its holds did: they are free after the delay. */
  delaying: readonly string[];
}

/** One moment: what etcd stores, what every client believes, and what is in transit between them. */
export interface World {
  readonly scenario: Scenario;
  /** The rules that are switched off. */
  readonly without: ReadonlySet<RuleName>;
  revision: number;
  /** What the lagging member has applied. */
  lagging: number;
  /** In the order of their creation. */
  keys: readonly Key[];
  /** By lease: `true` while it exists in etcd. */
  leases: readonly boolean[];
  sessions: readonly Session[];
  callers: readonly Caller[];
  /** Transactions that no caller waits for any longer: each may still be executed, or never. */
  late: readonly Txn[];
  /** By name: the highest fence that was granted while its key existed, and the highest that wrote. */
  granted: Readonly<Record<string, number>>;
  written: Readonly<Record<string, number>>;
  /** Accidents that may still happen. */
  left: Accidents;
  /** Set by the step that breaks a promise. */
  broken: Broken | undefined;
  /** A description of the last step. */
  said: string[];
}

export type Invariant =
  | "single holder"
  | "fencing"
  | "no lost wake-up"
  | "no ghost"
  | "true losses"
  | "true transfers"
  | "delay"
  | "no overtaking"
  | "no endless claims"
  | "newest wins";

export interface Broken {
  readonly invariant: Invariant;
  readonly what: string;
}

/** Whether the model keeps this rule; false if it is switched off. */
export const keeps = ({ without }: Pick<World, "without">, rule: RuleName): boolean => !without.has(rule);

export const tell = ({ said }: Pick<World, "said">, what: string): void => void said.push(what);

export const breaks = (world: Pick<World, "broken">, invariant: Invariant, what: string): void => {
  world.broken ??= { invariant, what };
};

export const sessionOf = (world: World, { setup }: Caller): Session => world.sessions[setup.session]!;

/** Sessions and their leases are named A, B, C. */
export const letterOf = (index: number): string => String.fromCharCode(65 + index);

/** Go's layout: the lease under the name, and `-n` for further places of one session. */
export const keyName = (name: string, lease: number, n: number): string =>
  `${name}/${letterOf(lease)}${n > 1 ? `-${n}` : ""}`;

/** Readers have a folder of their own. */
export const isReaders = (key: string): boolean => key.includes("/read/");

/** Others may hold beside it. */
export const isShared = ({ place }: Caller): boolean =>
  place !== undefined && (isReaders(place.key) || place.downgraded === true);

/** The key excludes readers. */
export const excludesReaders = ({ key, downgraded }: Key): boolean => !isReaders(key) && !downgraded;

/** Go's client does not look whether its own key is there. */
export const looksAtOwnKey = (world: World, { setup }: Caller): boolean =>
  !setup.foreign && (!setup.movable || keeps(world, "the-movable-look"));

export const placeOf = (caller: Caller): Place => caller.place!;

/** The fence and the turn in one number. */
export const tokenOf = ({ revision, turn }: Place): number => revision * 16 + turn;

export const tokenText = (token: number): string =>
  token % 16 > 1 ? `${Math.floor(token / 16)}, turn ${token % 16}` : `${Math.floor(token / 16)}`;

/** A watch that was asked for. */
export const watchOn = (key: string, also?: string): Watch => ({
  key,
  with: also,
  createdAt: 0,
  position: 0,
});
