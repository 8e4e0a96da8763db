import { readFileSync } from "node:fs";
import { describe, expect, it } from "vitest";
import { patched } from "../../lab/mutants/build.js";
import { MUTANTS } from "../../lab/mutants/table.js";
import { MUTANT_HUNTS, UNSIMULATED } from "../../sim/bugs/hints.js";
import { brokenIn, replayed, type Ground, type Hints } from "../../sim/bugs/hunt.js";
import { BUGS } from "../../sim/bugs/table.js";
import { runWorkload, WORKLOADS, type WorkloadName } from "../../sim/bugs/workloads/index.js";
import { buildOf, mutantOf, sources } from "../../sim/run/build.js";
import { SIM_FAULTS } from "../../sim/run/faults.js";
import { runSim } from "../../sim/run/sim-run.js";
import { shortOf } from "../../sim/run/swarm.js";

const faultsOf = (ground: object): readonly string[] =>
  "hints" in ground ? ((ground as { hints: Hints }).hints.faults ?? []) : [];

it.each(BUGS)("the bug $name is put back by text that is in the present build", ({ name, patches }) => {
  expect(patches).not.toEqual([]);
  for (const patch of patches) {
    const text = readFileSync(new URL(`../../../dist/${patch.file}`, import.meta.url), "utf8");
    expect(patched(text, patch, name)).not.toBe(text);
  }
});

it("bugs and mutants are looked for with faults that the simulation has", () => {
  const named = [...Object.keys(MUTANT_HUNTS), ...UNSIMULATED];
  expect(named.sort()).toEqual(MUTANTS.map(({ name }) => name).sort());
  const known = SIM_FAULTS.map(({ name }) => name);
  for (const ground of [...BUGS.map((bug) => bug.ground), ...Object.values(MUTANT_HUNTS)])
    expect(known).toEqual(expect.arrayContaining([...faultsOf(ground)]));
});

it("a build without patches runs exactly as the sources do", async () => {
  const builds = [await sources(), await buildOf({ name: "bug-none", patches: [] })];
  const runs = await Promise.all(builds.map((build) => runSim({ ...shortOf("1"), build })));
  expect(runs[1]!.hash).toBe(runs[0]!.hash);
});

it.each(Object.keys(WORKLOADS) as WorkloadName[])(
  "the workload %s breaks no promise of the sources",
  async (name) => {
    expect(await runWorkload(name, 1, await sources())).toEqual(new Map());
  },
);

describe("a hunt", () => {
  const huntFor = async (name: string) => ({
    build: await mutantOf(name),
    ground: MUTANT_HUNTS[name] as Ground,
  });

  it("finds the mutant again in each replay", async () => {
    const hunt = await huntFor("retry-taken-for-loss");
    const found = await brokenIn(hunt, 1);
    expect(found.broken).toEqual(["I11"]);
    expect(await replayed(hunt, found, 2)).toBe(2);
    expect(await replayed(hunt, { ...found, example: "another sentence" }, 1)).toBe(0);
  });

  it("goes by the mutant's own rules for etcd's rejections", async () => {
    const hunt = await huntFor("rejection-never-executed");
    expect((await brokenIn(hunt, 1)).broken).toEqual(["a rejected call leaves the queue"]);
  });
});
