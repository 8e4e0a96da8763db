// The tables of docs/refusals.md.
import { readFileSync } from "node:fs";
import type { Verdict } from "../../src/etcd/etcd3/refusals.js";

const PAGE = readFileSync(new URL("../../docs/refusals.md", import.meta.url), "utf8");

/** https://grpc.github.io/grpc/core/md_doc_statuscodes.html */
const CODES = [
  ...["OK", "CANCELLED", "UNKNOWN", "INVALID_ARGUMENT", "DEADLINE_EXCEEDED", "NOT_FOUND", "ALREADY_EXISTS"],
  ...["PERMISSION_DENIED", "RESOURCE_EXHAUSTED", "FAILED_PRECONDITION", "ABORTED", "OUT_OF_RANGE"],
  ...["UNIMPLEMENTED", "INTERNAL", "UNAVAILABLE", "DATA_LOSS", "UNAUTHENTICATED"],
];

export interface RefusalRow {
  readonly text: string;
  /** Of each etcd version that says it with another one. */
  readonly codes: readonly number[];
  readonly verdict: Verdict;
}

const rows = (section: string): string[][] =>
  section
    .split("\n")
    .filter((line) => line.startsWith("| "))
    .map((line) => line.split("|").slice(1, -1))
    .map((cells) => cells.map((cell) => cell.trim()))
    .filter(([first]) => !first?.startsWith("---"))
    .slice(1);

/** Every text of etcd's. */
export const REFUSAL_ROWS: readonly RefusalRow[] = rows(
  PAGE.split("<!-- texts -->")[1]?.split("<!-- /texts -->")[0] ?? "",
).map(([text = "", codes = "", verdict = ""]) => ({
  text: text.slice(1, -1),
  codes: codes.split(", ").map((code) => CODES.indexOf(code)),
  verdict: verdict as Verdict,
}));

/** The verdicts with whether the request may have been executed. */
export const EXECUTED: ReadonlyMap<string, boolean> = new Map(
  rows(PAGE.split("## What each verdict means")[1]?.split("## ")[0] ?? "").map(
    ([verdict = "", , executed]) => [verdict, executed === "perhaps"],
  ),
);
