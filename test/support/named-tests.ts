// Tables in Markdown whose last column names tests: by file in backticks, and by the titles in quotes behind it.
import { readFileSync } from "node:fs";
import path from "node:path";
import { fileURLToPath } from "node:url";

const TEST = fileURLToPath(new URL("../", import.meta.url));
const CONFORMANCE = new URL("../../docs/conformance/", import.meta.url);

export interface Named {
  readonly file: string;
  readonly title: string;
}

/** A file below `test/`. */
export const readTest = (file: string) => readFileSync(path.join(TEST, file), "utf8");
/** A page of `docs/conformance/`. */
export const readConformance = (page: string) => readFileSync(new URL(page, CONFORMANCE), "utf8");
const escaped = (text: string) => text.replace(/[.*+?^${}()|[\]\\]/g, "\\$&");

/** The cells of every row, without the heads of the tables, whose last column is `ours`. */
export function rowsOf(markdown: string): string[][] {
  const lines = markdown.split("\n").filter((line) => line.startsWith("|"));
  const rows = lines.map((line) =>
    line
      .split("|")
      .slice(1, -1)
      .map((cell) => cell.trim()),
  );
  return rows.filter((cells) => cells.at(-1) !== "ours" && !/^-+$/.test(cells[0] ?? ""));
}

/** A file in backticks and the titles in quotes behind it. */
export function namedIn(cell: string): Named[] {
  const named: Named[] = [];
  let file = "";
  for (const [, inBackticks, title] of cell.matchAll(/`([\w/.-]+\.test\.ts)`|"([^"]+)"/g)) {
    if (inBackticks) file = inBackticks;
    else if (file && title) named.push({ file, title });
  }
  return named;
}

export const titledIn = (source: string, title: string) =>
  new RegExp(`\\(\\s*"${escaped(title)}",`).test(source);

export function isThere({ file, title }: Named): boolean {
  try {
    return titledIn(readTest(file), title);
  } catch {
    return false;
  }
}

/** The titles of the tests in a file. */
export function titlesOf(file: string): string[] {
  const calls = readTest(file).matchAll(/\btest(?:\.(?:each|for)(?:<[^(]*>)?\([^]*?\))?\(\s*"([^"]+)",/g);
  return [...calls].map(([, title]) => title!);
}
