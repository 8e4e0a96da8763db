// `npm run sim:bugs` is run by hand: its patches must still apply. What it and the mutants are judged by must not be red by itself.
import { readFileSync } from "node:fs";
import { expect, it } from "vitest";
import { patched } from "../../lab/mutants/build.js";
import { MUTANTS } from "../../lab/mutants/table.js";
import { MUTANT_HUNTS, UNSIMULATED } from "../../sim/bugs/hints.js";
import type { Hints } from "../../sim/bugs/hunt.js";
import { BUGS } from "../../sim/bugs/table.js";
import { runWorkload, WORKLOADS, type WorkloadName } from "../../sim/bugs/workloads/index.js";
import { sources } from "../../sim/run/build.js";
import { SIM_FAULTS } from "../../sim/run/faults.js";

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

it.each(Object.keys(WORKLOADS) as WorkloadName[])(
  "the workload %s breaks no promise of the sources",
  async (name) => {
    expect(await runWorkload(name, 1, await sources())).toEqual(new Map());
  },
);
