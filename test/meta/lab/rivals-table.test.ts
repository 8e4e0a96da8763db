import { describe, expect, it } from "vitest";
import { parseOptions } from "../../lab/rivals/options.js";
import type { Finding } from "../../lab/rivals/rules/rule.js";
import { Store } from "../../lab/rivals/store.js";
import { cell, detailsOf, tableOf, type Entry } from "../../lab/rivals/table.js";

const found = (checks: number, ...ms: (number | undefined)[]): Finding => ({
  checks,
  violations: ms.map((length) => ({ text: "both claimed", ...(length !== undefined && { ms: length }) })),
});
const entry = (scenario: string, I1: Finding, subject = "some lock"): Entry => ({
  ...{ subject, scenario, findings: { I1 } },
});

describe("a cell of the table", () => {
  it("counts violations over all scenarios and tells the longest", () => {
    expect(cell([entry("x", found(5, 20)), entry("y", found(5, 1500, 3))], "I1")).toBe(
      "**violated** 3, 1.5 s",
    );
  });

  it("tells no length of what has none, and one that is too short to tell", () => {
    expect(cell([entry("x", found(5, undefined))], "I1")).toBe("**violated** 1");
    expect(cell([entry("x", found(5, 0.2))], "I1")).toBe("**violated** 1, under 1 ms");
  });

  it("says kept only where there was an occasion to break it", () => {
    expect(cell([entry("x", found(5)), entry("y", found(7))], "I1")).toBe("kept (12)");
    expect(cell([entry("x", found(0))], "I1")).toBeUndefined();
    expect(cell([], "I1")).toBeUndefined();
  });

  it("blames nobody for what was not promised", () => {
    const lacking = { ...found(9, undefined, undefined), lacks: "no order promised" };
    expect(cell([entry("x", lacking)], "I1")).toBe("no order promised (2 of 9)");
    expect(cell([entry("x", { ...found(0), lacks: "no token" }), entry("y", found(3))], "I1")).toBe(
      "kept (3)",
    );
  });
});

it("the table has a row for each subject and columns of equal width", () => {
  const lines = tableOf([entry("x", found(5)), entry("x", found(1, 7), "other")], ["some lock", "other"]);
  expect(lines).toHaveLength(4);
  expect(new Set(lines.map(({ length }) => length)).size).toBe(1);
  expect(lines[2]).toMatch(/^\| some lock +\| kept \(5\) /);
  expect(lines[3]).toMatch(/^\| other +\| \*\*violated\*\* 1, 7 ms /);
});

it("the details name scenario, column, what was seen and how long", () => {
  const entries = [
    entry("cut", found(5, 20, 30)),
    entry("plain", found(5)),
    entry("cut", found(1, 1), "other"),
  ];
  expect(detailsOf(entries, "some lock")).toEqual(["cut, exclusion I1: both claimed, 30 ms"]);
});

describe("the options of a comparison", () => {
  const known = { subjects: ["go", "mutex"], scenarios: ["plain", "mixed"] };
  const parse = (...args: string[]) => parseOptions(args, known);

  it("are all subjects and scenarios, unless some are named", () => {
    expect(parse()).toMatchObject(known);
    expect(parse("--only", "go")).toMatchObject({ subjects: ["go"], scenarios: known.scenarios });
    expect(parse("--only", "mixed,go")).toMatchObject({ subjects: ["go"], scenarios: ["mixed"] });
  });

  it("are refused when they name nobody", () => {
    expect(() => parse("--only", "go,elsewhere")).toThrow(/got elsewhere/);
    expect(() => parse("--jobs", "0")).toThrow(RangeError);
  });
});

describe("the shared counter", () => {
  const name = "n";

  it("refuses a token older than one it has seen, be it in a read", () => {
    const store = new Store();
    expect(store.read({ name, token: 5n })).toEqual({ accepted: true, before: 0 });
    expect(store.write({ name, token: 4n }, 1).accepted).toBe(false);
    expect(store.write({ name, token: 5n }, 1).accepted).toBe(true);
    expect(store.read({ name: "other", token: 1n }).accepted).toBe(true);
  });

  it("cannot tell apart who has no token", () => {
    const store = new Store();
    expect(store.write({ name }, 1)).toEqual({ accepted: true, before: 0 });
    expect(store.write({ name }, 1)).toEqual({ accepted: true, before: 1 });
  });
});
