import { describe, expect, it } from "vitest";
import { mutantOf, sources } from "../../sim/run/build.js";
import { runSim } from "../../sim/run/sim-run.js";
import { tracedRun, tracedSetting } from "../../sim/trace/traced-run.js";

const SEEDS = Array.from({ length: 3 }, (_, n) => String(n + 1));

const build = await sources();

describe("the trace of a simulated run of mutexes", { timeout: 120_000 }, () => {
  it.each(SEEDS)("is a path of the model: seed %s", async (seed) => {
    const { steps, rejected } = await tracedRun(seed, build);
    expect(rejected).toBeUndefined();
    expect(steps).toBeGreaterThan(500);
  });

  it("is recorded without a change of the run", async () => {
    const { result } = await tracedRun("1", build);
    const { hash } = await runSim({ ...tracedSetting("1"), build });
    expect(result.hash).toBe(hash);
  });

  it.each([
    ["unguarded-release", 1, /sends the unknown of .*: no such transaction/],
    ["try-without-range", 1, /is granted its hold/],
    ["read-before-watch", 1, /is granted its hold/],
    ["header-revision", 2, /is read for a place created at \d+, which never was/],
    ["one-name-in-one-batch", 2, /has two transactions of the queue/],
  ])("is no path of the model if a rule is broken: %s", async (name, seed, said) => {
    const { rejected } = await tracedRun(String(seed), await mutantOf(name));
    expect(rejected).toMatch(said);
  });
});
