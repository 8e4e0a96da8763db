import type { Accidents } from "./scenarios.js";
import type { Caller, World } from "./world.js";

/**
 * One thing that may happen next. Progress happens by itself, given time. A choice is up to a user, and an accident is
 * up to nobody: these may never happen, so nothing may depend on them.
 */
export interface Step {
  readonly kind: "progress" | "choice" | "accident";
  run(world: World): void;
}

type Act = (world: World, caller: Caller) => void;

/** Every step runs in its own copy of the world and finds its caller there. */
export const will = (caller: Caller, act: Act): Step => ({
  kind: "progress",
  run: (world) => act(world, world.callers[caller.id]!),
});

export const may = (caller: Caller, act: Act): Step => ({ ...will(caller, act), kind: "choice" });

export const progress = (run: Step["run"]): Step => ({ kind: "progress", run });

/** As often as the scenario allows. */
export function accident(world: World, which: keyof Accidents, run: Step["run"]): Step[] {
  if (world.left[which] === 0) return [];
  const once = (w: World): void => {
    w.left = { ...w.left, [which]: w.left[which] - 1 };
    run(w);
  };
  return [{ kind: "accident", run: once }];
}
