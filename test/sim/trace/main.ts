// `npm run sim:trace --`: whether the protocol steps of simulated runs are paths of the model in the lab.
import { parseArgs } from "node:util";
import { MUTANTS } from "../../lab/mutants/table.js";
import { SUBJECTS, type Of } from "../../lab/runner/subject.js";
import { mutantOf, sources } from "../run/build.js";
import { tracedRun, tracedSetting } from "./traced-run.js";

const USAGE = `npm run sim:trace -- [options]
  --seeds N      that many seeds, from --seed on (default: 100)
  --seed N       the first seed (default: 1)
  --of KIND      what is acquired: ${SUBJECTS.join(", ")} (default: that of the seed)
  --transport    over the client's own HTTP/2 and gRPC, and adds the transport's faults
  --mutant NAME  a rule of the lab's table is broken; ends with the first seed whose trace is rejected`;

const text = { type: "string" } as const;

const flag = { type: "boolean", default: false } as const;

const options = { seeds: text, seed: text, of: text, mutant: text, transport: flag, help: flag } as const;

/** A mutant breaks a rule of one kind. */
const kindOf = (mutant: string | undefined): Of | undefined =>
  mutant === undefined ? undefined : (MUTANTS.find(({ name }) => name === mutant)?.hunt?.of ?? "mutex");

async function main(): Promise<void> {
  const { values } = parseArgs({ options });
  if (values.help) return console.log(USAGE);
  const first = Number(values.seed ?? "1");
  const count = Number(values.seeds ?? (values.seed === undefined ? "100" : "1"));
  const of = SUBJECTS.find((each) => each === values.of) ?? kindOf(values.mutant);
  const choice = { of, transport: values.transport };
  const build = await (values.mutant === undefined ? sources() : mutantOf(values.mutant));
  const total = { seeds: 0, steps: 0, largest: 0, rejected: 0 };
  Error.stackTraceLimit = 0;
  for (let seed = first; seed < first + count; seed++) {
    const traced = tracedSetting(String(seed), choice);
    const { steps, largest, rejected } = await tracedRun(String(seed), build, choice);
    total.seeds++;
    total.steps += steps;
    total.largest = Math.max(total.largest, largest);
    console.log(`seed ${seed}, ${traced.of}: ${steps} steps, at most ${largest} states`);
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
