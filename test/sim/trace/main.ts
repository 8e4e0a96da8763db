// `npm run sim:trace --`: whether the protocol steps of simulated runs are paths of the model in the lab.
import { parseArgs } from "node:util";
import { mutantOf, sources } from "../run/build.js";
import { tracedRun } from "./traced-run.js";

const USAGE = `npm run sim:trace -- [options]
  --seeds N      that many seeds, from --seed on (default: 100)
  --seed N       the first seed (default: 1)
  --mutant NAME  a rule of the lab's table is broken; ends with the first seed whose trace is rejected`;

const text = { type: "string" } as const;

async function main(): Promise<void> {
  const { values } = parseArgs({
    options: { seeds: text, seed: text, mutant: text, help: { type: "boolean" } },
  });
  if (values.help) return console.log(USAGE);
  const first = Number(values.seed ?? "1");
  const count = Number(values.seeds ?? (values.seed === undefined ? "100" : "1"));
  const build = await (values.mutant === undefined ? sources() : mutantOf(values.mutant));
  const total = { seeds: 0, steps: 0, largest: 0, rejected: 0 };
  Error.stackTraceLimit = 0;
  for (let seed = first; seed < first + count; seed++) {
    const { steps, largest, rejected } = await tracedRun(String(seed), build);
    total.seeds++;
    total.steps += steps;
    total.largest = Math.max(total.largest, largest);
    console.log(`seed ${seed}: ${steps} steps, at most ${largest} states`);
    if (rejected === undefined) continue;
    total.rejected++;
    console.log(rejected);
    if (values.mutant !== undefined) break;
  }
  const { seeds, steps, largest, rejected } = total;
  console.log(`${seeds} seeds, ${steps} steps, at most ${largest} states, ${rejected} rejected`);
  if (rejected > 0) process.exitCode = 1;
}

await main();
