import { printOf } from "../fingerprint.js";
import type { Model } from "../search.js";
import type { Broken } from "../world.js";
import { nextSteps } from "./steps.js";
import { type Caller, isOurs, keyOf, type Priorities, queueAt, sessionOf, type State } from "./world.js";

function brokenNow(world: Priorities): Broken | undefined {
  if (world.broken) return world.broken;
  for (const caller of world.callers) {
    if (caller.state.at !== "holding") continue;
    const what = falseClaim(world, caller);
    if (what) return { invariant: "single holder", what };
    const crashed = world.sessions.find(({ id, delaying }) => delaying && id !== caller.setup.session);
    if (crashed && keyOf(world, caller.hold!)?.deleted === 0)
      return {
        invariant: "delay",
        what: `${caller.label} holds in the delay after the crash of ${crashed.label}`,
      };
  }
  return undefined;
}

/** Its key may be gone for two reasons only. The fence exists for these cases. */
function falseClaim(world: Priorities, caller: Caller): string | undefined {
  const key = keyOf(world, caller.hold!);
  const who = `${caller.label} claims to hold`;
  if (!key?.granted) return `${who} with a key that never was: revision ${caller.hold!.revision}`;
  const isPaused = sessionOf(world, caller).client === "paused";
  if (key.deleted > 0 && key.deletedBy !== "hand" && !(key.deletedBy === "its lease" && isPaused))
    return `${who}, but ${key.key} was deleted by ${key.deletedBy}`;
  return undefined;
}

/** Nothing more happens unless a user or an accident acts. */
function brokenAtRest(world: Priorities): Broken | undefined {
  const isHeld = queueAt(world).some(({ granted }) => granted);
  for (const caller of world.callers) {
    if (!["line", "waiting", "local"].includes(caller.state.at)) continue;
    const who = `${caller.label} waits for ever`;
    if (sessionOf(world, caller).client === "over")
      return { invariant: "no lost wake-up", what: `${who}: its session is over` };
    if (!isHeld) return { invariant: "no lost wake-up", what: `${who}: nobody holds` };
  }
  const ghost = queueAt(world).find((key) => !isOurs(world, key));
  return (
    ghost && {
      invariant: "no ghost",
      what: `${ghost.key}, created at revision ${ghost.created}, is nobody's`,
    }
  );
}

/** A deletion that everybody has seen matters only to whoever had the key. */
function fingerprint(world: Priorities): string {
  const { revision, leases, sessions, callers, late, granted, left, scenario } = world;
  const lagging = scenario.lags ? world.lagging : 0;
  const seen = Math.min(lagging || Infinity, ...callers.map(({ state }) => seenBy(state)));
  const keys = world.keys.filter((key) => key.deleted === 0 || key.deleted > seen || isOurs(world, key));
  const fence = { revision: granted };
  const isRelative = !scenario.lags;
  return printOf({ revision, lagging, keys, leases, sessions, callers, late, fence, left }, isRelative);
}

/** The oldest revision whose queue it may still look at. */
function seenBy(state: State): number {
  if (state.at === "reading") return state.answer || Infinity;
  if (state.at === "joining" || state.at === "claiming") return state.call.answer?.revision ?? Infinity;
  if (state.at !== "waiting") return Infinity;
  return Math.min(state.watch.position || Infinity, state.check?.answer || Infinity);
}

export const PRIORITIES: Model<Priorities> = {
  nextSteps,
  copy: (world) => ({
    ...world,
    sessions: world.sessions.map((session) => ({ ...session })),
    callers: world.callers.map((caller) => ({ ...caller })),
    said: [],
  }),
  fingerprint,
  brokenNow,
  brokenAtRest,
  claimsOverlap: ({ callers }) => callers.filter(({ state }) => state.at === "holding").length > 1,
};
