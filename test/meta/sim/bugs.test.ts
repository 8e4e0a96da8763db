import { execFile } from "node:child_process";
import { readFileSync } from "node:fs";
import { promisify } from "node:util";
import { describe, expect, it } from "vitest";
import { patched } from "../../lab/mutants/build.js";
import { MUTANTS } from "../../lab/mutants/table.js";
import { MUTANT_HUNTS } from "../../sim/bugs/hints.js";
import { settingOf, type Hints } from "../../sim/bugs/hunt.js";
import { BUGS } from "../../sim/bugs/table.js";
import { runWorkload, WORKLOADS, type WorkloadName } from "../../sim/bugs/workloads/index.js";
import { sources } from "../../sim/run/build.js";
import { SIM_FAULTS } from "../../sim/run/faults.js";
import { swarmOf } from "../../sim/run/swarm.js";

const FAULTS = SIM_FAULTS.map(({ name }) => name);
const faultsOf = (ground: object): readonly string[] =>
  "hints" in ground ? ((ground as { hints: Hints }).hints.faults ?? []) : [];

describe("a bug of the repository's history", () => {
  it.each(BUGS)("$name is put back by text that is in the present build", ({ name, patches }) => {
    expect(patches).not.toEqual([]);
    for (const patch of patches) {
      const text = readFileSync(new URL(`../../../dist/${patch.file}`, import.meta.url), "utf8");
      expect(patched(text, patch, name)).not.toBe(text);
    }
  });

  it("has a name of its own, the commit that mended it, and a sentence about what a user lost", () => {
    expect(new Set(BUGS.map(({ name }) => name)).size).toBe(BUGS.length);
    for (const { mended, lost } of BUGS) {
      expect(mended.commit).toMatch(/^[0-9a-f]{7}$/);
      expect(mended.title).toMatch(/^[A-Z].*[^.]$/);
      expect(lost).toMatch(/^[A-Z`].*\.$/);
    }
  });

  it("is looked for with faults that the simulation has", () => {
    for (const { ground } of BUGS) expect(FAULTS).toEqual(expect.arrayContaining([...faultsOf(ground)]));
  });
});

describe("a build", () => {
  it("without patches runs exactly as the sources do", { timeout: 120_000 }, async () => {
    const args = ["scripts/ts.js", "test/sim/bugs/main.ts", "--check"];
    const cwd = new URL("../../../", import.meta.url);
    const { stdout } = await promisify(execFile)(process.execPath, args, { cwd });
    expect(stdout.match(/=/g)).toHaveLength(3);
  });
});

describe("a workload", () => {
  const names = Object.keys(WORKLOADS) as WorkloadName[];

  it.each(names)("%s breaks no promise of the sources", async (name) => {
    const build = await sources();
    for (let seed = 1; seed <= 5; seed++)
      expect([seed, await runWorkload(name, seed, build)]).toEqual([seed, new Map()]);
  });
});

describe("a mutant of the lab", () => {
  it("has a hunt, or a reason why the simulation cannot see it", () => {
    expect(Object.keys(MUTANT_HUNTS).sort()).toEqual(MUTANTS.map(({ name }) => name).sort());
  });

  it.each(MUTANTS)("$name is looked for with faults that the simulation has", ({ name }) => {
    expect(FAULTS).toEqual(expect.arrayContaining([...faultsOf(MUTANT_HUNTS[name]!)]));
  });
});

describe("a directed search", () => {
  it("leaves to the swarm what its hints do not say", () => {
    const swarm = { ...swarmOf("7"), quiet: undefined };
    expect(settingOf(7, {})).toEqual(swarm);
    expect(settingOf(7, { of: "rwlock", camp: 1 })).toEqual({ ...swarm, of: "rwlock", camp: 1 });
  });
});
