import { fingerprint } from "./fingerprint.js";
import { firstWorld } from "./first-world.js";
import { brokenAtRest, brokenNow, claimsOverlap } from "./invariants.js";
import type { RuleName } from "./rules.js";
import type { Scenario } from "./scenarios.js";
import { nextSteps } from "./steps.js";
import type { Broken, World } from "./world.js";

export interface Explored {
  readonly states: number;
  /** Ways from one state to the next. */
  readonly steps: number;
  /** States in which two callers claim to hold one name. */
  readonly overlaps: number;
  /** Undefined when every state that can be reached keeps every promise. `trace`: the steps that lead there, in words. */
  readonly broken: (Broken & { readonly trace: readonly string[] }) | undefined;
}

/** A state that was visited; the path to it is kept as the numbers of the steps taken. */
interface Visited {
  readonly world: World;
  readonly path: Path | undefined;
}

interface Path {
  readonly before: Path | undefined;
  readonly step: number;
}

/**
 * Visits every state that the scenario allows, those with the fewest steps first: the first broken promise that is found
 * has a shortest trace. Stops there, or when nothing new is left.
 */
export function explore(scenario: Scenario, without: readonly RuleName[] = []): Explored {
  const start = firstWorld(scenario, without);
  const seen = new Set([fingerprint(start)]);
  let steps = 0;
  let overlaps = 0;
  const end = (broken?: Broken, path?: Path): Explored => ({
    states: seen.size,
    steps,
    overlaps,
    broken: broken && { ...broken, trace: retrace(start, path) },
  });
  for (let level: Visited[] = [{ world: start, path: undefined }]; level.length > 0;) {
    const next: Visited[] = [];
    for (const { world, path } of level) {
      const possible = nextSteps(world);
      const asleep = possible.some(({ kind }) => kind === "progress") ? undefined : brokenAtRest(world);
      if (asleep) return end(asleep, path);
      for (let step = 0; step < possible.length; step++) {
        const after = copy(world);
        possible[step]!.run(after);
        steps++;
        const way: Path = { before: path, step };
        const broken = brokenNow(after);
        if (broken) return end(broken, way);
        const print = fingerprint(after);
        if (seen.has(print)) continue;
        seen.add(print);
        if (claimsOverlap(after)) overlaps++;
        next.push({ world: after, path: way });
      }
    }
    level = next;
  }
  return end();
}

/** Nested records are never changed, only replaced. */
const copy = (world: World): World => ({
  ...world,
  sessions: world.sessions.map((session) => ({ ...session })),
  callers: world.callers.map((caller) => ({ ...caller })),
  said: [],
});

/** Walks the path again and notes what every step says. */
function retrace(start: World, last: Path | undefined): string[] {
  const numbers: number[] = [];
  for (let path = last; path; path = path.before) numbers.unshift(path.step);
  let world = start;
  return numbers.map((step) => {
    const after = copy(world);
    nextSteps(world)[step]!.run(after);
    world = after;
    return after.said.join("; ");
  });
}
