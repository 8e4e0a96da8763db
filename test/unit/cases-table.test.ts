// `test/cases.md` maps the cases of other suites to ours: it must not name what is not there.
import { readdirSync, readFileSync } from "node:fs";
import path from "node:path";
import { fileURLToPath } from "node:url";
import { describe, expect, it } from "vitest";

const TEST = fileURLToPath(new URL("../", import.meta.url));
const OWN_CASES = "integration/cases";

const read = (file: string) => readFileSync(path.join(TEST, file), "utf8");
const escaped = (text: string) => text.replace(/[.*+?^${}()|[\]\\]/g, "\\$&");

interface Named {
  readonly file: string;
  readonly title: string;
}

/** The cells of every row, without the heads of the tables. */
function rowsOf(markdown: string): string[][] {
  const lines = markdown.split("\n").filter((line) => line.startsWith("|"));
  const rows = lines.map((line) =>
    line
      .split("|")
      .slice(1, -1)
      .map((cell) => cell.trim()),
  );
  return rows.filter(([first, , ours]) => ours !== "ours" && !/^-+$/.test(first ?? ""));
}

/** A file in backticks and the titles in quotes behind it. */
function namedIn(cell: string): Named[] {
  const named: Named[] = [];
  let file = "";
  for (const [, inBackticks, title] of cell.matchAll(/`([\w/.-]+\.test\.ts)`|"([^"]+)"/g)) {
    if (inBackticks) file = inBackticks;
    else if (file && title) named.push({ file, title });
  }
  return named;
}

/** What a cell of the last column owes. */
function flawOf(cell: string): string | undefined {
  if (cell === "") return "is empty";
  if (namedIn(cell).length > 0 || /^comes with \w/.test(cell)) return undefined;
  return /^does not apply: \w.{10,}/.test(cell) ? undefined : "names no test and gives no reason";
}

const titledIn = (source: string, title: string) => new RegExp(`\\(\\s*"${escaped(title)}",`).test(source);

function isThere({ file, title }: Named): boolean {
  try {
    return titledIn(read(file), title);
  } catch {
    return false;
  }
}

/** The titles of the tests in a file. */
function titlesOf(file: string): string[] {
  const calls = read(file).matchAll(/\btest(?:\.(?:each|for)\([^]*?\))?\(\s*"([^"]+)",/g);
  return [...calls].map(([, title]) => title!);
}

describe("the table of cases", () => {
  const rows = rowsOf(read("cases.md"));
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
