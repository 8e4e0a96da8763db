import { execFile } from "node:child_process";
import { promisify } from "node:util";
import { describe, expect, it } from "vitest";
import { sources } from "../../sim/run/build.js";
import { runLive } from "../../sim/run/live.js";
import { runSim } from "../../sim/run/sim-run.js";
import { shortOf } from "../../sim/run/swarm.js";

const build = await sources();
const runOf = (seed: string) => runSim({ ...shortOf(seed), build });

describe("a simulated run", { timeout: 120_000 }, () => {
  it("is the same for the same seed, and another one for another seed", async () => {
    const [one, again, other] = [await runOf("3"), await runOf("3"), await runOf("4")];
    expect(again).toEqual(one);
    expect(again.hash).toBe(one.hash);
    expect(other.hash).not.toBe(one.hash);
  });

  it("is the same when it is judged while it runs, and in the bundle of the program", async () => {
    const { hash } = await runOf("3");
    const { result, verdict, noticedAtMs } = await runLive({ ...shortOf("3"), build }, 500);
    expect([result.hash, verdict.violations, noticedAtMs]).toEqual([hash, {}, undefined]);
    const command = ["scripts/bundled.js", "test/sim/run/main.ts", "--short", "--seed", "3"];
    const { stdout } = await promisify(execFile)(process.execPath, command);
    expect(stdout).toContain(`seed 3: hash ${hash}`);
  });
});
