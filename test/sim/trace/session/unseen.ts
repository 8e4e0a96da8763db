import {
  type Caller,
  neededWatches,
  type Turn,
  type Watch,
  watches,
  type World,
} from "../../../lab/model/world.js";
import type { Known, ProcessWatches } from "../watched.js";
import { after, print, stepsOf, withState } from "./world-of.js";

/** More states than any run has needed: the check gives up rather than to run for ever. */
const MOST = 5000;

/** What a client learns without a step of its own that the trace shows. */
interface Unseen {
  readonly worlds: readonly World[];
  /** It happens at once: the state before it is not kept. */
  readonly sure: boolean;
}

/** All states that the given ones lead to by steps that a trace does not show. */
export function closure(states: readonly World[], process: ProcessWatches): readonly World[] {
  // Most steps lead to one stable state. Printing a state takes longer than making it.
  const isStable = states.length === 1 && next(states[0]!, process).length === 0;
  return isStable ? states : closureOf(states, process);
}

function closureOf(states: readonly World[], process: ProcessWatches): World[] {
  const seen = new Map<string, World>();
  const queue = [...states];
  const done = new Set<string>();
  for (let world = queue.pop(); world; world = queue.pop()) {
    const key = print(world);
    if (done.has(key)) continue;
    done.add(key);
    const unseen = next(world, process);
    const sure = unseen.find((each) => each.sure);
    queue.push(...(sure ? sure.worlds : unseen.flatMap(({ worlds }) => worlds)));
    if (!sure) seen.set(key, world);
    if (done.size > MOST) throw new Error(`a trace has more than ${MOST} states`);
  }
  return [...seen.values()];
}

const next = (world: World, process: ProcessWatches): Unseen[] =>
  world.callers.flatMap((caller) => {
    if (caller.state.at !== "holding" && caller.state.at !== "waiting") return [];
    const found = [...watchSteps(world, caller, process), ...trusted(world, caller)];
    return found.filter(({ worlds }) => worlds.length > 0);
  });

/** A client processes what its connections have received: that a watch exists, and that a key was deleted. */
function watchSteps(world: World, caller: Caller, process: ProcessWatches): Unseen[] {
  const { state, id } = caller;
  const place = caller.place!;
  if (state.at === "holding" && !state.ownWatch) {
    const asks = process.isCreated(place.key) ? stepsOf(world, "watch held key", id) : [];
    return [{ worlds: asks.flatMap((step) => after(world, step)), sure: false }];
  }
  return watchesOf(caller).flatMap((watch) => {
    if (watch.createdAt === 0) {
      // The client may use any of several watches again. Each one leads to its own states.
      const beginnings = process.beginningsOf(watch, place.revision);
      const begun = ({ revision }: Known): World[] =>
        seenAt(world, revision, { caller, watch, does: "watch created" });
      return [{ worlds: beginnings.flatMap(begun), sure: beginnings.every(({ sure }) => sure) }];
    }
    const { revision, sure } = process.deletionOf(watch);
    if (revision <= watch.position) return [];
    return [{ worlds: seenAt(world, revision, { caller, watch, does: "deletion heard" }), sure }];
  });
}

export function watchesOf({ state }: Caller): Watch[] {
  if (state.at === "holding") return state.ownWatch ? [state.ownWatch] : [];
  if (state.at !== "waiting") return [];
  return [state.predecessorWatch, state.ownWatch, state.beforeWatch].filter((watch) => watch !== undefined);
}

interface WatchStep {
  readonly caller: Caller;
  readonly watch: Watch;
  readonly does: "watch created" | "deletion heard";
}

function seenAt(world: World, revision: number, { caller, watch, does }: WatchStep): World[] {
  const there = { ...world, lagging: revision };
  return stepsOf(there, does, caller.id)
    .filter(({ on }) => on === watch.key)
    .flatMap((step) => after(there, step));
}

/**
 * Watches that exist since before the join have reported whatever happened after it: no read is needed. One that was created at the
 * revision of the join may be a new one, which a read verifies.
 */
function trusted(world: World, { state, place, id }: Caller): Unseen[] {
  if (state.at !== "waiting" || !place || state.verified || state.deleted) return [];
  const latest = Math.max(...neededWatches(state).map(({ createdAt }) => createdAt));
  if (!watches(state) || latest > place.revision) return [];
  const turn: Turn = { ...state, verified: true, read: undefined };
  return [{ worlds: [withState(world, id, turn)], sure: latest < place.revision }];
}
