import { mkdtempSync, rmSync } from "node:fs";
import os from "node:os";
import path from "node:path";
import { expect, it } from "vitest";
import { judge } from "../../lab/checker/judge.js";
import { runLab } from "../../lab/runner/lab.js";
import { tierOf } from "../../lab/tiers/index.js";

const SECONDS = 8;
const CROWD = { workers: 2, lanes: 12, names: 12, nested: true };
const seed = process.env["LEASEHOLD_SEED"] ?? String(Date.now() % 1e6);

it(
  "calls that share requests hold as one by one: never together unexcused, and nothing is lost or left, whatever breaks",
  { timeout: (SECONDS + 120) * 1000 },
  async () => {
    const keep = mkdtempSync(path.join(os.tmpdir(), "leasehold-history-"));
    const crowd = "--workers 2 --lanes 12 --names 12 --nested";
    const replay = `npm run chaos -- --tier t1 --seed ${seed} --time ${SECONDS} ${crowd}`;
    const { run } = await runLab({ tier: tierOf("t1"), seed, seconds: SECONDS, keep, ...CROWD });

    const { violations, figures } = judge(run);
    console.log([`seed ${seed}; replay: ${replay}`, ...figures.lines()].join("\n  "));

    expect(violations, `${replay} (history in ${keep})`).toEqual({});
    expect(figures.batches.count).toBeGreaterThan(0);
    rmSync(keep, { recursive: true });
  },
);
