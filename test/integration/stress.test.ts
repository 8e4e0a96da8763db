import { mkdtempSync, rmSync } from "node:fs";
import os from "node:os";
import path from "node:path";
import { describe, expect, it } from "vitest";
import { runStress } from "../support/stress/stress.js";

const seed = process.env["LEASEHOLD_SEED"] ?? String(Date.now() % 1e6);

/** Runs it, prints what a replay needs, and keeps the journals of a run that broke an invariant. */
async function stress(members: 1 | 3, seconds: number) {
  const keep = mkdtempSync(path.join(os.tmpdir(), "leasehold-history-"));
  const replay = `node test/support/stress/run.js --seed ${seed} --time ${seconds} --members ${members}`;
  console.log(`stress, seed ${seed}; replay: ${replay}`);
  const report = await runStress({ seed, seconds, members, keep });
  console.log(
    JSON.stringify(report.counts),
    `claims overlapped for ${report.overlapMs} ms`,
    ...report.soft.map((sentence) => `\n  told, not judged: ${sentence}`),
  );
  if (Object.keys(report.violations).length === 0) rmSync(keep, { recursive: true });
  return { ...report, replay, history: keep };
}

describe.each([
  { members: 1, seconds: 22 },
  { members: 3, seconds: 30 },
] as const)("processes that are killed and stopped, on an etcd of $members that is too", (size) => {
  it(
    "never hold together, lose no update, wake-up or order, and leave nothing behind",
    async () => {
      const { violations, replay, history } = await stress(size.members, size.seconds);

      expect(violations, `${replay} (history in ${history})`).toEqual({});
    },
    (size.seconds + 90) * 1000,
  );
});
