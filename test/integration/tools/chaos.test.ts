import { mkdtempSync, rmSync } from "node:fs";
import os from "node:os";
import path from "node:path";
import { describe, expect, it } from "vitest";
import { judge } from "../../lab/checker/judge.js";
import { runLab } from "../../lab/runner/lab.js";
import { tierOf } from "../../lab/tiers/index.js";

const seed = process.env["LEASEHOLD_SEED"] ?? String(Date.now() % 1e6);

describe.each([
  { tier: "t1", seconds: 8 },
  { tier: "t2", seconds: 8 },
] as const)(
  "processes that are killed, stopped and cut off, in tier $tier of the lab",
  ({ tier, seconds }) => {
    it(
      "never hold together unexcused, lose no update, wake-up or order, and leave nothing behind",
      async () => {
        const keep = mkdtempSync(path.join(os.tmpdir(), "leasehold-history-"));
        const replay = `npm run chaos -- --tier ${tier} --seed ${seed} --time ${seconds}`;
        const { run } = await runLab({ tier: tierOf(tier), seed, seconds, keep });

        const { violations, figures } = judge(run);
        console.log([`${tier}, seed ${seed}; replay: ${replay}`, ...figures.lines()].join("\n  "));

        expect(violations, `${replay} (history in ${keep})`).toEqual({});
        rmSync(keep, { recursive: true });
      },
      (seconds + 120) * 1000,
    );
  },
);
