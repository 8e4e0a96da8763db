import { describe, expect, it } from "vitest";
import { judge } from "../../lab/checker/judge.js";
import type { Mutant } from "../../lab/mutants/mutant.js";
import { buildOf, sources, type Build } from "../../sim/run/build.js";
import { runSim, type SimOptions, type SimResult } from "../../sim/run/sim-run.js";

/** The machines of holders sleep, often for longer than a TTL, and some have no network when they wake up. */
const SETTING: Omit<SimOptions, "build" | "seed"> = {
  ...{ version: "3.6", of: "mutex", ttlSeconds: 2, processes: 3, lanes: 2, names: 1, camp: 1, members: 1 },
  ...{ calls: 200, seconds: 40, gapMs: [200, 2000], faults: ["suspend-holder", "link-blackhole"] },
};
const runOf = (build: Build): Promise<SimResult> => runSim({ ...SETTING, seed: "2", build });

describe("a holder whose machine is suspended", { timeout: 60_000 }, () => {
  it("claims nothing after its lease has expired", async () => {
    const { run } = await runOf(await sources());

    expect(judge(run).violations).toEqual({});
    const suspends = run.history.filter((step) => step.k === "nemesis" && step.suspends && step.on);
    expect(suspends.length).toBeGreaterThan(3);
    expect(
      run.history.filter((step) => step.k === "end" && step.reason !== "released").length,
    ).toBeGreaterThan(2);
  });

  it("claims to hold a lost lock in a build that ignores the clock that counts suspend", async () => {
    const ignorant: Pick<Mutant, "name" | "patches"> = {
      name: "suspend-not-counted",
      patches: [
        {
          file: "lock/session/lease.js",
          from: '>= renewal.ttlMs * USED_PART ? "doubtful" : "held";',
          to: '>= Infinity ? "doubtful" : "held";',
        },
      ],
    };
    const { run } = await runOf(await buildOf(ignorant));

    expect(Object.keys(judge(run).violations)).toEqual(expect.arrayContaining(["I1", "I9"]));
  });
});
