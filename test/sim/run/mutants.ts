// `npm run sim:mutants`: for each rule that the lab breaks on purpose, the first seed that notices it.
import { parseArgs } from "node:util";
import { judge } from "../../lab/checker/judge.js";
import { MUTANTS } from "../../lab/mutants/table.js";
import { mutantOf, type Build } from "./build.js";
import { runSim } from "./sim-run.js";
import { swarmOf } from "./swarm.js";

const text = { type: "string" } as const;

interface Found {
  readonly seed: number;
  readonly broken: readonly string[];
}

const brokenIn = async (build: Build, seed: number): Promise<readonly string[]> => {
  const { run } = await runSim({ ...swarmOf(String(seed)), build });
  return Object.keys(judge(run).violations);
};

/** The first seed that breaks an invariant; undefined if none does within `seconds`. */
async function firstFound(build: Build, seconds: number): Promise<Found | undefined> {
  const until = performance.now() + seconds * 1000;
  for (let seed = 1; performance.now() < until; seed++) {
    const broken = await brokenIn(build, seed);
    if (broken.length > 0) return { seed, broken };
  }
  return undefined;
}

async function replayed(build: Build, { seed, broken }: Found, times: number): Promise<number> {
  let same = 0;
  for (let n = 0; n < times; n++) if ((await brokenIn(build, seed)).join() === broken.join()) same++;
  return same;
}

async function main(): Promise<void> {
  const { values } = parseArgs({
    options: { only: text, seconds: { ...text, default: "60" }, replays: { ...text, default: "100" } },
  });
  const wanted = values.only?.split(",") ?? MUTANTS.map(({ name }) => name);
  const replays = Number(values.replays);
  let count = 0;
  Error.stackTraceLimit = 0;
  for (const name of wanted) {
    const build = await mutantOf(name);
    const started = performance.now();
    const found = await firstFound(build, Number(values.seconds));
    const seconds = ((performance.now() - started) / 1000).toFixed(1);
    if (found === undefined) {
      console.log(`| ${name} | not found | ${seconds} | |`);
      continue;
    }
    count++;
    const same = await replayed(build, found, replays);
    console.log(
      `| ${name} | seed ${found.seed}: ${found.broken.join()} | ${seconds} | ${same} of ${replays} |`,
    );
  }
  console.log(`${count} of ${wanted.length} found`);
}

await main();
