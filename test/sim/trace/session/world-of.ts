import { copy } from "../../../lab/model/search.js";
import type { Does, Step } from "../../../lab/model/step.js";
import { nextSteps } from "../../../lab/model/steps.js";
import type { Caller, Key, State, World } from "../../../lab/model/world.js";

/** In every world of a trace, the session that it is about has lease 0. All other leases are 1. */
export const OURS = 0;
export const THEIRS = 1;

/** Accidents come as often as the trace has them. */
const ANY = Infinity;
const UNLIMITED = {
  ...{ aborts: ANY, lostAnswers: ANY, lateRequests: ANY, repeats: ANY, losses: ANY },
  ...{ pauses: ANY, moves: ANY, deletions: ANY, purges: ANY, revokes: ANY, writes: ANY, adoptions: 0 },
};

/** A session that is new to a queue. */
export function newWorld(label: string, keys: readonly Key[], revision: number): World {
  const sessions = [{ member: "lagging" }, { member: "lagging" }] as const;
  return {
    scenario: { sessions, callers: [], accidents: UNLIMITED, lags: true, longHolds: true },
    without: new Set(),
    ...{ revision, lagging: revision, keys, leases: [true, true], callers: [], late: [] },
    sessions: [
      {
        ...{ id: 0, label, lease: OURS, client: "running", member: "lagging", doubted: [], sweeps: false },
        ...{ delayLease: 0, delaying: [], adopts: undefined, adopted: [] },
      },
    ],
    ...{ granted: {}, written: {}, left: UNLIMITED, broken: undefined, said: [] },
  };
}

/** The steps of a kind that the model allows now, of one caller or of all. */
export const stepsOf = (world: World, does: Does, caller?: number): Step[] =>
  nextSteps(world).filter((step) => step.does === does && (caller === undefined || step.caller === caller));

/** A state in which a promise is broken is not reached by the model. */
export function after(world: World, step: Step): World[] {
  const next = copy(world);
  step.run(next);
  return next.broken ? [] : [tidied(next)];
}

export const take = (world: World, does: Does, caller?: number): World[] =>
  stepsOf(world, does, caller).flatMap((step) => after(world, step));

/** A place is a caller of its own: the trace does not show which of a session's calls a place belongs to before its grant. */
function tidied(world: World): World {
  for (const caller of world.callers) {
    if (caller.state.at === "again" || (caller.places > 1 && caller.state.at !== "done")) end(caller);
  }
  return world;
}

export function end(caller: Caller): void {
  caller.state = { at: "done" };
  caller.place = undefined;
}

/** The world with one caller in another state. */
export function withState(world: World, id: number, state: State): World {
  const next = copy(world);
  next.callers[id]!.state = state;
  return next;
}

/** The world without a call, and without its place. */
export function withoutCall(world: World, id: number): World {
  const next = copy(world);
  end(next.callers[id]!);
  return next;
}

/** What etcd had at an earlier revision: an answer that changes nothing shows it. */
export function asOf(world: World, revision: number): World {
  const keys = world.keys
    .filter(({ created }) => created <= revision)
    .map((key) => (key.deleted > revision ? { ...key, deleted: 0, deletedBy: "nobody" as const } : key));
  return { ...world, keys, revision, lagging: revision };
}

/** A step by which etcd answers from the state of a revision, and changes nothing. */
export function takeAsOf(world: World, revision: number, [does, caller]: [Does, number]): World[] {
  const { keys, revision: now } = world;
  return take(asOf(world, revision), does, caller)
    .filter((next) => next.revision === revision)
    .map((next) => ({ ...next, keys, revision: now }));
}

export const isOver = (world: World): boolean => world.sessions[0]!.client === "over";

/** The session is over for its client, which may have happened a while ago. What it has sent may still arrive. */
export function over(world: World): World[] {
  if (isOver(world)) return [world];
  const inTransit = world.callers.flatMap(({ state }) =>
    "call" in state && !state.call.answer ? [state.call.txn] : [],
  );
  const sent = { ...world, late: [...world.late, ...inTransit] };
  return [...take(sent, "losses"), ...take(sent, "hear")].slice(0, 1);
}

export const isActive = ({ state }: Caller): boolean => state.at !== "done" && state.at !== "idle";

/** What its future depends on: keys and revisions are equal in all states of a session. */
export function print(world: World): string {
  const { callers, sessions, late, leases, keys } = world;
  const active = callers.filter(isActive).map(({ id, place, state, gaveUp }) => [id, place, state, gaveUp]);
  return JSON.stringify([active, sessions, late, leases, keys.map(({ deletedBy }) => deletedBy)]);
}

/** Without duplicates: of equal worlds, the last one. */
export function distinct(worlds: readonly World[]): readonly World[] {
  if (worlds.length < 2) return worlds;
  return [...new Map(worlds.map((world) => [print(world), world])).values()];
}

/** Somebody else has deleted the key of a place, and its client has not ended the session. */
export const isTaken = (
  world: World,
  { key, revision }: { readonly key: string; readonly revision: number },
): boolean =>
  !isOver(world) &&
  world.keys.some((it) => it.key === key && it.created === revision && it.deletedBy === "hand");
