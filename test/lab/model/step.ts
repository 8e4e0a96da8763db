import type { Accidents } from "./scenarios.js";
import type { Caller, World } from "./world.js";

/**
 * One thing that may happen next. Progress comes by itself, given time. A choice is a user's and an accident nobody's:
 * these may never come, so nobody may depend on them.
 */
export interface Step {
  readonly kind: "progress" | "choice" | "accident";
  run(world: World): void;
}

type Act = (world: World, caller: Caller) => void;

/** Every step is run in a world of its own: it finds its caller there. */
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
