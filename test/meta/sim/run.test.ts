import { describe, expect, it } from "vitest";
import { judge } from "../../lab/checker/judge.js";
import { MUTANT_HUNTS } from "../../sim/bugs/hints.js";
import { settingOf, type Hints } from "../../sim/bugs/hunt.js";
import { mutantOf, sources } from "../../sim/run/build.js";
import { runLive } from "../../sim/run/live.js";
import { runSim } from "../../sim/run/sim-run.js";
import { swarmOf } from "../../sim/run/swarm.js";
import { FOUND } from "./found-seeds.js";

const SEEDS = Array.from({ length: 5 }, (_, n) => String(n + 1));

const build = await sources();
const runOf = (seed: string) => runSim({ ...swarmOf(seed), build });

describe("a simulated run", { timeout: 120_000 }, () => {
  it.each(SEEDS)("of seed %s breaks none of the lab's invariants", async (seed) => {
    const { run } = await runOf(seed);
    expect(judge(run).violations).toEqual({});
  });

  it.each(FOUND)("of seed $setting.seed breaks none any more: $what", async ({ setting }) => {
    const { run } = await runSim({ ...setting, build });
    expect(judge(run).violations).toEqual({});
  });

  it("is the same for the same seed, and another one for another seed", async () => {
    const [one, again, other] = [await runOf("3"), await runOf("3"), await runOf("4")];
    expect(again).toEqual(one);
    expect(again.hash).toBe(one.hash);
    expect(other.hash).not.toBe(one.hash);
  });

  it("is the same when it is judged while it runs", async () => {
    const { result, verdict, noticedAtMs } = await runLive({ ...swarmOf("3"), build }, 500);
    expect(result.hash).toBe((await runOf("3")).hash);
    expect([verdict.violations, noticedAtMs]).toEqual([{}, undefined]);
  });

  it("ends at the first violation when it is judged while it runs", async () => {
    const { hints } = MUTANT_HUNTS["one-permit-too-many"] as { hints: Hints };
    const setting = { ...settingOf(1, hints), build: await mutantOf("one-permit-too-many") };
    const { result, verdict, noticedAtMs } = await runLive(setting, 100);
    const whole = await runSim(setting);
    expect(Object.keys(verdict.violations)).toEqual(["I2"]);
    expect(noticedAtMs).toBeLessThan(whole.virtualMs);
    expect(result.run.history.length).toBeLessThan(whole.run.history.length);
  });
});
