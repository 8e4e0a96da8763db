// `npm run sim`: runs of the simulated world, one for each seed; exit code 1: an invariant was broken.
import { mkdirSync, writeFileSync } from "node:fs";
import path from "node:path";
import { parseArgs } from "node:util";
import { judge, type Verdict } from "../../lab/checker/judge.js";
import { shrink } from "../../lab/runner/shrink.js";
import { timeline } from "../../lab/runner/timeline.js";
import { mutantOf, sources, type Build } from "./build.js";
import { runParts } from "./parts.js";
import { runSim, type SimResult } from "./sim-run.js";
import { SHORT_REQUESTS, shortOf, swarmOf } from "./swarm.js";

const USAGE = `npm run sim -- [options]
  --seeds N     that many seeds, from --seed on (default: 100)
  --seed N      the first seed (default: 1)
  --short       each run ends after ${SHORT_REQUESTS} calls to etcd
  --jobs N      that many processes at once, each with a part of the seeds; prints each part and the total
  --record FILE with --jobs: adds a row for each part to a table
  --only LIST   of the planned faults, these numbers only
  --print       every step of the run
  --mutant NAME a rule of the lab's table is broken; ends with the first seed that notices
  --keep DIR    leaves the timeline of each broken run there
  --ui          serves a page that shows a run and breaks it by hand; prints its address
  --play QUERY  repeats the run of the page's address, as it was broken by hand; with --ui: on the page`;

const text = { type: "string" } as const;
const flag = { type: "boolean", default: false } as const;

interface Flags {
  readonly short: boolean;
  readonly only: readonly number[] | undefined;
  readonly print: boolean;
  readonly keep: string | undefined;
  readonly mutant: string | undefined;
}

// Most errors of a run are expected, and Node.js needs longer for their stacks than for the rest of a call.
Error.stackTraceLimit = 0;

let build: Build;

async function main(): Promise<void> {
  const { values } = parseArgs({
    options: {
      ...{ seeds: text, seed: text, only: text, keep: text, mutant: text, print: flag, help: flag },
      ...{ ui: flag, play: text, short: flag, jobs: text, record: text },
    },
  });
  if (values.help) return console.log(USAGE);
  if (values.ui) return (await import("../page/main.js")).serve(values.play);
  if (values.play !== undefined) return (await import("../page/main.js")).play(values.play);
  const first = Number(values.seed ?? "1");
  const count = Number(values.seeds ?? (values.seed === undefined ? "100" : "1"));
  const { print, keep, mutant, short } = values;
  if (values.jobs !== undefined) return inParts({ ...values, first, count, jobs: Number(values.jobs) });
  build = await (mutant === undefined ? sources() : mutantOf(mutant));
  const only = values.only?.split(",").map(Number);
  await runSeeds(first, count, { only, print, keep, mutant, short });
}

interface InParts extends Pick<Flags, "short"> {
  readonly first: number;
  readonly count: number;
  readonly jobs: number;
  readonly keep?: string | undefined;
  readonly record?: string | undefined;
}

async function inParts({ first, count, jobs, short, keep, record }: InParts): Promise<void> {
  const args = [...(short ? ["--short"] : []), ...(keep === undefined ? [] : ["--keep", keep])];
  if ((await runParts({ first, count, jobs, args, record })) > 0) process.exitCode = 1;
}

async function runSeeds(first: number, count: number, flags: Flags): Promise<void> {
  const started = performance.now();
  let virtualMs = 0;
  let broken = 0;
  let last = first;
  for (let seed = first; seed < first + count; seed++) {
    const { result, verdict } = await once(seed, flags);
    virtualMs += result.virtualMs;
    last = seed;
    if (count === 1) console.log(`seed ${seed}: hash ${result.hash}, ${result.calls} calls`);
    if (sentencesOf(verdict).length === 0) continue;
    broken++;
    await explain(seed, { result, verdict }, flags);
    if (flags.mutant !== undefined) break;
  }
  const ms = performance.now() - started;
  const perSecond = (((last - first + 1) / ms) * 1000).toFixed(1);
  const speed = (virtualMs / ms).toFixed(0);
  console.log(`seeds ${first} to ${last}: ${broken} broken; ${perSecond} a second, ${speed} x real time`);
  if (broken > 0) process.exitCode = 1;
}

const settingOf = (seed: number, short: boolean) => (short ? shortOf : swarmOf)(String(seed));

async function once(seed: number, { only, print, short }: Pick<Flags, "only" | "print" | "short">) {
  const result = await runSim({
    ...settingOf(seed, short),
    build,
    ...(only && { only }),
    ...(print && { print: (line: string) => console.log(line) }),
  });
  return { result, verdict: judge(result.run) };
}

/** Searches for fewer faults that break an invariant, and prints how to replay them. */
async function explain(
  seed: number,
  { result, verdict }: { result: SimResult; verdict: Verdict },
  { keep, short }: Flags,
): Promise<void> {
  console.log(`seed ${seed}, ${JSON.stringify({ ...settingOf(seed, short), seed: undefined })}`);
  for (const sentence of sentencesOf(verdict).slice(0, 5)) console.log(`  ${sentence}`);
  const fails = async (only: readonly number[]) =>
    sentencesOf((await once(seed, { only, print: false, short })).verdict).length > 0;
  const fewest = await shrink(
    result.planned.map(({ n }) => n),
    fails,
    { runs: 60 },
  );
  console.log(`  replay: npm run sim -- ${short ? "--short " : ""}--seed ${seed} --only ${fewest.join()}`);
  if (keep === undefined) return;
  mkdirSync(keep, { recursive: true });
  writeFileSync(path.join(keep, `seed-${seed}.svg`), timeline(result.run, [`seed ${seed}`]));
}

const sentencesOf = ({ violations }: Verdict): string[] =>
  Object.entries(violations).flatMap(([label, sentences]) => sentences.map((it) => `${label}: ${it}`));

await main();
