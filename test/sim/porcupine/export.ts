import { factsOf, type Facts } from "../../lab/checker/facts.js";
import type { Run } from "../../lab/runner/history.js";
import { grantsOf, type Grant } from "./grants.js";
import { holdOperations } from "./holds.js";
import type { Operation } from "./operation.js";
import { meetingOperations } from "./meetings.js";
import { registerOperations } from "./registers.js";
import { resultOperations } from "./results.js";
import { rulingOperations } from "./rulings.js";
import { timesOf, type Dated, type Times } from "./times.js";

/** What the parts of the export share. */
export interface Source {
  readonly facts: Facts;
  readonly times: Times;
  readonly grants: readonly Grant[];
}

/** The history of a run as operations on locks and registers. `dated`: what `tSeen` of its server events means. */
export function exportRun(run: Run, dated: Dated): Operation[] {
  const facts = factsOf(run);
  const times = timesOf(facts, dated);
  const source = { facts, times, grants: grantsOf(facts, times) };
  const all = [
    ...[...holdOperations(source), ...rulingOperations(source), ...registerOperations(source)],
    ...[...resultOperations(source), ...meetingOperations(source)],
  ];
  return all.sort((a, b) => a.from - b.from);
}

/** One operation a line, then the line that asks for the verdicts on the run. */
export function linesOf(run: string, operations: readonly Operation[]): string {
  return [...operations, { check: run }].map((line) => `${JSON.stringify(line)}\n`).join("");
}
