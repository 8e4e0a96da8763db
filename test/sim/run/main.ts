// `npm run sim`: runs of the simulated world, one for each seed; exit code 1: an invariant was broken.
import { mkdirSync, writeFileSync } from "node:fs";
import path from "node:path";
import { parseArgs } from "node:util";
import { judge, type Verdict } from "../../lab/checker/judge.js";
import { shrink } from "../../lab/runner/shrink.js";
import { timeline } from "../../lab/runner/timeline.js";
import { mutantOf, sources, type Build } from "./build.js";
import { runSim, type SimResult } from "./sim-run.js";
import { swarmOf } from "./swarm.js";

const USAGE = `npm run sim -- [options]
  --seeds N     that many seeds, from --seed on (default: 100)
  --seed N      the first seed (default: 1)
  --only LIST   of the planned faults, these numbers only
  --print       every step of the run
  --mutant NAME a rule of the lab's table is broken; ends with the first seed that notices
  --keep DIR    leaves the timeline of each broken run there
  --ui          serves a page that shows a run and breaks it by hand; prints its address
  --play QUERY  repeats the run of the page's address, as it was broken by hand; with --ui: on the page`;

const text = { type: "string" } as const;
const flag = { type: "boolean", default: false } as const;

interface Flags {
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
      ...{ ui: flag, play: text },
    },
  });
  if (values.help) return console.log(USAGE);
  if (values.ui) return (await import("../page/main.js")).serve(values.play);
  if (values.play !== undefined) return (await import("../page/main.js")).play(values.play);
  const first = Number(values.seed ?? "1");
  const count = Number(values.seeds ?? (values.seed === undefined ? "100" : "1"));
  const { print, keep, mutant } = values;
  build = await (mutant === undefined ? sources() : mutantOf(mutant));
  await runSeeds(first, count, { only: values.only?.split(",").map(Number), print, keep, mutant });
}

async function runSeeds(first: number, count: number, flags: Flags): Promise<void> {
  const started = performance.now();
  let virtualMs = 0;
  let broken = 0;
  let last = first;
  for (let seed = first; seed < first + count; seed++) {
    const { result, verdict } = await once(seed, flags.only, flags.print);
    virtualMs += result.virtualMs;
    last = seed;
    if (count === 1) console.log(`seed ${seed}: hash ${result.hash}, ${result.calls} calls`);
    if (sentencesOf(verdict).length === 0) continue;
    broken++;
    await explain(seed, { result, verdict }, flags.keep);
    if (flags.mutant !== undefined) break;
  }
  const ms = performance.now() - started;
  const perSecond = (((last - first + 1) / ms) * 1000).toFixed(1);
  const speed = (virtualMs / ms).toFixed(0);
  console.log(`seeds ${first} to ${last}: ${broken} broken; ${perSecond} a second, ${speed} x real time`);
  if (broken > 0) process.exitCode = 1;
}

async function once(seed: number, only?: readonly number[], print = false) {
  const result = await runSim({
    ...swarmOf(String(seed)),
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
  keep: string | undefined,
): Promise<void> {
  console.log(`seed ${seed}, ${JSON.stringify({ ...swarmOf(String(seed)), seed: undefined })}`);
  for (const sentence of sentencesOf(verdict).slice(0, 5)) console.log(`  ${sentence}`);
  const fails = async (some: readonly number[]) => sentencesOf((await once(seed, some)).verdict).length > 0;
  const short = await shrink(
    result.planned.map(({ n }) => n),
    fails,
    { runs: 60 },
  );
  console.log(`  replay: npm run sim -- --seed ${seed} --only ${short.join()}`);
  if (keep === undefined) return;
  mkdirSync(keep, { recursive: true });
  writeFileSync(path.join(keep, `seed-${seed}.svg`), timeline(result.run, [`seed ${seed}`]));
}

const sentencesOf = ({ violations }: Verdict): string[] =>
  Object.entries(violations).flatMap(([label, sentences]) => sentences.map((it) => `${label}: ${it}`));

await main();
