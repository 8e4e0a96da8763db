import { execFile } from "node:child_process";
import { promisify } from "node:util";
import { expect, it } from "vitest";
import { BUSY_FAULTS, SIM_FAULTS } from "../../sim/run/faults.js";
import { TRANSPORT_FAULTS } from "../../sim/run/transport-faults.js";

/** `.ci/run` runs others, and more. */
const SEEDS = 500;

it(`${SEEDS} short runs, with faults, break none of the lab's invariants`, async () => {
  const seeds = ["--short", "--seeds", String(SEEDS), "--jobs", "2"];
  const command = [
    ...["--max-semi-space-size=64", "--always-sparkplug", "--no-allocation-site-pretenuring"],
    // On Node.js 20, compilation takes a fifth of a run of this length. With less inlining, the run is 6 % faster.
    "--max-inlined-bytecode-size-cumulative=200",
    ...["scripts/bundled.js", "test/sim/run/main.ts"],
  ];
  const { stdout } = await promisify(execFile)(process.execPath, [...command, ...seeds]).catch(
    // It has found something: what it prints tells how to replay it.
    (error: { stdout: string }) => error,
  );

  expect(stdout).toMatch(new RegExp(`^all 2 parts, seeds 1 to ${SEEDS}: 0 broken; `, "m"));
  const parts = [
    ...stdout.matchAll(/ 0 broken; \d+ calls to etcd and ([\d.]+) faults a run, of (\d+) kinds; /g),
  ];
  const most = SIM_FAULTS.length - TRANSPORT_FAULTS.length - BUSY_FAULTS.length;
  expect(parts.map(([, , kinds]) => Number(kinds))).toEqual([most, most]);
  for (const [, faults] of parts) expect(Number(faults)).toBeGreaterThan(5);
}, 600_000);
