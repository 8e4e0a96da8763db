// `docs/conformance/web-locks.md` maps the steps of the standard to the tests: it must name only what exists.
import { describe, expect, it } from "vitest";
import { isThere, namedIn, readConformance, rowsOf } from "../../support/fixtures/named-tests.js";

describe("the table of the standard's steps", () => {
  const text = readConformance("web-locks.md");
  const rows = rowsOf(text);

  it("has what each step asks for, and a test, or a reason why it does not apply", () => {
    const flawed = rows.filter(
      ([step, asks, ours = ""]) =>
        !step || !asks || (namedIn(ours).length === 0 && !/^does not apply: \w.{10,}/.test(ours)),
    );

    expect(rows.length).toBeGreaterThan(50);
    expect(flawed).toEqual([]);
  });

  it("names only tests that are there", () => {
    const named = rows.flatMap(([, , ours = ""]) => namedIn(ours));

    expect(named.filter((each) => !isThere(each))).toEqual([]);
  });

  it("has a test for each difference from the standard", () => {
    const differences = rowsOf(text.slice(text.indexOf("## What differs")));

    expect(differences.length).toBeGreaterThan(10);
    expect(differences.filter(([, , ours = ""]) => namedIn(ours).length === 0)).toEqual([]);
  });
});
