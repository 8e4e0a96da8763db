import { appendFileSync, existsSync, readFileSync } from "node:fs";

/** A row of the table of parts. */
export interface Row {
  readonly first: number;
  readonly last: number;
  readonly broken: number;
  readonly contents: string;
  readonly hash: string;
  readonly speed: string;
  readonly commit: string;
}

const HEADING =
  "| seeds | broken | contents | hash | speed | commit | Node.js |\n| --- | --- | --- | --- | --- | --- | --- |\n";
const ROW = /^\| (\d+) to (\d+) +\| (\d+) /gm;

/** A table in Markdown, with a row for each part that was run. */
export class PartTable {
  /** @param file which is made with the first row */
  constructor(readonly file: string) {}

  add({ first, last, broken, contents, hash, speed, commit }: Row): void {
    const cells = [`${first} to ${last}`, broken, contents, hash, speed, commit, process.versions.node];
    appendFileSync(this.file, `${existsSync(this.file) ? "" : HEADING}| ${cells.join(" | ")} |\n`);
  }

  /** Whether rows of the table have run all seeds from `first` to `last`. */
  has(first: number, last: number): boolean {
    let next = first;
    for (const row of this.#rows()) if (row.first <= next) next = Math.max(next, row.last + 1);
    return next > last;
  }

  /** How many different seeds its rows have run, how many rows there are, and how many seeds were broken. */
  get total(): string {
    const rows = this.#rows();
    let seeds = 0;
    let next = 0;
    for (const { first, last } of rows) {
      seeds += Math.max(0, last + 1 - Math.max(first, next));
      next = Math.max(next, last + 1);
    }
    const broken = rows.reduce((sum, row) => sum + row.broken, 0);
    return `${seeds} seeds in ${rows.length} parts, ${broken} broken`;
  }

  /** By their first seeds. */
  #rows(): readonly Pick<Row, "first" | "last" | "broken">[] {
    if (!existsSync(this.file)) return [];
    const found = [...readFileSync(this.file, "utf8").matchAll(ROW)];
    const rows = found.map(([, first, last, broken]) => ({
      ...{ first: Number(first), last: Number(last), broken: Number(broken) },
    }));
    return rows.sort((a, b) => a.first - b.first);
  }
}
