// Runs the examples with a scheduler, node-cron and croner, in three replicas whose clocks differ, and kills them at random.
// `--ticks N`: ticks of each scheduler, 1000 unless told; `--seed N`: of the kills. Prints how many ticks were run once, run
// twice (none may be), lost and told to later callers, and lost and not told (none may be).
import { parseArgs } from "node:util";
import { runVitest } from "./vitest-run.js";

const { ticks, seed } = parseArgs({
  options: {
    ticks: { type: "string", default: "1000" },
    seed: { type: "string", default: String(Date.now() % 1e9) },
  },
}).values;
for (const [name, text] of Object.entries({ ticks, seed }))
  if (!/^[1-9]\d*$/.test(text)) throw new RangeError(`--${name} must be a positive number, got "${text}"`);
console.log(`${ticks} ticks of each scheduler, seed ${seed}.`);
const env = { LEASEHOLD_ONCE_TICKS: ticks, LEASEHOLD_ONCE_SEED: seed };
process.exitCode = await runVitest("test/meta/examples/once-schedulers.test.ts", { env });
