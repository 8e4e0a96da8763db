import type { Readable, Writable } from "node:stream";
import { printable } from "../../printable.js";

/** A stream of output, a terminal or not. */
export interface Output extends Writable {
  readonly isTTY?: boolean;
  readonly columns?: number;
  readonly rows?: number;
}

/** The outside world of one run of the program. `process` is one. */
export interface Io {
  readonly env: Readonly<Record<string, string | undefined>>;
  readonly stdin: Readable & { readonly isTTY?: boolean; setRawMode?(isRaw: boolean): unknown };
  readonly stdout: Output;
  readonly stderr: Output;
}

/** Bigints as decimal strings, as everywhere in this library. */
const bigints = (_key: string, value: unknown): unknown =>
  typeof value === "bigint" ? value.toString() : value;

/** One JSON text on one line. */
export const json = (value: unknown): string => `${JSON.stringify(value, bigints)}\n`;

/**
 * Columns under their titles, two spaces apart, without a line for an empty table's columns. Names, owners and values come
 * from other clients: escaped, so that they cannot color a terminal or forge a line. `right`: numbers.
 */
export function table(titles: readonly string[], rows: readonly (readonly string[])[]): string {
  const lines = [titles, ...rows.map((row) => row.map((cell) => printable(cell)))];
  const widths = titles.map((_, n) => Math.max(...lines.map((line) => width(line[n] ?? ""))));
  return lines
    .map((line) => line.map((cell, n) => cell + " ".repeat((widths[n] ?? 0) - width(cell))).join("  "))
    .map((line) => `${line.trimEnd()}\n`)
    .join("");
}

/** The number of columns of a terminal that a text fills: wide East Asian characters and emoji fill two. */
export const width = (text: string): number => {
  let columns = 0;
  for (const char of text.normalize("NFC")) columns += NARROW.test(char) ? 0 : WIDE.test(char) ? 2 : 1;
  return columns;
};

const NARROW = /\p{Mn}|\p{Me}/u;
const WIDE =
  /[\u1100-\u115f\u2e80-\u303e\u3041-\ua4cf\uac00-\ud7a3\uf900-\ufaff\ufe30-\ufe6f\uff00-\uff60\uffe0-\uffe6]|\p{Emoji_Presentation}/u;
