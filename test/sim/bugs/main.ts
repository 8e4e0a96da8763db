// `npm run sim:bugs`: bugs of this repository's history are put back one by one; the first seed that finds each.
import { parseArgs } from "node:util";
import { buildOf, sources } from "../run/build.js";
import { runSim } from "../run/sim-run.js";
import { swarmOf } from "../run/swarm.js";
import type { Bug } from "./bug.js";
import { cpuSeconds, firstFound, replayed, type Limits } from "./hunt.js";
import { BUGS } from "./table.js";

const USAGE = `npm run sim:bugs -- [options]
  --only LIST    these bugs only; also prints what was found
  --seconds N    for each search, on one core (default: 60)
  --replays N    of each seed that was found (default: 0)
  --seed N       the first seed of each search (default: 1)
  --baseline N   the same searches must find nothing in the sources in N seeds each
  --check        a build without patches must run exactly as the sources do`;

const text = { type: "string" } as const;
const flag = { type: "boolean", default: false } as const;

interface Flags extends Limits {
  readonly replays: number;
  readonly baseline: boolean;
  readonly verbose: boolean;
}

async function main(): Promise<void> {
  const { values } = parseArgs({
    options: {
      ...{ only: text, baseline: text, check: flag, help: flag, seed: { ...text, default: "1" } },
      ...{ seconds: { ...text, default: "60" }, replays: { ...text, default: "0" } },
    },
  });
  Error.stackTraceLimit = 0;
  if (values.help) return console.log(USAGE);
  if (values.check) return check();
  const only = values.only?.split(",");
  const unknown = only?.filter((name) => !BUGS.some((bug) => bug.name === name)) ?? [];
  if (unknown.length > 0) throw new RangeError(`Expected names of bugs, got ${unknown.join()}`);
  const wanted = BUGS.filter(({ name }) => only?.includes(name) ?? true);
  const baseline = values.baseline !== undefined;
  const flags = {
    ...{ first: Number(values.seed), seconds: Number(values.seconds), replays: Number(values.replays) },
    ...{ seeds: baseline ? Number(values.baseline) : Infinity, baseline, verbose: only !== undefined },
  };
  console.log("| bug | mended in | found by | seconds |\n| --- | --- | --- | --- |");
  let count = 0;
  for (const bug of wanted) if (await search(bug, flags)) count++;
  console.log(`${count} of ${wanted.length} found`);
  if (count !== (baseline ? 0 : wanted.length)) process.exitCode = 1;
}

/** Prints a row of the table, and returns whether the bug was found. */
async function search({ name, patches, mended, ground }: Bug, flags: Flags): Promise<boolean> {
  const build = await (flags.baseline ? sources() : buildOf({ name: `bug-${name}`, patches }));
  const hunt = { build, ground };
  const started = cpuSeconds();
  const found = await firstFound(hunt, flags);
  const seconds = (cpuSeconds() - started).toFixed(1);
  const by = found ? `seed ${found.seed}: ${found.broken.join()}` : "not found";
  console.log(`| ${name} | ${mended.commit} | ${by} | ${seconds} |`);
  if (found === undefined) return false;
  if (flags.verbose) console.log(`    ${found.example}`);
  if (flags.replays === 0) return true;
  console.log(`    ${await replayed(hunt, found, flags.replays)} of ${flags.replays} replays`);
  return true;
}

/** If a build without patches differed from the sources, a search would find that difference instead of the bug. */
async function check(): Promise<void> {
  const builds = [await sources(), await buildOf({ name: "bug-none", patches: [] })];
  for (const seed of ["1", "2", "3"]) {
    const runs = [];
    for (const build of builds) runs.push(await runSim({ ...swarmOf(seed), build }));
    const [one, other] = runs.map(({ hash }) => hash);
    console.log(`seed ${seed}: ${one} ${one === other ? "=" : "is not"} ${other}`);
    if (one !== other) process.exitCode = 1;
  }
}

await main();
