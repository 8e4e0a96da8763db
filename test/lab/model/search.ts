import { fingerprint } from "./fingerprint.js";
import { firstWorld } from "./first-world.js";
import { brokenAtRest, brokenNow, claimsOverlap } from "./invariants.js";
import { PRIORITIES } from "./priorities/model.js";
import { firstWorld as firstOfPriorities } from "./priorities/world.js";
import type { RuleName } from "./rules.js";
import type { Scenario } from "./scenarios.js";
import type { Step } from "./step.js";
import { SUPERSEDING } from "./superseding/model.js";
import { firstWorld as firstOfSuperseding } from "./superseding/world.js";
import { nextSteps } from "./steps.js";
import type { Broken, World } from "./world.js";

/** What the search has to know of a model, whose moments are of type W. */
export interface Model<W> {
  nextSteps(world: W): Step<W>[];
  /** Nested records are never mutated, only replaced. */
  copy(world: W): W;
  fingerprint(world: W): string;
  brokenNow(world: W): Broken | undefined;
  brokenAtRest(world: W): Broken | undefined;
  claimsOverlap(world: W): boolean;
}

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

interface Said {
  readonly said: readonly string[];
}

/** The path to a state: the numbers of the steps taken, last one first. */
interface Path {
  readonly before: Path | undefined;
  readonly step: number;
}

interface Visited<W> {
  readonly world: W;
  readonly path: Path | undefined;
}

interface Found {
  readonly broken: Broken;
  readonly path: Path | undefined;
}

/** The calls of a scenario with priorities, or with `supersede`, are served by a model of their own. */
export function explore(scenario: Scenario, without: readonly RuleName[] = []): Explored {
  if (scenario.priorities) return search(PRIORITIES, firstOfPriorities(scenario, without));
  if (scenario.superseding) return search(SUPERSEDING, firstOfSuperseding(scenario, without));
  return search(QUEUE, firstWorld(scenario, without));
}

/**
 * Visits every state that the scenario allows, in the order of the number of steps, so that the first broken promise
 * has a shortest trace. Stops there, or when no new state is left.
 */
function search<W extends Said>(model: Model<W>, start: W): Explored {
  const seen = new Set([model.fingerprint(start)]);
  const count = { steps: 0, overlaps: 0 };
  const end = (found?: Found): Explored => ({
    states: seen.size,
    ...count,
    broken: found && { ...found.broken, trace: retrace(model, start, found.path) },
  });
  let level: Visited<W>[] = [{ world: start, path: undefined }];
  while (level.length > 0) {
    const next: Visited<W>[] = [];
    for (const visited of level) {
      const { reached, found } = stepsFrom(model, visited);
      count.steps += reached.length;
      if (found) return end(found);
      next.push(...reached.filter(({ world }) => isNew(model.fingerprint(world), seen)));
    }
    count.overlaps += next.filter(({ world }) => model.claimsOverlap(world)).length;
    level = next;
  }
  return end();
}

function isNew(print: string, seen: Set<string>): boolean {
  if (seen.has(print)) return false;
  seen.add(print);
  return true;
}

/** Every state that is one step away; or a promise that is broken in this state or in one of those. */
function stepsFrom<W>(
  model: Model<W>,
  { world, path }: Visited<W>,
): { readonly reached: Visited<W>[]; readonly found?: Found } {
  const possible = model.nextSteps(world);
  const reached: Visited<W>[] = [];
  const asleep = possible.some(({ kind }) => kind === "progress") ? undefined : model.brokenAtRest(world);
  if (asleep) return { reached, found: { broken: asleep, path } };
  for (const [number, step] of possible.entries()) {
    const after = { world: model.copy(world), path: { before: path, step: number } };
    step.run(after.world);
    const broken = model.brokenNow(after.world);
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
function retrace<W extends Said>(model: Model<W>, start: W, last: Path | undefined): string[] {
  const numbers: number[] = [];
  for (let path = last; path; path = path.before) numbers.unshift(path.step);
  let world = start;
  return numbers.map((step) => {
    const after = model.copy(world);
    model.nextSteps(world)[step]!.run(after);
    world = after;
    return after.said.join("; ");
  });
}

const QUEUE: Model<World> = { nextSteps, copy, fingerprint, brokenNow, brokenAtRest, claimsOverlap };
