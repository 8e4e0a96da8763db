// Holders that only listen, while a member is cut off. All faults of members are in the runs of seeds.test.ts.
import { describe, expect, it } from "vitest";
import { judge } from "../../../lab/checker/judge.js";
import { sources } from "../../../sim/run/build.js";
import { runSim, type SimOptions } from "../../../sim/run/sim-run.js";

const build = await sources();

/** Holders make no calls: only their streams can notice that a member is cut off. */
const PATIENT: Omit<SimOptions, "build"> = {
  ...{ seed: "6", version: "3.6", of: "mutex", ttlSeconds: 120, members: 3 },
  ...{ processes: 6, lanes: 1, names: 12, camp: 1, calls: 100, seconds: 60, gapMs: [50, 200] },
  faults: ["delete-key", "isolate-follower"],
};

describe("a run with three members whose holders only listen", { timeout: 120_000 }, () => {
  it("breaks no invariant", async () => {
    const { run } = await runSim({ ...PATIENT, build });

    expect(judge(run).violations).toEqual({});
  });

  it("does so if streams do not require a leader", async () => {
    const { run } = await runSim({ ...PATIENT, build: { ...build, requiresLeader: false } });

    expect(Object.keys(judge(run).violations)).toContain("I1");
  });
});
