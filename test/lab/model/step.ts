import type { Accidents } from "./scenarios.js";
import type { Caller, World } from "./world.js";

export type Does =
  | keyof Accidents
  /** A caller. */
  | (
      | "ask"
      | "answered"
      | "release"
      | "downgrade"
      | "transfer"
      | "choose"
      | "keep"
      | "pass"
      | "take again"
      | "give back"
      | "give up"
      | "let pass"
      | "write arrives"
    )
  /** The client of a caller that waits or holds. */
  | (
      | "watch held key"
      | "watch joins"
      | "watch created"
      | "deletion heard"
      | "join heard"
      | "read answered"
      | "put heard"
      | "places read"
    )
  /** etcd. */
  | ("arrives" | "batch arrives" | "late arrives" | "late vanishes" | "read arrives" | "catch up")
  /** A session. */
  | ("run out" | "go on" | "hear" | "doubt ends" | "sweep" | "delay over");

/**
 * One thing that may happen next. Progress happens by itself, given time. A choice is up to a user, and an accident is
 * up to nobody: these may never happen, so nothing may depend on them.
 */
export interface Step<W = World> {
  readonly kind: "progress" | "choice" | "accident";
  /** What it does, for a check that compares steps with those of a run. */
  readonly does: Does;
  /** The caller that it is about, if it is about one. */
  readonly caller?: number;
  /** The key of the watch that it is about. */
  readonly on?: string;
  run(world: W): void;
}

type Act = (world: World, caller: Caller) => void;

/** Every step runs in its own copy of the world and finds its caller there. */
export const will = (caller: Caller, does: Does, act: Act): Step => ({
  kind: "progress",
  does,
  caller: caller.id,
  run: (world) => act(world, world.callers[caller.id]!),
});

export const may = (caller: Caller, does: Does, act: Act): Step => ({
  ...will(caller, does, act),
  kind: "choice",
});

export const progress = (does: Does, run: Step["run"]): Step => ({ kind: "progress", does, run });

/** As often as the scenario allows. */
export function accident<W extends { left: Accidents } = World>(
  world: W,
  which: keyof Accidents,
  run: (world: W) => void,
  caller?: number,
): Step<W>[] {
  if (world.left[which] === 0) return [];
  const once = (w: W): void => {
    w.left = { ...w.left, [which]: w.left[which] - 1 };
    run(w);
  };
  return [{ kind: "accident", does: which, ...(caller !== undefined && { caller }), run: once }];
}
