import { printable } from "../../printable.js";
import { width } from "../command-line/io.js";

/**
 * A table that is written page by page, under one line of titles: a column is as wide as its widest cell so far. A name is
 * never cut, because the user may copy it.
 */
export class GrowingTable {
  readonly #widths: number[];
  #begun = false;

  constructor(private readonly titles: readonly string[]) {
    this.#widths = titles.map(width);
  }

  /** The lines of these rows, escaped; before the first of them the titles. */
  add(rows: readonly (readonly string[])[]): string {
    const lines = rows.map((row) => row.map((cell) => printable(cell, Infinity)));
    if (!this.#begun && lines.length > 0) lines.unshift([...this.titles]);
    this.#begun ||= lines.length > 0;
    for (const line of lines)
      for (const [n, cell] of line.entries()) this.#widths[n] = Math.max(this.#widths[n] ?? 0, width(cell));
    return lines.map((line) => `${this.#line(line)}\n`).join("");
  }

  #line(cells: readonly string[]): string {
    return cells
      .map((cell, n) => cell + " ".repeat((this.#widths[n] ?? 0) - width(cell)))
      .join("  ")
      .trimEnd();
  }
}
