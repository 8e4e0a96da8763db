// The figures of a small tree whose counts are known.
import { execFileSync } from "node:child_process";
import { mkdirSync, mkdtempSync, rmSync, writeFileSync } from "node:fs";
import os from "node:os";
import path from "node:path";
import { fileURLToPath } from "node:url";
import { afterAll, beforeAll, describe, expect, it } from "vitest";
import { measure } from "../../../scripts/measure.js";

const SCRIPT = fileURLToPath(new URL("../../../scripts/figures.js", import.meta.url));

/** A function with `lines` lines that count and as many that do not. */
const longFunction = (name: string, lines: number) =>
  [
    `export function ${name}(): void {`,
    ...Array<string>(lines - 2).fill("  // why\n  void 0;"),
    "}",
    "",
  ].join("\n");

const TREE = {
  "index.ts": 'export { b } from "./far/b.js";\nexport { c } from "./far/c.js";\n',
  "near/a.ts": 'import type { B } from "../far/b.js";\nexport const a = (b: B): B => b;\n',
  "far/b.ts": 'import { a } from "../near/a.js";\nexport type B = number;\nexport const b = a(1);\n',
  "far/c.ts": 'import "node:fs";\n' + longFunction("c", 26),
  "far/d.ts": `${longFunction("d", 25)}${"\n".repeat(203)}`,
};

let root: string;
const write = (files: Readonly<Record<string, string>>) => {
  for (const [file, text] of Object.entries(files)) {
    mkdirSync(path.dirname(path.join(root, file)), { recursive: true });
    writeFileSync(path.join(root, file), text);
  }
};

beforeAll(() => {
  root = mkdtempSync(path.join(os.tmpdir(), "leasehold-figures-"));
  write(TREE);
});
afterAll(() => rmSync(root, { recursive: true }));

describe("the figures of a tree", () => {
  it("count its folders, its files and the arrows between them, packages left out", () => {
    const { folders, files, imports, folderArrows } = measure(root);

    expect(folders).toEqual(["far", "near"]);
    expect(files).toEqual(["far/b", "far/c", "far/d", "index", "near/a"]);
    expect(imports.length).toBe(4);
    expect(folderArrows).toEqual(["far -> near", "index -> far", "near -> far"]);
  });

  it("have the circles that only type imports close", () => {
    expect(measure(root).circles).toEqual([["far/b", "near/a"]]);
  });

  it("measure functions without blank lines and comments, and files with them", () => {
    const { functionLengths, fileLengths } = measure(root);
    const lines = Object.fromEntries(functionLengths.map((length) => [length.name, length.lines]));

    expect(lines).toEqual({ "Arrow function": 1, "Function 'c'": 26, "Function 'd'": 25 });
    expect(fileLengths.find(({ file }) => file === "near/a")?.lines).toBe(2);
  });

  it("have no upward imports where the table of layers has other files", () => {
    expect(measure(root).upward).toBeUndefined();
  });

  it("count an import from a higher layer, and one between folders of the same layer", () => {
    const layered = path.join(root, "layered");
    write({
      "layered/keys.ts": 'import type { E } from "./errors.js";\nexport type K = E;\n',
      "layered/errors.ts": "export type E = 1;\n",
      "layered/locks/mutex.ts": 'import "../keys.js";\nimport "../election/lead.js";\n',
      "layered/election/lead.ts": "export {};\n",
    });

    const { upward } = measure(layered);

    rmSync(layered, { recursive: true });
    expect(upward?.map(({ from, to }) => `${from} ${to}`)).toEqual([
      "keys errors",
      "locks/mutex election/lead",
    ]);
  });

  it("are printed one a line, with what is too long below its count", () => {
    const printed = execFileSync(process.execPath, [SCRIPT, root], { encoding: "utf8" });

    expect(printed.split("\n").map((line) => line.trim())).toEqual([
      "2  folders",
      "5  files",
      "4  imports between files",
      "3  import arrows between folders, with each file at the root as a folder",
      "-  upward imports",
      "1  circles of imports, type imports included",
      "2 files: far/b near/a",
      "26  lines in the longest function",
      "far/c.ts:2: Function 'c', 26 lines",
      "1  functions over 25 lines",
      "far/c.ts:2: Function 'c', 26 lines",
      "1  files over 250 lines",
      "far/d.ts:1: File, 251 lines",
      "",
    ]);
  });
});
