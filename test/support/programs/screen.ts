// What a terminal shows after the output of a program: as much of it as `leasehold top` uses.
import { width } from "../../../src/tools/cli/io.js";

export class Screen {
  /** The alternate screen is shown. */
  isAlternate = false;
  isCursorVisible = true;
  wraps = true;
  /** So many times a line was written. */
  writes = 0;
  #rows: string[][];
  #at = { row: 0, column: 0 };
  /** The start of a sequence that is not complete yet. */
  #rest = "";

  constructor(
    readonly columns = 80,
    readonly rows = 24,
  ) {
    this.#rows = this.#empty();
  }

  get lines(): readonly string[] {
    return this.#rows.map((cells) =>
      Array.from(cells, (cell) => cell ?? " ")
        .join("")
        .trimEnd(),
    );
  }

  get text(): string {
    return this.lines.join("\n");
  }

  write(output: string): void {
    const text = this.#rest + output;
    const incomplete = /\u001b(\[[?\d;]*)?$/.exec(text);
    this.#rest = incomplete?.[0] ?? "";
    const whole = incomplete ? text.slice(0, incomplete.index) : text;
    for (const [all, args = "", final] of whole.matchAll(/\u001b\[([?\d;]*)([A-Za-z])|[^]/gu)) {
      if (final === undefined) this.#put(all);
      else this.#obey(args, final);
    }
  }

  #put(char: string): void {
    if (char === "\r") this.#at.column = 0;
    else if (char === "\n") this.#at.row++;
    else if (char < " " || char === "\u007f") throw new Error(`control character ${JSON.stringify(char)}`);
    else if (this.#at.column < this.columns) {
      const row = this.#rows[this.#at.row] ?? [];
      const cells = width(char);
      if (cells === 0) row[this.#at.column - 1] += char;
      else row[this.#at.column] = char;
      if (cells === 2) row[this.#at.column + 1] = "";
      this.#at.column += cells;
    }
  }

  #obey(args: string, final: string): void {
    const [first = 1, second = 1] = args.replace("?", "").split(";").filter(Boolean).map(Number);
    const isSet = final === "h";
    if (final === "H") {
      this.#at = { row: first - 1, column: second - 1 };
      this.writes++;
    } else if (final === "K") {
      // Behind a full line, the cursor stands on the last column: xterm erases it.
      this.#rows[this.#at.row]?.splice(Math.min(this.#at.column, this.columns - 1));
    } else if (final === "J") this.#rows = this.#empty();
    else if (args === "?1049") this.isAlternate = isSet;
    else if (args === "?25") this.isCursorVisible = isSet;
    else if (args === "?7") this.wraps = isSet;
    else if (final !== "m") throw new Error(`unknown sequence ${args}${final}`);
  }

  #empty(): string[][] {
    return Array.from({ length: this.rows }, () => []);
  }
}
