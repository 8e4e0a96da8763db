import { readFileSync, writeFileSync } from "node:fs";
import { between, markdownTable } from "../../support/fixtures/markdown.js";
import { MUTANTS } from "../../lab/mutants/table.js";
import type { Found } from "./hunt.js";

/** What the search for a mutant has found. */
export interface Result {
  readonly found: Found | undefined;
  /** Of one core. */
  readonly seconds: number;
  readonly replays?: { readonly same: number; readonly of: number };
}

const PAGE = new URL("mutants.md", import.meta.url);
const LAB = new URL("../../lab/README.md", import.meta.url);

/** The columns of a mutant: found by, seconds, replayed. */
function columns({ found, seconds, replays }: Result): readonly string[] {
  const by = found ? `seed ${found.seed}: ${found.broken.join(", ")}` : "not found";
  return [by, seconds.toFixed(1), replays ? `${replays.same} of ${replays.of}` : ""];
}

export const rowOf = (name: string, result: Result): string =>
  `| ${[name, ...columns(result)].join(" | ")} |`;

const cellsOf = (line: string): readonly string[] => line.split("|").map((cell) => cell.trim());

/** In the table of the lab: what was broken, and after how long. */
function labColumns(lines: readonly string[], name: string): readonly string[] {
  const [, , , , broken = "", after = ""] = cellsOf(lines.find((line) => cellsOf(line)[1] === name) ?? "");
  return [broken, after];
}

const HEAD = ["mutant", "found by", "seconds", "replayed", "lab", "after"];

/** Between the two marks of the page; a mutant that was not looked for keeps its row. */
export function writeTable(results: ReadonlyMap<string, Result>): void {
  const text = readFileSync(PAGE, "utf8");
  const old = text.split("\n").map((line) => cellsOf(line).slice(1, -1));
  const lab = readFileSync(LAB, "utf8").split("\n");
  const rows = MUTANTS.flatMap(({ name }) => {
    const result = results.get(name);
    if (result === undefined) return old.filter(([first]) => first === name);
    return [[name, ...columns(result), ...labColumns(lab, name)]];
  });
  writeFileSync(PAGE, between(text, "mutants", markdownTable([HEAD, ...rows])));
}
