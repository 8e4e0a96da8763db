// Faults of etcd's members in whole runs, which the lab's rules judge.
import { describe, expect, it } from "vitest";
import { judge } from "../../../lab/checker/judge.js";
import { sources } from "../../../sim/run/build.js";
import { MEMBER_FAULTS } from "../../../sim/run/member-faults.js";
import { runSim, type SimOptions } from "../../../sim/run/sim-run.js";

const build = await sources();

const BUSY: Omit<SimOptions, "seed" | "faults" | "build"> = {
  ...{ version: "3.6", of: "mutex", ttlSeconds: 3, members: 3 },
  ...{ processes: 2, lanes: 2, names: 1, camp: 0.2, calls: 60, seconds: 60, gapMs: [200, 2000] },
};

/** Holders make no calls: only their streams can notice that a member is cut off. */
const PATIENT: Omit<SimOptions, "build"> = {
  ...{ seed: "6", version: "3.6", of: "mutex", ttlSeconds: 120, members: 3 },
  ...{ processes: 6, lanes: 1, names: 12, camp: 1, calls: 100, seconds: 60, gapMs: [50, 200] },
  faults: ["delete-key", "isolate-follower"],
};

describe("a run with three members", { timeout: 120_000 }, () => {
  it.each(MEMBER_FAULTS.map(({ name }) => name))("breaks no invariant under %s", async (fault) => {
    const { run } = await runSim({ ...BUSY, seed: "members", faults: [fault], build });

    expect(judge(run).violations).toEqual({});
    expect(run.history.some((step) => step.k === "nemesis" && step.fault === fault)).toBe(true);
  });

  it("breaks none with holders that only listen", async () => {
    const { run } = await runSim({ ...PATIENT, build });

    expect(judge(run).violations).toEqual({});
  });

  it("does so if streams do not require a leader", async () => {
    const { run } = await runSim({ ...PATIENT, build: { ...build, requiresLeader: false } });

    expect(Object.keys(judge(run).violations)).toContain("I1");
  });

  it("is the same for the same seed", async () => {
    const faults = MEMBER_FAULTS.map(({ name }) => name);
    const runOf = () => runSim({ ...BUSY, seed: "again", faults, build });
    const [one, again] = [await runOf(), await runOf()];

    expect(again.hash).toBe(one.hash);
  });
});
