// One call, as in `src/lock/queue/superseding.ts`: from its first attempt to its hold, and to the end of that.
import { breaks, keeps, keyName, tell } from "../world.js";
import {
  type Call,
  type Caller,
  callerOf,
  type Entry,
  type Key,
  keyAt,
  keyOf,
  NEW_CALL,
  queueAt,
  sessionOf,
  supersedes,
  type Superseding,
  type Txn,
} from "./world.js";

/** `lock({ supersede: true })`, or a call that joins anew. */
export function ask(world: Superseding, caller: Caller): void {
  tell(world, `${caller.label} asks for the lock`);
  if (caller.lost === undefined || !keeps(world, "the-overtaken-ask-why")) return join(world, caller);
  const then = caller.lost;
  caller.lost = undefined;
  caller.state = { at: "asking", then, answer: 0 };
  tell(world, `it reads the queue ${then > 0 ? `of revision ${then}` : "of now"}`);
}

/** The queue at the moment when its key was deleted. */
export function asked(world: Superseding, caller: Caller, then: number, revision: number): void {
  tell(world, `${caller.label} gets the queue of revision ${revision}`);
  if (caller.gaveUp) return end(caller);
  if (newer(world, caller, queueAt(world, revision))) return superseded(world, caller);
  // It does not know what has come and gone in between.
  if (then === 0) return superseded(world, caller);
  if (keeps(world, "history-after-a-deletion")) caller.inDoubt ??= { since: then, values: [] };
  join(world, caller);
}

function join(world: Superseding, caller: Caller): void {
  const { shownAt: since, guard, overtaken, setup } = caller;
  const { lease } = sessionOf(world, caller);
  // A key in doubt, or one that is not deleted yet, keeps its number.
  const taken = world.keys.filter((key) => key.deleted === 0 && key.lease === lease).map(({ key }) => key);
  let n = 1;
  const doubted = caller.inDoubt ? caller.puts : 0;
  while (n <= doubted || taken.includes(keyName("jobs", lease, n))) n++;
  const entry: Entry = {
    ...{ key: keyName("jobs", lease, n), value: caller.id * 16 + caller.puts, revision: 0, unanswered: 0 },
  };
  caller.puts++;
  caller.entry = entry;
  const txn: Txn = {
    ...{ is: "join", key: entry.key, value: entry.value, lease, created: 0, since },
    ...{ plain: !setup.supersedes, guard, overtaken: overtaken.map(({ key }) => key) },
  };
  caller.state = { at: "joining", call: { txn, answer: undefined } };
  tell(world, `${caller.label} sends the join of ${entry.key}`);
}

export function joined(world: Superseding, caller: Caller, { answer }: Call): void {
  if (!answer) return;
  tell(world, `${caller.label} gets the answer`);
  if (answer.leaseGone) return sessionOver(world, caller);
  const entry = caller.entry!;
  const found = keyAt(world, entry.key, answer.revision);
  if (!answer.done && found?.value !== entry.value) return refused(world, caller, answer.revision);
  const wasInDoubt = entry.unanswered > 0;
  caller.entry = { ...entry, revision: answer.done ? answer.revision : found!.created };
  attemptEnded(caller, wasInDoubt);
  if (caller.gaveUp) return leave(world, caller);
  if (caller.inDoubt && keeps(world, "history-after-a-doubt")) {
    caller.state = { at: "checking" };
    return tell(world, "it reads what was put since its attempt without an answer");
  }
  waits(caller);
}

/** The queue is another one than that which the last answer has shown. */
function refused(world: Superseding, caller: Caller, revision: number): void {
  attemptEnded(caller);
  caller.entry = undefined;
  if (caller.gaveUp) return end(caller);
  const queue = queueAt(world, revision);
  if (newer(world, caller, queue)) return superseded(world, caller);
  caller.shownAt = revision;
  const [guard] = queue;
  caller.overtaken = queue.filter((key) => key !== guard && supersedes(world, key));
  caller.guard =
    guard && caller.overtaken.length > 0 ? { key: guard.key, revision: guard.created } : undefined;
  join(world, caller);
}

/** Without an answer it may have joined, and been overtaken since. On an empty queue it holds, and is overtaken by nobody. */
function attemptEnded(caller: Caller, wasInDoubt = (caller.entry?.unanswered ?? 0) > 0): void {
  const { entry, shownAt, inDoubt } = caller;
  if (!entry || !wasInDoubt || shownAt === undefined) return;
  caller.inDoubt = { since: inDoubt?.since ?? shownAt, values: [...(inDoubt?.values ?? []), entry.value] };
  if (caller.own.length === 0) caller.own = [shownAt];
}

/** One of these is of a newer call. */
function newer(world: Superseding, { own, inDoubt }: Caller, keys: readonly Key[]): boolean {
  const [age] = own;
  const isOwn = ({ created, value }: Key): boolean =>
    own.includes(created) || inDoubt?.values.includes(value) === true;
  return keys.some((key) => age !== undefined && key.created > age && supersedes(world, key) && !isOwn(key));
}

/** What was put since the attempt in doubt, whether it is still there or not. */
export function checked(world: Superseding, caller: Caller): void {
  const { since } = caller.inDoubt!;
  const { revision } = caller.entry!;
  tell(world, `${caller.label} gets what was put after revision ${since} and before ${revision}`);
  if (caller.gaveUp) return leave(world, caller);
  const puts = world.keys.filter(({ created }) => created > since && created < revision);
  if (newer(world, caller, puts)) return superseded(world, caller);
  caller.inDoubt = undefined;
  waits(caller);
}

function waits(caller: Caller): void {
  caller.age ||= caller.entry!.revision;
  caller.own = [...caller.own, caller.entry!.revision];
  caller.state = { at: "waiting" };
}

/** It never holds. Its key, if it has one, is deleted. */
function superseded(world: Superseding, caller: Caller): void {
  tell(world, `${caller.label} is told that it was superseded`);
  if (caller.entry) leave(world, caller);
  else end(caller);
}

/** Its key was deleted at this revision, or at one that it does not know. */
export function lostKey(world: Superseding, caller: Caller, at: number): void {
  tell(world, `${caller.label} finds its key gone${at > 0 ? `, deleted at revision ${at}` : ""}`);
  caller.lost = at;
  again(world, caller);
}

function again(world: Superseding, caller: Caller): void {
  attemptEnded(caller);
  caller.entry = undefined;
  caller.shownAt = undefined;
  caller.overtaken = [];
  caller.guard = undefined;
  ask(world, caller);
}

export function hold(world: Superseding, caller: Caller): void {
  caller.state = { at: "holding" };
  tell(world, `${caller.label} HOLDS with fence ${caller.entry!.revision}`);
  if (!caller.setup.supersedes) return;
  const own = keyOf(world, caller.entry!)!;
  const isNewer = (key: Key): boolean => key.created > caller.age && key.created < own.created;
  const newest = world.keys.find(
    (key) => supersedes(world, key) && isNewer(key) && callerOf(world, key) !== caller,
  );
  const overtaken = world.keys.find(
    (key) => key.deletedBy === "a newer call" && callerOf(world, key) === caller,
  );
  const holds = `${caller.label} holds`;
  if (overtaken)
    breaks(
      world,
      "newest wins",
      `${holds}, but a newer call has deleted its ${overtaken.key} at revision ${overtaken.deleted}`,
    );
  if (newest)
    breaks(
      world,
      "newest wins",
      `${holds}, and waits since revision ${caller.age}, but ${newest.key} came at ${newest.created}`,
    );
}

/** Repeated until etcd has confirmed it. */
export function leave(world: Superseding, caller: Caller): void {
  const { key, value, revision: created } = caller.entry!;
  const { lease } = sessionOf(world, caller);
  const txn: Txn = {
    ...{ is: "leave", key, value, lease, created, since: undefined, plain: true, guard: undefined },
    overtaken: [],
  };
  caller.state = { at: "leaving", call: { txn, answer: undefined } };
  tell(world, `${caller.label} sends the delete of ${key}`);
}

export function end(caller: Caller): void {
  Object.assign(caller, NEW_CALL);
  caller.age = 0;
  caller.rounds--;
  caller.state = { at: caller.rounds > 0 && !caller.gaveUp ? "idle" : "done" };
}

/** It is sent again. */
export function unanswered(world: Superseding, caller: Caller, txn: Txn): void {
  const { state } = caller;
  if (state.at !== "joining" && state.at !== "leaving") return;
  if (state.at === "joining") caller.entry = { ...caller.entry!, unanswered: caller.entry!.unanswered + 1 };
  if (state.at === "joining" && caller.gaveUp) return leave(world, caller);
  caller.state = { at: state.at, call: { txn, answer: undefined } };
  tell(world, `${caller.label} sends it again`);
}

/** A call that waits joins with the next session (`rejoin`). */
export function sessionOver(world: Superseding, caller: Caller): void {
  const session = sessionOf(world, caller);
  tell(world, `${session.label}'s session is lost`);
  session.lease = world.leases.length;
  world.leases = [...world.leases, true];
  const last = caller.own.at(-1);
  // From some moment on, nothing was told to it.
  if (last !== undefined && keeps(world, "history-after-a-new-session"))
    caller.inDoubt ??= { since: last, values: [] };
  again(world, caller);
}
