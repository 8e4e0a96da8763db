import { judge } from "../../lab/checker/judge.js";
import type { Build } from "../run/build.js";
import { runSim, type SimOptions } from "../run/sim-run.js";
import { swarmOf } from "../run/swarm.js";
import { brokenRules } from "./rules.js";
import { runWorkload, type WorkloadName } from "./workloads/index.js";

/** What a search fixes in the settings that its seeds choose, because few of them would show the mistake. */
export type Hints = Partial<Omit<SimOptions, "seed" | "build" | "only" | "print">>;

/** Where to look: in runs of the lab's lanes, or in a workload of calls that the lanes do not make. */
export type Ground = { readonly hints: Hints } | { readonly workload: WorkloadName };

/** A build, and where to look for what is wrong with it. */
export interface Hunt {
  readonly build: Build;
  readonly ground: Ground;
}

export interface Limits {
  readonly first: number;
  /** Of one core. */
  readonly seconds: number;
  /** Default: no limit. */
  readonly seeds?: number;
}

export interface Found {
  readonly seed: number;
  /** The labels of the broken invariants. */
  readonly broken: readonly string[];
  readonly example: string;
}

/** The setting of a seed: everything that the hints leave open is the swarm's choice, but for the start of the faults. */
export const settingOf = (seed: number, hints: Hints): Omit<SimOptions, "build"> => ({
  ...swarmOf(String(seed)),
  quiet: undefined,
  ...hints,
});

async function brokenIn(hunt: Hunt, seed: number): Promise<Found> {
  const broken = await violationsOf(hunt, seed);
  const [example = ""] = [...broken.values()].flat();
  return { seed, broken: [...broken.keys()], example };
}

/** One sentence per violation, by invariant. */
async function violationsOf(
  { build, ground }: Hunt,
  seed: number,
): Promise<ReadonlyMap<string, readonly string[]>> {
  if ("workload" in ground) return runWorkload(ground.workload, seed, build);
  const { run } = await runSim({ ...settingOf(seed, ground.hints), build });
  return new Map([...Object.entries(judge(run).violations), ...brokenRules(run)]);
}

/** Of this process: what else the machine does has no part in it. */
export function cpuSeconds(): number {
  const { user, system } = process.cpuUsage();
  return (user + system) / 1e6;
}

/** The first seed that breaks an invariant; undefined if none does within the limits. */
export async function firstFound(hunt: Hunt, limits: Limits): Promise<Found | undefined> {
  const { first, seconds, seeds = Infinity } = limits;
  const until = cpuSeconds() + seconds;
  for (let seed = first; seed < first + seeds && cpuSeconds() < until; seed++) {
    const found = await brokenIn(hunt, seed);
    if (found.broken.length > 0) return found;
  }
  return undefined;
}

/** How many of so many runs of the same seed break the same invariants, with the same first sentence. */
export async function replayed(hunt: Hunt, found: Found, times: number): Promise<number> {
  let same = 0;
  for (let n = 0; n < times; n++) if (isSame(await brokenIn(hunt, found.seed), found)) same++;
  return same;
}

const isSame = (one: Found, other: Found): boolean =>
  one.broken.join() === other.broken.join() && one.example === other.example;
