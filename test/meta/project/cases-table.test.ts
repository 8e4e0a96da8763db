// `docs/conformance/cases.md` maps the test cases of other suites to those of leasehold: it must name only what exists.
import { readdirSync } from "node:fs";
import path from "node:path";
import { fileURLToPath } from "node:url";
import { describe, expect, it } from "vitest";
import {
  isThere,
  namedIn,
  readConformance,
  rowsOf,
  titledIn,
  titlesOf,
} from "../../support/fixtures/named-tests.js";

const TEST = fileURLToPath(new URL("../../", import.meta.url));
const OWN_CASES = "slow/conformance";

/** What is wrong with a cell of the last column. */
function flawOf(cell: string): string | undefined {
  if (cell === "") return "is empty";
  if (namedIn(cell).length > 0 || /^comes with \w/.test(cell)) return undefined;
  return /^does not apply: \w.{10,}/.test(cell) ? undefined : "names no test and gives no reason";
}

describe("the table of cases", () => {
  const rows = rowsOf(readConformance("cases.md"));
  const named = rows.flatMap(([, , ours]) => namedIn(ours ?? ""));

  it("has no empty cell, and a test or a reason in each row", () => {
    const flaws = rows.flatMap(([theirs, asserts, ours = ""]) => {
      const flaw = asserts ? flawOf(ours) : "does not say what it asserts";
      return flaw || !theirs ? [`${theirs}: ${flaw}`] : [];
    });

    expect(rows.length).toBeGreaterThan(200);
    expect(flaws).toEqual([]);
  });

  it("names only tests that are there", () => {
    expect(named.filter((each) => !isThere(each))).toEqual([]);
  });

  it("names every test that was written for it", () => {
    const own = readdirSync(path.join(TEST, OWN_CASES))
      .filter((file) => file.endsWith(".test.ts"))
      .flatMap((file) =>
        titlesOf(`${OWN_CASES}/${file}`).map((title) => ({ file: `${OWN_CASES}/${file}`, title })),
      );

    expect(own.length).toBeGreaterThan(50);
    const missing = own.filter(
      ({ file, title }) => !named.some((it) => it.file === file && it.title === title),
    );
    expect(missing).toEqual([]);
  });
});

describe("the check of the table", () => {
  it.each([
    ["| a case | asserts |  |", "is empty"],
    ["| a case | asserts | somehow tested |", "names no test and gives no reason"],
    ["| a case | asserts | does not apply: |", "names no test and gives no reason"],
    ["| a case | asserts | comes with Election |", undefined],
    ['| a case | asserts | `unit/a.test.ts` "a claim" |', undefined],
  ])("of %j: %s", (row, flaw) => {
    expect(flawOf(rowsOf(row)[0]?.[2] ?? "")).toBe(flaw);
  });

  it("finds each title in its own file, and misses one that is not there", () => {
    const cell = 'partly: `unit/a.test.ts` "one"; "two"; `unit/b.test.ts` "three"';

    expect(namedIn(cell)).toEqual([
      { file: "unit/a.test.ts", title: "one" },
      { file: "unit/a.test.ts", title: "two" },
      { file: "unit/b.test.ts", title: "three" },
    ]);
    expect(titledIn('test(\n  "one (of %i)", () => {})', "one (of %i)")).toBe(true);
    expect(titledIn('// "one" was here\ntest("one more", () => {})', "one")).toBe(false);
    expect(isThere({ file: "unit/no-such.test.ts", title: "one" })).toBe(false);
  });
});
