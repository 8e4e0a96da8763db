// What a holder does to hand over to the waiter of its choice: one transaction deletes its key and those of the waiters before the named one,
// which join anew at the end. To read the queue, to end the hold and to send the transaction are one step here: the time in which the
// queue may change is that in which the transaction is on its way.
import { keyOfPlace, queueAt } from "./etcd.js";
import { leave, leaveAnswered } from "./leaving.js";
import { may, type Step, will } from "./step.js";
import {
  breaks,
  keeps,
  placeOf,
  sessionOf,
  tell,
  type Answer,
  type Call,
  type Caller,
  type Holding,
  type Key,
  type Known,
  type Leaving,
  type Txn,
  type World,
} from "./world.js";

/** A waiter to hand over to, and those before it. */
interface Next {
  readonly target: Known;
  readonly moved: readonly Known[];
}

const known = ({ key, created }: Key): Known => ({ key, revision: created });

const isAt = (key: Key, place: Known): boolean => key.key === place.key && key.created === place.revision;

/** The caller that has put the key has said that it may be moved. A delay key that is left of a crash is nobody's. */
const isMovable = (world: World, { value, delays }: Key): boolean =>
  delays === undefined && world.callers[Math.floor(value / 16)]?.setup.movable === true;

/** Undefined if the named session has no place that can be named, or if one before it must not be moved. */
function nextOf(world: World, caller: Caller, queue: readonly Key[]): Next | undefined {
  const place = placeOf(caller);
  const isBeside = ({ delays, created }: Key): boolean =>
    queue.some((entry) => entry.key === delays && entry.created === created);
  const others = queue.filter((key) => !isBeside(key) && !isAt(key, place));
  const { lease } = world.sessions[caller.setup.transfers!]!;
  const target = others.find((key) => key.lease === lease && isMovable(world, key));
  if (!target) return undefined;
  const between = others.filter(({ created }) => created < target.created);
  const blocked = keeps(world, "only-the-movable-move") && !between.every((key) => isMovable(world, key));
  return blocked ? undefined : { target: known(target), moved: between.map(known) };
}

export function transferSteps(world: World, caller: Caller, { call, chooses }: Holding): Step[] {
  if (chooses) return [will(caller, "choose", choose)];
  if (caller.setup.transfers === undefined || call) return [];
  const next = nextOf(world, caller, queueAt(world, caller.setup.name));
  return next ? [may(caller, "transfer", (w, c) => transfer(w, c, next))] : [];
}

/** Its turn has come: it leads, or hands over to the movable place of the highest priority. */
function choose(world: World, caller: Caller): void {
  const { state } = caller;
  if (state.at !== "holding") return;
  const { at, ownWatch, read, demand } = state;
  const best = preferred(world, caller);
  const own = keyOfPlace(world, placeOf(caller));
  const isNamed = own?.modified !== undefined && keeps(world, "the-named-one-leads");
  if (!best || isNamed) {
    caller.state = { at, ownWatch, read, demand };
    return tell(world, `${caller.label} leads`);
  }
  if (own?.named)
    breaks(world, "true transfers", `${caller.label} was named, and hands over to ${best.target.key}`);
  const to = world.sessions.find(({ lease }) => lease === best.lease);
  caller.tried = [...caller.tried, to?.id ?? -1];
  tell(world, `${caller.label} yields to ${best.target.key}`);
  leave(world, caller, { releases: true });
  if (caller.state.at === "leaving") caller.state = { ...caller.state, yields: true };
  send(world, caller, best);
}

/** Undefined: nobody better can be next. It has handed over to each session once at most. */
function preferred(world: World, caller: Caller): (Next & { readonly lease: number }) | undefined {
  const queue = queueAt(world, caller.setup.name).filter(({ delays }) => delays === undefined);
  const n = queue.findIndex((key) => isAt(key, placeOf(caller)));
  const behind = queue.slice(n + 1);
  const end = behind.findIndex((key) => !isMovable(world, key));
  const able = behind.slice(0, end === -1 ? undefined : end);
  const priorityOf = ({ value }: Key): number => world.callers[Math.floor(value / 16)]?.setup.priority ?? 0;
  const better = able.filter(({ lease }) => !caller.tried.includes(lease));
  const highest = Math.max(caller.setup.priority ?? 0, ...better.map(priorityOf));
  const target = better.find((key) => priorityOf(key) === highest && highest > (caller.setup.priority ?? 0));
  if (n === -1 || !target) return undefined;
  return {
    target: known(target),
    moved: able.slice(0, able.indexOf(target)).map(known),
    lease: target.lease,
  };
}

/** It was to be next, and still waits. */
function sameNext(world: World, caller: Caller, queue: readonly Key[], target: Known): Next | undefined {
  const others = queue.filter((key) => key.delays === undefined && !isAt(key, placeOf(caller)));
  const n = others.findIndex((key) => isAt(key, target));
  const moved = others.slice(0, n);
  return n >= 0 && moved.every((key) => isMovable(world, key))
    ? { target, moved: moved.map(known) }
    : undefined;
}

/** The hold has ended before the transaction is sent. */
function transfer(world: World, caller: Caller, next: Next): void {
  const { state } = caller;
  if (state.at !== "holding") return;
  tell(world, `${caller.label} hands over to ${next.target.key}`);
  if (keeps(world, "hold-ends-before-transfer")) leave(world, caller, { releases: true });
  send(world, caller, next);
}

function send(world: World, caller: Caller, { target, moved }: Next): void {
  const { state } = caller;
  const { key, value, revision } = placeOf(caller);
  const { lease } = sessionOf(world, caller);
  const { name } = caller.setup;
  const asks = state.at === "leaving" && state.call.txn.asks;
  const yields = state.at === "leaving" && state.yields;
  const txn: Txn = {
    ...{ is: "transfer", name, key, value, lease, created: revision, asks, target, moved },
    ...(!yields && { names: true }),
  };
  if (state.at === "holding" || state.at === "leaving")
    caller.state = { ...state, call: { txn, answer: undefined } };
  const others = moved.map((place) => `, and that of ${place.key}`).join("");
  tell(world, `it sends the delete of ${key}${others}, if ${target.key} is there`);
}

/** Without the rule that the hold ends before. */
export function heldTransferAnswered(world: World, caller: Caller, call: Call, answer: Answer): void {
  const state: Leaving = { at: "leaving", call, releases: true, repeated: false };
  caller.state = state;
  leaveAnswered(world, caller, state, answer);
}

/** True if it has ended: the caller is told, and its place is gone. */
export function transferEnded(world: World, caller: Caller, state: Leaving, answer: Answer): boolean {
  const { queue = [], done } = answer;
  const { target } = state.call.txn;
  if (done || !target) return state.yields ?? tellDone(world, caller);
  const place = placeOf(caller);
  if (queue.some((key) => isAt(key, place))) {
    const next = state.yields ? sameNext(world, caller, queue, target) : nextOf(world, caller, queue);
    if (next) send(world, caller, next);
    else leaveOnly(world, caller, state);
    return false;
  }
  // A proxy, or an attempt without an answer, may have had it executed before. Or somebody has deleted the key by hand.
  const [first] = queue;
  const mayBeOurs = state.repeated || world.scenario.accidents.repeats > 0;
  const isDone = (first && isAt(first, target)) || mayBeOurs;
  if (state.yields) return true;
  if (isDone && keeps(world, "repeated-transfer-is-no-loss")) return tellDone(world, caller);
  tell(world, `${caller.label}'s transfer says that the lock was lost before`);
  const by = keyOfPlace(world, place)?.deletedBy;
  if (by === "its owner" || by === "a transfer")
    breaks(world, "true losses", `${caller.label} is told of a loss that was its own transfer`);
  return true;
}

function tellDone(world: World, caller: Caller): true {
  tell(world, `${caller.label} is told that it has handed over`);
  const by = keyOfPlace(world, placeOf(caller))?.deletedBy;
  if (by === "its owner" || by === "nobody")
    breaks(world, "true transfers", `${caller.label} is told that it has handed over, but has only left`);
  return true;
}

/** The named one is gone: nobody moves. */
export function leaveOnly(world: World, caller: Caller, { repeated, yields }: Leaving): void {
  tell(world, `${caller.label} hands over to nobody`);
  if (!keeps(world, "refused-transfer-leaves")) {
    caller.place = undefined;
    caller.state = { at: "done" };
    return;
  }
  leave(world, caller, { releases: true });
  const only = yields ? { yields } : { refused: true as const };
  if (caller.state.at === "leaving") caller.state = { ...caller.state, repeated, ...only };
}

/** The caller of a transfer is told that it has only left. */
export function tellLeft(world: World, caller: Caller): void {
  if (!keeps(world, "refused-transfer-is-told")) return void tellDone(world, caller);
  tell(world, `${caller.label} is told that it has only left`);
  if (keyOfPlace(world, placeOf(caller))?.deletedBy === "a transfer")
    breaks(world, "true transfers", `${caller.label} is told that it has only left, but has handed over`);
}

/** The session ends before the answer: the transaction may still arrive. */
export function forgetTransfer(world: World, { state }: Caller): void {
  if (state.at !== "leaving" || state.call.txn.is !== "transfer" || state.call.answer) return;
  world.late = [...world.late, state.call.txn];
}
