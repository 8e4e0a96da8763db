// `npm run sim:mutants`: for each rule that the lab breaks on purpose, the first seed that notices it.
import { parseArgs } from "node:util";
import { MUTANTS } from "../../lab/mutants/table.js";
import { MUTANT_HUNTS } from "../bugs/hints.js";
import { firstFound, replayed, type Ground } from "../bugs/hunt.js";
import { mutantOf, sources } from "./build.js";

const USAGE = `npm run sim:mutants -- [options]
  --only LIST    these mutants of the lab only
  --seconds N    for each search, on one core (default: 60)
  --replays N    of each seed that was found (default: 100)
  --seed N       the first seed of each search (default: 1)
  --undirected   every setting is the swarm's choice
  --baseline N   the same searches must find nothing in the sources in N seeds each`;

const text = { type: "string" } as const;
const flag = { type: "boolean", default: false } as const;

interface Flags {
  readonly first: number;
  readonly seconds: number;
  readonly replays: number;
  readonly undirected: boolean;
  readonly baseline: number | undefined;
}

type Result = "found" | "not found" | "not simulated";

async function main(): Promise<void> {
  const { values } = parseArgs({
    options: {
      ...{ only: text, baseline: text, undirected: flag, help: flag, seed: { ...text, default: "1" } },
      ...{ seconds: { ...text, default: "60" }, replays: { ...text, default: "100" } },
    },
  });
  if (values.help) return console.log(USAGE);
  const { only, seconds, replays, seed, undirected, baseline } = values;
  const flags = {
    ...{ first: Number(seed), seconds: Number(seconds), replays: Number(replays), undirected },
    baseline: baseline === undefined ? undefined : Number(baseline),
  };
  const wanted = only?.split(",") ?? MUTANTS.map(({ name }) => name);
  const results: Result[] = [];
  Error.stackTraceLimit = 0;
  console.log("| mutant | found by | seconds | replayed |\n| --- | --- | --- | --- |");
  for (const name of wanted) results.push(await search(name, flags));
  const count = (result: Result): number => results.filter((each) => each === result).length;
  const { length } = wanted;
  console.log(`${count("found")} of ${length} found; ${count("not simulated")} cannot be seen`);
  const expected = baseline === undefined ? count("found") + count("not simulated") : length - count("found");
  if (expected < length) process.exitCode = 1;
}

async function search(name: string, flags: Flags): Promise<Result> {
  const hunt = MUTANT_HUNTS[name];
  if (hunt === undefined) throw new RangeError(`Expected a mutant of the lab, got "${name}"`);
  if ("notSimulated" in hunt && !flags.undirected) {
    console.log(`| ${name} | not simulated: ${hunt.notSimulated} | | |`);
    return "not simulated";
  }
  return searched(name, "notSimulated" in hunt || flags.undirected ? { hints: {} } : hunt, flags);
}

async function searched(name: string, ground: Ground, flags: Flags): Promise<Result> {
  const { first, seconds, baseline, replays } = flags;
  const hunt = { build: await (baseline === undefined ? mutantOf(name) : sources()), ground };
  const started = performance.now();
  const found = await firstFound(hunt, {
    first,
    seconds,
    ...(baseline !== undefined && { seeds: baseline }),
  });
  const took = ((performance.now() - started) / 1000).toFixed(1);
  if (found === undefined) {
    console.log(`| ${name} | not found | ${took} | |`);
    return "not found";
  }
  const same = baseline === undefined ? await replayed(hunt, found, replays) : 0;
  console.log(`| ${name} | seed ${found.seed}: ${found.broken.join()} | ${took} | ${same} of ${replays} |`);
  if (replays === 0) console.log(`    ${found.example}`);
  return "found";
}

await main();
