import { readFileSync } from "node:fs";
import { describe, expect, it } from "vitest";
import { patched } from "../../lab/mutants/build.js";
import { PARTS } from "../../lab/mutants/parts.js";
import { MUTANTS } from "../../lab/mutants/table.js";
import { tierOf } from "../../lab/tiers/index.js";

const builtFile = (file: string) => readFileSync(new URL(`../../../dist/${file}`, import.meta.url), "utf8");

describe("a patch", () => {
  it.each([...MUTANTS.map(({ name, patches }) => [name, patches] as const), ...Object.entries(PARTS)])(
    "%s applies to the present build in one place",
    (name, patches) => {
      for (const patch of patches) expect(() => patched(builtFile(patch.file), patch, name)).not.toThrow();
    },
  );

  it("that no longer applies, or in more than one place, is refused", () => {
    const patch = { file: "a.js", from: "one", to: "two" };
    expect(patched("x one y", patch, "m")).toBe("x two y");
    for (const text of ["x", "one one"]) expect(() => patched(text, patch, "m")).toThrow(/mutant m: /);
  });
});

it("each mutant is hunted by faults that its tier has", () => {
  for (const { name, hunt } of MUTANTS) {
    if (hunt === undefined) continue;
    const known = tierOf(hunt.tier).faults.map((fault) => fault.name);
    expect(known, name).toEqual(expect.arrayContaining([...(hunt.faults ?? [])]));
  }
});
