// docs/architecture.md and the README of each folder of src/ must name only what exists.
import { existsSync, readFileSync } from "node:fs";
import path from "node:path";
import { fileURLToPath } from "node:url";
import { describe, expect, it } from "vitest";
import { filesOf, folderOf, SRC } from "../../../scripts/imports.js";
import { withPicture } from "../../../scripts/picture.js";
import { RULE_NAMES, RULES } from "../../lab/model/rules.js";
import { MUTANTS } from "../../lab/mutants/table.js";
import { misplacedIn, missingIn, spansOf } from "../../support/fixtures/named-code.js";
import { isThere, namedIn, rowsOf } from "../../support/fixtures/named-tests.js";

const ROOT = fileURLToPath(new URL("../../../", import.meta.url));
const page = readFileSync(path.join(ROOT, "docs/architecture.md"), "utf8");
const folders = [...new Set(filesOf().map(folderOf))].filter(
  (folder) => folder !== "" && existsSync(path.join(SRC, folder, "README.md")),
);

/** The names after the word `kind`, or its plural, in the table of invariants. */
const called = (kind: string) =>
  [...page.matchAll(new RegExp(`\\b${kind}s? (\`[\\w-]+\`(?:, \`[\\w-]+\`)*)`, "g"))].flatMap(([, names]) =>
    spansOf(names!),
  );

describe("docs/architecture.md", () => {
  it("has the present picture of the folders: `npm run picture` draws it", () => {
    expect(withPicture(page)).toBe(page);
  });

  it("names files, types, members and constants that are there", () => {
    expect(missingIn(page)).toEqual([]);
  });

  it("names functions with the file that has them", () => {
    expect(misplacedIn(page)).toEqual([]);
  });

  it("names tests, mutants and rules of the model that are there", () => {
    const mutants = MUTANTS.map(({ name }) => name);
    const titles = [...page.matchAll(/`[\w/.-]+\.test\.ts` "[^"]+"/g)].flatMap(([text]) => namedIn(text));
    const rules: readonly string[] = RULE_NAMES;

    expect(titles.filter((each) => !isThere(each))).toEqual([]);
    expect(called("mutant").filter((name) => !mutants.includes(name))).toEqual([]);
    expect(called("rule").filter((name) => !rules.includes(name))).toEqual([]);
    expect(titles.length).toBeGreaterThan(0);
    expect(called("mutant").length).toBeGreaterThan(5);
  });

  it("has rules of the model that name files of src/", () => {
    const files = RULE_NAMES.map((name) => RULES[name].where);

    expect(files.filter((file) => !existsSync(path.join(SRC, file)))).toEqual([]);
  });

  it("says of each invariant what keeps it, and what would see it broken", () => {
    const rows = rowsOf(page.slice(page.indexOf("## Invariants"))).filter(([name]) => name !== "invariant");
    const flawed = rows.filter(
      ([, keptBy = "", seenBy = ""]) => !/`[\w/-]+\.ts` `/.test(keptBy) || !/`[\w/.-]+`/.test(seenBy),
    );

    expect(rows.length).toBeGreaterThan(12);
    expect(flawed).toEqual([]);
  });
});

describe.each(folders)("the README of src/%s", (folder) => {
  const file = path.join(SRC, folder, "README.md");
  const readme = readFileSync(file, "utf8");
  /** The paragraph or list that starts with that word in bold. */
  const part = (title: string) =>
    new RegExp(`^\\*\\*${title}:\\*\\*[^]*?(?=^\\*\\*|(?![^]))`, "m").exec(readme)?.[0] ?? "";

  it("names tests that are there", () => {
    const tests = spansOf(part("Tests")).filter((span) => span.startsWith("test/"));
    expect(tests.length).toBeGreaterThan(0);
    expect(tests.filter((test) => !existsSync(path.join(ROOT, test)))).toEqual([]);
  });

  it("names files, types, members and constants that are there", () => {
    expect(missingIn(readme, folder)).toEqual([]);
    expect(misplacedIn(readme, folder)).toEqual([]);
  });
});
