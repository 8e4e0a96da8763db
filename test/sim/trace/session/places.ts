import { leave } from "../../../lab/model/leaving.js";
import { copy } from "../../../lab/model/search.js";
import { isOurs } from "../../../lab/model/sweeping.js";
import type { Caller, State, Txn, World } from "../../../lab/model/world.js";
import type { JoinRequest, LeaveRequest } from "../requests.js";
import { after, end, isOver, OURS, over, stepsOf, take, takeAsOf, withState } from "./world-of.js";

/** What the answer to a transaction shows. */
export interface Answered {
  readonly done: boolean;
  readonly revision: number;
  /** A refused join: the value of the key that is there, and its create revision. */
  readonly own: { readonly value: number; readonly created: number } | undefined;
  /** The place before the new one, if the join asked. */
  readonly before: number | undefined;
  readonly asked: boolean;
}

type Call = Extract<State, { call: unknown }>;
const isCall = (state: State): state is Call => "call" in state;

interface Asks {
  readonly value: number;
  /** It is a call of `lockAll()`. */
  readonly all: boolean;
}

/** The client sends the first attempt of a join. Which of its free keys it takes is not checked. */
export function ask(world: World, { is, name, key, asks }: JoinRequest, { value, all }: Asks): World[] {
  if (world.callers.some(({ place }) => place?.key === key)) return [];
  const next = freed(copy(world), key);
  const id = next.callers.length;
  const setup = { session: OURS, name, rounds: 1, tries: is === "try" && !all, all };
  const label = key.slice(key.indexOf("/", key.indexOf("/") + 1) + 1);
  const idle = { at: "idle" } as const;
  const none = { place: undefined, gaveUp: false, tried: [], writing: 0 };
  next.callers = [...next.callers, { id, label, setup, rounds: 1, places: 0, state: idle, ...none }];
  return take(next, "ask", id).map((asked) => {
    const caller = asked.callers[id]!;
    if (!isCall(caller.state)) return asked;
    caller.place = { key, value, revision: 0, unanswered: 0, turn: 1 };
    const txn: Txn = { ...caller.state.call.txn, is, key, value, asks };
    return withState(asked, id, { at: "joining", call: { txn, answer: undefined } });
  });
}

/** A doubt ends by itself. */
function freed(world: World, key: string): World {
  const [session] = world.sessions;
  const doubted = session!.doubted.filter((other) => other !== key);
  return { ...world, sessions: [{ ...session!, doubted }] };
}

export function askAgain(world: World, id: number): World[] {
  const { state } = world.callers[id]!;
  return state.at === "joining" && !state.call.answer ? [world] : [];
}

/** `tried`: it is a try of `lockAll()` that may have put the key. */
export function leaveSent(world: World, request: LeaveRequest, tried: boolean): World[] {
  const caller = world.callers.find(({ place }) => place && names(request, place));
  if (!caller) return straySent(world, request, tried);
  return leaving(world, caller).map((next) => {
    const { state } = next.callers[caller.id]!;
    if (state.at !== "leaving") return next;
    const txn = { ...state.call.txn, asks: request.asks };
    return withState(next, caller.id, { ...state, call: { txn, answer: undefined } });
  });
}

const names = (
  { key, created, value }: Pick<LeaveRequest, "key" | "created" | "value">,
  place: NonNullable<Caller["place"]>,
): boolean =>
  place.key === key &&
  (created > 0 ? place.revision === created : place.revision === 0 && String(place.value) === value);

function leaving(world: World, { id, state }: Caller): World[] {
  switch (state.at) {
    case "leaving":
      return state.call.answer ? [] : [world];
    case "holding":
      return take(world, "release", id);
    case "local":
    case "waiting":
      return take(world, "aborts", id);
    case "joining":
    case "again":
    case "idle":
    // No run that is compared with the model has sticky locks.
    case "line":
    case "kept":
    case "done":
      return [];
  }
}

/** A key that is no place any more: the session sweeps it, or has ended and deletes what it had. */
function straySent(world: World, { name, key, created, value }: LeaveRequest, tried: boolean): World[] {
  if (created === 0 && !tried) return isOver(world) ? [world] : [];
  const there = world.keys.find((other) => other.key === key && other.created === created);
  if (there && isOurs(world, there)) return [];
  const txn: Txn = { is: "leave", name, key, value: Number(value), lease: OURS, created, asks: false };
  const known = world.late.some(
    (late) => late.is === "leave" && late.key === key && late.created === created,
  );
  return [known ? world : { ...world, late: [...world.late, txn] }];
}

/** The client gets the answer to a delete of its own. */
export function leaveAnswered(world: World, request: LeaveRequest, shown: Answered): World[] {
  const id = leaverOf(world, request);
  return id === undefined || isOver(world) ? [strayAnswered(world, request)] : answered(world, id, shown);
}

export function leaveUnanswered(world: World, request: LeaveRequest): World[] {
  const id = leaverOf(world, request);
  return id === undefined ? [world] : unanswered(world, id);
}

function leaverOf(world: World, { key, created }: LeaveRequest): number | undefined {
  const found = world.callers.find(
    ({ place, state }) => place?.key === key && place.revision === created && state.at === "leaving",
  );
  return found?.id;
}

/** The delete of a key that was no place: its request is over. */
function strayAnswered(world: World, { key, created }: LeaveRequest): World {
  const late = world.late.filter((txn) => txn.is !== "leave" || txn.key !== key || txn.created !== created);
  return late.length < world.late.length ? { ...world, late } : world;
}

/** The client gets the answer to a join or to a leave. */
export function answered(world: World, id: number, shown: Answered): World[] {
  const state = world.callers[id]?.state;
  if (isOver(world) || !state) return [world];
  if (!isCall(state)) return [];
  const executed =
    state.call.answer || shown.done ? [world] : takeAsOf(world, shown.revision, ["arrives", id]);
  return executed
    .filter(({ callers }) => agrees(callers[id]!.state, shown))
    .flatMap((next) => take(next, "answered", id));
}

function agrees(state: State, { done, revision, own, before, asked }: Answered): boolean {
  const answer = isCall(state) ? state.call.answer : undefined;
  if (!answer || answer.done !== done) return false;
  if (!done) return answer.own?.value === own?.value && answer.own?.created === own?.created;
  const { position } = answer;
  return answer.revision === revision && (!asked || !position || position.predecessor?.revision === before);
}

/** An attempt that was not answered: it may have been executed, or may yet be. */
export function unanswered(world: World, id: number): World[] {
  const caller = world.callers[id];
  if (isOver(world) || !caller || !isCall(caller.state)) return [world];
  const worlds = caller.state.at === "joining" ? [world, ...take(world, "aborts", id)] : [world];
  return worlds.flatMap((next) => [...take(next, "lostAnswers", id), ...take(next, "lateRequests", id)]);
}

/** An attempt that was certainly not executed. The client sends it again, or the call has ended. */
export function notExecuted(world: World, id: number): World[] {
  const caller = world.callers[id];
  if (caller?.state.at !== "joining") return [world];
  const withdrawn = copy(world);
  const place = caller.place!;
  if (place.unanswered > 0) leave(withdrawn, withdrawn.callers[id]!, { releases: false });
  else end(withdrawn.callers[id]!);
  return [world, withdrawn];
}

/** etcd has no such lease. */
export function leaseGone(world: World, id: number): World[] {
  const gone = { ...world, leases: world.leases.map((alive, lease) => alive && lease !== OURS) };
  if (world.callers[id]?.state.at !== "joining") return over(gone);
  return stepsOf(gone, "arrives", id)
    .flatMap((step) => after(gone, step))
    .flatMap((next) => take(next, "answered", id));
}
