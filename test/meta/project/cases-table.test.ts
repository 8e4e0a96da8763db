// `docs/conformance/cases.md` maps the test cases of other suites to those of leasehold: it must name only what exists.
import { readdirSync } from "node:fs";
import path from "node:path";
import { fileURLToPath } from "node:url";
import { describe, expect, it } from "vitest";
import { isThere, namedIn, readConformance, rowsOf, titlesOf } from "../../support/fixtures/named-tests.js";

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
