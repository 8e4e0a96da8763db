import { printOf } from "../fingerprint.js";
import type { Model } from "../search.js";
import type { Broken } from "../world.js";
import { nextSteps } from "./steps.js";
import { type Caller, isOurs, keyOf, queueAt, type Superseding } from "./world.js";

function brokenNow(world: Superseding): Broken | undefined {
  if (world.broken) return world.broken;
  for (const caller of world.callers) {
    const what = caller.state.at === "holding" && falseClaim(world, caller);
    if (what) return { invariant: "single holder", what };
  }
  return undefined;
}

/** Its key may be gone because somebody has deleted it by hand. The fence exists for this case. */
function falseClaim(world: Superseding, caller: Caller): string | undefined {
  const key = keyOf(world, caller.entry!);
  const who = `${caller.label} claims to hold`;
  if (!key) return `${who} with a key that never was: revision ${caller.entry!.revision}`;
  if (key.deleted > 0)
    return key.deletedBy === "hand" ? undefined : `${who}, but ${key.key} was deleted by ${key.deletedBy}`;
  const before = queueAt(world).find(({ created }) => created < key.created);
  return before && `${who} with fence ${key.created}, but ${before.key} came before at ${before.created}`;
}

/** Nothing more happens unless a user or an accident acts. */
function brokenAtRest(world: Superseding): Broken | undefined {
  const isHeld = world.callers.some(({ state }) => state.at === "holding");
  const sleeper = world.callers.find(({ state }) => state.at === "waiting");
  if (sleeper && !isHeld)
    return { invariant: "no lost wake-up", what: `${sleeper.label} waits for ever: nobody holds` };
  const ghost = queueAt(world).find((key) => !isOurs(world, key));
  return ghost && { invariant: "no ghost", what: `${ghost.key}, created at ${ghost.created}, is nobody's` };
}

const fingerprint = ({ revision, keys, leases, sessions, callers, late, left }: Superseding): string =>
  printOf({ revision, keys, leases, sessions, callers, late, left });

export const SUPERSEDING: Model<Superseding> = {
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
  claimsOverlap: ({ callers }) => callers.filter(({ state }: Caller) => state.at === "holding").length > 1,
};
