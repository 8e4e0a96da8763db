// `npm run sim:mutants`: for each rule that the lab breaks on purpose, the first seed that notices it.
import { parseArgs } from "node:util";
import { MUTANTS } from "../../lab/mutants/table.js";
import { MUTANT_HUNTS, UNSIMULATED } from "../bugs/hints.js";
import { cpuSeconds, firstFound, replayed, type Ground } from "../bugs/hunt.js";
import { rowOf, writeTable, type Result } from "../bugs/mutants-table.js";
import { mutantOf, sources } from "./build.js";

const USAGE = `npm run sim:mutants -- [options]
  --only LIST    these mutants of the lab only; also prints what was found
  --seconds N    for each search, on one core (default: 60)
  --replays N    of each seed that was found (default: 100)
  --seed N       the first seed of each search (default: 1)
  --undirected   every setting is the swarm's choice
  --baseline N   the same searches must find nothing in the sources in N seeds each
  --write        puts the rows into test/sim/bugs/mutants.md`;

const text = { type: "string" } as const;
const flag = { type: "boolean", default: false } as const;

interface Flags {
  readonly first: number;
  readonly seconds: number;
  readonly replays: number;
  readonly undirected: boolean;
  readonly verbose: boolean;
  readonly baseline: number | undefined;
}

async function main(): Promise<void> {
  const { values } = parseArgs({
    options: {
      ...{ only: text, baseline: text, undirected: flag, write: flag, help: flag },
      ...{ seed: { ...text, default: "1" }, seconds: { ...text, default: "60" } },
      replays: { ...text, default: "100" },
    },
  });
  if (values.help) return console.log(USAGE);
  const { only, seconds, replays, seed, undirected, baseline, write } = values;
  const flags = {
    ...{ first: Number(seed), seconds: Number(seconds), replays: Number(replays), undirected },
    ...{ baseline: baseline === undefined ? undefined : Number(baseline), verbose: only !== undefined },
  };
  const simulated = MUTANTS.map(({ name }) => name).filter((name) => !UNSIMULATED.has(name));
  const wanted = only?.split(",") ?? simulated;
  Error.stackTraceLimit = 0;
  console.log("| mutant | found by | seconds | replayed |\n| --- | --- | --- | --- |");
  const results = new Map<string, Result>();
  for (const name of wanted) results.set(name, await search(name, flags));
  if (write && !undirected && baseline === undefined) writeTable(results);
  summarize([...results.values()], baseline !== undefined);
}

function summarize(results: readonly Result[], isBaseline: boolean): void {
  const { length } = results;
  const found = results.filter((result) => result.found !== undefined).length;
  console.log(`${found} of ${length} found`);
  if (isBaseline ? found > 0 : found < length) process.exitCode = 1;
}

async function search(name: string, flags: Flags): Promise<Result> {
  const hunt = MUTANT_HUNTS[name];
  if (hunt === undefined) throw new RangeError(`Expected a mutant of the lab, got "${name}"`);
  const result = await searched(name, flags.undirected ? { hints: {} } : hunt, flags);
  console.log(rowOf(name, result));
  if (flags.verbose && result.found) console.log(`    ${result.found.example}`);
  return result;
}

async function searched(name: string, ground: Ground, flags: Flags): Promise<Result> {
  const { first, seconds, baseline, replays } = flags;
  const wanted = { build: await (baseline === undefined ? mutantOf(name) : sources()), ground };
  const started = cpuSeconds();
  const found = await firstFound(wanted, {
    first,
    seconds,
    ...(baseline !== undefined && { seeds: baseline }),
  });
  const took = cpuSeconds() - started;
  if (found === undefined || baseline !== undefined) return { found, seconds: took };
  return { found, seconds: took, replays: { same: await replayed(wanted, found, replays), of: replays } };
}

await main();
