import type { ObjectVerdict } from "./judge.js";

interface Row {
  histories: number;
  names: number;
  operations: number;
  open: number;
  Ok: number;
  Illegal: number;
  Unknown: number;
  ms: number;
  longestMs: number;
}

const COLUMNS = {
  ...{ histories: "histories", names: "names", operations: "operations", open: "without outcome" },
  ...{ Ok: "ok", Illegal: "illegal", Unknown: "unknown", ms: "ms", longestMs: "longest" },
} as const satisfies Record<keyof Row, string>;

/** Counts the verdicts by object. */
export class Summary {
  readonly #rows = new Map<string, Row>();

  add(verdicts: readonly ObjectVerdict[]): void {
    for (const verdict of verdicts) {
      this.#count(verdict.object, verdict);
      this.#count("all", verdict);
    }
  }

  /** A table in Markdown. */
  text(): string {
    const names = Object.keys(COLUMNS) as (keyof Row)[];
    const line = (cells: readonly (string | number)[]): string => `| ${cells.join(" | ")} |`;
    const all = [...this.#rows].sort(([a], [b]) => Number(a === "all") - Number(b === "all"));
    return [
      line(["object", ...Object.values(COLUMNS)]),
      line(["---", ...names.map(() => "--:")]),
      ...all.map(([object, row]) => line([object, ...names.map((name) => Math.round(row[name]))])),
    ].join("\n");
  }

  #count(object: string, { names, operations, unknown, result, ms }: ObjectVerdict): void {
    const none = {
      histories: 0,
      names: 0,
      operations: 0,
      open: 0,
      Ok: 0,
      Illegal: 0,
      Unknown: 0,
      ms: 0,
      longestMs: 0,
    };
    const row = this.#rows.get(object) ?? none;
    this.#rows.set(object, row);
    row.histories++;
    row.names += names;
    row.operations += operations;
    row.open += unknown;
    row[result]++;
    row.ms += ms;
    row.longestMs = Math.max(row.longestMs, ms);
  }
}
