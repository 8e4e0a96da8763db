import { readFileSync } from "node:fs";
import { describe, expect, it } from "vitest";
import { patched } from "../../lab/mutants/build.js";
import { PARTS } from "../../lab/mutants/parts.js";
import { MUTANTS } from "../../lab/mutants/table.js";
import { tierOf } from "../../lab/tiers/index.js";

describe("a mutant", () => {
  const patch = { file: "a.js", from: "one", to: "two" };

  it("is the exact text replaced once", () => {
    expect(patched("x one y", patch, "m")).toBe("x two y");
  });

  it("that no longer applies, or in more than one place, is refused by name", () => {
    expect(() => patched("x", patch, "m")).toThrow(/mutant m: .* a\.js is not there/);
    expect(() => patched("one one", patch, "m")).toThrow(/mutant m: .* a\.js is there 2 times/);
  });

  it.each(MUTANTS)("$name applies to the present build", ({ name, patches }) => {
    for (const patch of patches) {
      const file = new URL(`../../../dist/${patch.file}`, import.meta.url);
      expect(() => patched(readFileSync(file, "utf8"), patch, name)).not.toThrow();
    }
  });

  it.each(Object.entries(PARTS))("the build without %s can be made", (part, patches) => {
    for (const patch of patches) {
      const file = new URL(`../../../dist/${patch.file}`, import.meta.url);
      expect(() => patched(readFileSync(file, "utf8"), patch, part)).not.toThrow();
    }
  });

  it.each(MUTANTS)("$name is hunted by faults that its tier has", ({ hunt }) => {
    const known = tierOf(hunt.tier).faults.map(({ name }) => name);
    expect(known).toEqual(expect.arrayContaining([...(hunt.faults ?? [])]));
  });
});
