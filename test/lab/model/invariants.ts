import { keyOfPlace, queueAt } from "./etcd.js";
import { isOurs } from "./sweeping.js";
import {
  excludesReaders,
  isShared,
  placeOf,
  sessionOf,
  type Broken,
  type Caller,
  type Key,
  type World,
} from "./world.js";

/** Promises that hold at every moment. */
export function brokenNow(world: World): Broken | undefined {
  if (world.broken) return world.broken;
  for (const caller of world.callers) {
    if (caller.state.at !== "holding") continue;
    const what = falseClaim(world, caller);
    if (what) return { invariant: "single holder", what };
    const early = tooEarly(world, caller);
    if (early) return { invariant: "delay", what: early };
  }
  return undefined;
}

/**
 * A caller that claims to hold has the first key of the queue. Its key may be gone for two reasons only: it was deleted
 * by hand, or the lease expired while the process was stopped. The fence exists for these cases.
 */
function falseClaim(world: World, caller: Caller): string | undefined {
  const { name } = caller.setup;
  const key = keyOfPlace(world, placeOf(caller));
  const who = `${caller.label} claims to hold "${name}"`;
  if (!key) return `${who} with a place that never was: revision ${placeOf(caller).revision}`;
  if (key.deleted > 0) {
    const paused = sessionOf(world, caller).client === "paused";
    const excused = key.deletedBy === "hand" || (key.deletedBy === "its lease" && paused);
    return excused ? undefined : `${who}, but ${key.key} was deleted by ${key.deletedBy}`;
  }
  if (key.downgraded !== undefined && !isShared(caller))
    return `${who} alone, but ${key.key} is a reader's since revision ${key.downgraded}`;
  const before = queueAt(world, name).find(
    (other) =>
      other !== key && other.created <= key.created && other.delays !== key.key && excludes(other, caller),
  );
  return before && `${who} with fence ${key.created}, but ${before.key} came before at ${before.created}`;
}

/** A reader, and a writer that has become one, holds beside others of that kind. */
const excludes = (key: Key, caller: Caller): boolean => !isShared(caller) || excludesReaders(key);

/** After a crash of a holder with a delay, the name is free when the delay is over. */
function tooEarly(world: World, caller: Caller): string | undefined {
  const { setup, label } = caller;
  // The claim of a process that is stopped after the end of its lease is another matter.
  if (keyOfPlace(world, placeOf(caller))?.deleted !== 0) return undefined;
  // Beside a writer that had become a reader.
  if (isShared(caller) && queueAt(world, setup.name).some(({ downgraded }) => downgraded)) return undefined;
  const crashed = world.sessions.find(
    ({ id, delaying }) => id !== setup.session && delaying.includes(setup.name),
  );
  return crashed && `${label} holds "${setup.name}" in the delay after the crash of ${crashed.label}`;
}

/** Two callers claim to hold one name: seen from outside, a stopped process continues to claim. */
export function claimsOverlap(world: World): boolean {
  const holding = world.callers.filter(({ state }) => state.at === "holding");
  const names = holding.map((caller) => caller.setup.name);
  return holding.some(
    (caller) => !isShared(caller) && names.filter((name) => name === caller.setup.name).length > 1,
  );
}

/** Promises about a world at rest: nothing more happens unless a user or an accident acts. */
export function brokenAtRest(world: World): Broken | undefined {
  for (const caller of world.callers) {
    const sleeps = sleeper(world, caller);
    if (sleeps) return { invariant: "no lost wake-up", what: sleeps };
    const untold = caller.state.at === "holding" && keyOfPlace(world, placeOf(caller))?.deleted !== 0;
    if (untold && sessionOf(world, caller).client === "running") {
      return {
        invariant: "true losses",
        what: `${caller.label} is never told that its key is gone`,
      };
    }
  }
  return ghost(world);
}

/** Every waiting caller has a predecessor. */
function sleeper(world: World, caller: Caller): string | undefined {
  if (!["waiting", "local", "line"].includes(caller.state.at)) return undefined;
  const who = `${caller.label} waits for "${caller.setup.name}" for ever`;
  if (sessionOf(world, caller).client === "over") return `${who}: its session is over`;
  // A key that a session keeps is nobody's turn. Who waits in the process has no place.
  const { revision = Infinity } = caller.place ?? {};
  const before = queueAt(world, caller.setup.name).some(
    (key) => key.created < revision && !isKept(world, key) && (!caller.setup.reads || excludesReaders(key)),
  );
  return before ? undefined : `${who}: nobody is before it`;
}

const isKept = (world: World, { key, delays, created }: Key): boolean =>
  world.callers.some(
    ({ state, place }) => state.at === "kept" && place?.key === (delays ?? key) && place.revision === created,
  );

/** Every key is a caller's place. */
function ghost(world: World): Broken | undefined {
  const key = world.keys.find((other) => other.deleted === 0 && !isOurs(world, other));
  if (!key) return undefined;
  const what = `${key.key}, created at revision ${key.created}, is nobody's place, and its lease is kept alive`;
  return { invariant: "no ghost", what };
}
