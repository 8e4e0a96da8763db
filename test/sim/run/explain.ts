import type { Verdict } from "../../lab/checker/judge.js";
import { shrink } from "../../lab/runner/shrink.js";
import type { Build } from "./build.js";
import { LIVE_MS, runLive, type LiveResult } from "./live.js";
import type { SimOptions } from "./sim-run.js";
import {
  overTransport,
  shortOf,
  swarmOf,
  withCrashes,
  withRendezvous,
  withResults,
  withShards,
  withBounds,
  withNewest,
  withPriorities,
  withSticky,
  withWeights,
  withWanted,
  withWorkers,
} from "./swarm.js";

/** What is chosen by the command, and not by the seed. */
export interface Choice {
  readonly build: Build;
  readonly short: boolean;
  /** Over the client's own HTTP/2 and gRPC. */
  readonly transport: boolean;
  /** A worker thread of each process renews its leases. */
  readonly workers: boolean;
  /** Sessions have a delay after a crash; in half of the runs, the processes have guardians. */
  readonly crashes: boolean;
  /** Holders listen for waiters. */
  readonly wanted: boolean;
  /** The keys of locks may stay with their sessions. */
  readonly sticky: boolean;
  /** Calls join a queue only if few wait in it. */
  readonly bounded: boolean;
  /** Calls take several permits at once. */
  readonly weighted: boolean;
  /** Most calls end the older ones that wait. */
  readonly newest: boolean;
  /** Calls have priorities. */
  readonly priorities: boolean;
  /** Members of groups share out shards. */
  readonly shards: boolean;
  /** Callers of `once` and `share` keep results. */
  readonly results: boolean;
  /** Callers of latches and barriers. */
  readonly rendezvous: boolean;
  readonly only: readonly number[] | undefined;
  readonly processes: number | undefined;
  /** A name in the table of the lab, if the build is a mutant. */
  readonly mutant: string | undefined;
}

/** The options of the command that are set for all seeds. */
export const KINDS = [
  "short",
  "transport",
  "workers",
  "crashes",
  "wanted",
  "sticky",
  "bounded",
  "weighted",
  "newest",
  "priorities",
  "shards",
  "results",
  "rendezvous",
] as const;

export function settingOf(seed: number, choice: Choice): SimOptions {
  const { build, short, transport, workers, crashes, wanted, sticky } = choice;
  const { bounded, weighted, newest, priorities, shards, results, rendezvous, only, processes } = choice;
  const chosen = (short ? shortOf : swarmOf)(String(seed));
  const carried = transport ? overTransport(chosen) : chosen;
  const renewed = workers ? withWorkers(carried) : carried;
  const crashed = crashes ? withCrashes(renewed) : renewed;
  const told = wanted ? withWanted(crashed) : crashed;
  const kept = sticky ? withSticky(told) : told;
  const limited = bounded ? withBounds(kept) : kept;
  const heavy = weighted ? withWeights(limited) : limited;
  const latest = newest ? withNewest(heavy) : heavy;
  const ranked = priorities ? withPriorities(latest) : latest;
  const shared = shards ? withShards(ranked) : ranked;
  const cached = results ? withResults(shared) : shared;
  const swarm = rendezvous ? withRendezvous(cached) : cached;
  return { ...swarm, build, only, processes: processes ?? swarm.processes };
}

export const sentencesOf = ({ violations }: Verdict): string[] =>
  Object.entries(violations).flatMap(([label, sentences]) => sentences.map((it) => `${label}: ${it}`));

/** Prints what a seed has broken. Searches for fewer faults and processes that break something, and prints how to replay them. */
export async function explain(seed: number, choice: Choice, { result, verdict }: LiveResult): Promise<void> {
  const setting = settingOf(seed, choice);
  console.log(`seed ${seed}, ${JSON.stringify({ ...setting, seed: undefined, build: undefined })}`);
  for (const sentence of sentencesOf(verdict).slice(0, 5)) console.log(`  ${sentence}`);
  const planned = result.planned.map(({ n }) => n);
  const only = await shrink(planned, (some) => isBroken(seed, { ...choice, only: some }), { runs: 60 });
  const processes = await fewestProcesses(seed, { ...choice, only }, setting.processes);
  const { noticedAtMs } = await runLive(settingOf(seed, { ...choice, only, processes }), LIVE_MS);
  if (noticedAtMs !== undefined)
    console.log(`  first noticed at ${noticedAtMs.toFixed(1)} ms of virtual time`);
  const ownChoice = settingOf(seed, { ...choice, processes: undefined }).processes;
  const size = processes === ownChoice ? "" : ` --processes ${processes}`;
  const mutant = choice.mutant === undefined ? "" : `--mutant ${choice.mutant} `;
  const kind = KINDS.filter((name) => choice[name])
    .map((name) => `--${name} `)
    .join("");
  console.log(`  replay: npm run sim -- ${mutant}${kind}--seed ${seed} --only ${only.join()}${size}`);
}

/** Each process keeps what the seed chose for it. */
async function fewestProcesses(seed: number, choice: Choice, most: number): Promise<number> {
  for (let processes = 1; processes < most; processes++)
    if (await isBroken(seed, { ...choice, processes })) return processes;
  return most;
}

async function isBroken(seed: number, choice: Choice): Promise<boolean> {
  const { verdict } = await runLive(settingOf(seed, choice), Infinity);
  return sentencesOf(verdict).length > 0;
}
