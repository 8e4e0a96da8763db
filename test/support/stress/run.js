// node test/support/stress/run.js [--seed S] [--time SECONDS] [--members 1|3] [--workers N] [--ttl SECONDS] [--keep DIR]
// Replays the schedule of a seed, or makes one up; exit code 1 = an invariant was broken.
import { parseArgs } from "node:util";
import { runStress } from "./stress.js";

const { values } = parseArgs({
  options: {
    seed: { type: "string", default: process.env["LEASEHOLD_SEED"] ?? String(Date.now() % 1e6) },
    time: { type: "string", default: "60" },
    members: { type: "string", default: "3" },
    workers: { type: "string", default: "4" },
    ttl: { type: "string", default: "3" },
    keep: { type: "string", default: "" },
  },
});

console.log(`seed ${values.seed}, ${values.members} member(s), ${values.time} s`);
const { violations, soft, overlapMs, counts } = await runStress({
  seed: values.seed,
  seconds: Number(values.time),
  members: values.members === "1" ? 1 : 3,
  workers: Number(values.workers),
  ttlSeconds: Number(values.ttl),
  keep: values.keep,
  say: (line) => console.log(`  ${line}`),
});
console.log(counts);
console.log(`claims overlapped for ${overlapMs} ms`);
for (const sentence of soft) console.log(`told, not judged: ${sentence}`);
for (const [label, sentences] of Object.entries(violations)) {
  console.log(`${label} BROKEN ${sentences.length} time(s):`);
  for (const sentence of sentences.slice(0, 20)) console.log(`  ${sentence}`);
}
const good = Object.keys(violations).length === 0;
console.log(
  good
    ? "no invariant broken"
    : `replay: --seed ${values.seed} --time ${values.time} --members ${values.members}`,
);
process.exitCode = good ? 0 : 1;
