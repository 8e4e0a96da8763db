import { fingerprint } from "./fingerprint.js";
import { firstWorld } from "./first-world.js";
import { brokenAtRest, brokenNow, claimsOverlap } from "./invariants.js";
import type { RuleName } from "./rules.js";
import type { Scenario } from "./scenarios.js";
import { nextSteps } from "./steps.js";
import type { Broken, World } from "./world.js";

export interface Explored {
  readonly states: number;
  /** Transitions from one state to the next. */
  readonly steps: number;
  /** States in which two callers claim to hold one name. */
  readonly overlaps: number;
  /**
   * Undefined when every reachable state keeps every promise. `trace`: the steps that lead to the broken one, in words.
   */
  readonly broken: (Broken & { readonly trace: readonly string[] }) | undefined;
}

/** The path to a state: the numbers of the steps taken, last one first. */
interface Path {
  readonly before: Path | undefined;
  readonly step: number;
}

interface Visited {
  readonly world: World;
  readonly path: Path | undefined;
}

interface Found {
  readonly broken: Broken;
  readonly path: Path | undefined;
}

/**
 * Visits every state that the scenario allows, in the order of the number of steps, so that the first broken promise
 * has a shortest trace. Stops there, or when no new state is left.
 */
export function explore(scenario: Scenario, without: readonly RuleName[] = []): Explored {
  const start = firstWorld(scenario, without);
  const seen = new Set([fingerprint(start)]);
  const count = { steps: 0, overlaps: 0 };
  const end = (found?: Found): Explored => ({
    states: seen.size,
    ...count,
    broken: found && { ...found.broken, trace: retrace(start, found.path) },
  });
  let level: Visited[] = [{ world: start, path: undefined }];
  while (level.length > 0) {
    const next: Visited[] = [];
    for (const visited of level) {
      const { reached, found } = stepsFrom(visited);
      count.steps += reached.length;
      if (found) return end(found);
      next.push(...reached.filter(({ world }) => isNew(world, seen)));
    }
    count.overlaps += next.filter(({ world }) => claimsOverlap(world)).length;
    level = next;
  }
  return end();
}

function isNew(world: World, seen: Set<string>): boolean {
  const print = fingerprint(world);
  if (seen.has(print)) return false;
  seen.add(print);
  return true;
}

/** Every state that is one step away; or a promise that is broken in this state or in one of those. */
function stepsFrom({ world, path }: Visited): { readonly reached: Visited[]; readonly found?: Found } {
  const possible = nextSteps(world);
  const reached: Visited[] = [];
  const asleep = possible.some(({ kind }) => kind === "progress") ? undefined : brokenAtRest(world);
  if (asleep) return { reached, found: { broken: asleep, path } };
  for (const [number, step] of possible.entries()) {
    const after = { world: copy(world), path: { before: path, step: number } };
    step.run(after.world);
    const broken = brokenNow(after.world);
    if (broken) return { reached, found: { broken, path: after.path } };
    reached.push(after);
  }
  return { reached };
}

/** Nested records are never mutated, only replaced. */
export const copy = (world: World): World => ({
  ...world,
  sessions: world.sessions.map((session) => ({ ...session })),
  callers: world.callers.map((caller) => ({ ...caller })),
  said: [],
});

/** Walks the path again and records what every step says. */
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
