// All results of a run of the bench, for machines and for tables.
import type { Machine } from "../frame/machine.js";
import type { Failure } from "../frame/rounds.js";
import type { Figures } from "../frame/field.js";
import type { PeerName } from "../peers/peers.js";
import type { Bound, Question, Target, Which } from "../questions/question.js";

export interface Report {
  readonly quick: boolean;
  readonly seconds: number;
  readonly machine: Machine;
  readonly loadAtStart: number;
  readonly loadAtEnd: number;
  readonly versions: Readonly<Partial<Record<PeerName, string>>>;
  readonly notRun: Readonly<Partial<Record<PeerName, string>>>;
  readonly questions: readonly Result[];
}

/** The result of one question. */
export interface Result extends Omit<Question, "cases" | "targets"> {
  readonly servers: readonly string[];
  readonly rows: readonly ResultRow[];
  readonly verdicts: readonly Verdict[];
  readonly failed: readonly Failure[];
}

export interface ResultRow {
  readonly case: string;
  readonly contenders?: number;
  readonly peer: PeerName;
  readonly medians: Figures;
  readonly rounds: readonly Figures[];
}

export interface Verdict {
  readonly target: Target;
  /** The figure itself, and the one that it is divided by, if any. */
  readonly figure: number;
  readonly over: number | undefined;
  /** The value that is judged. */
  readonly value: number;
  readonly met: boolean;
}

/** None if one of its figures was not measured. */
export function verdictOf(target: Target, rows: readonly ResultRow[]): Verdict | undefined {
  const find = (which: Which) =>
    rows.find((row) => row.case === which.case && row.peer === which.peer)?.medians[which.figure] ?? NaN;
  const figure = find(target);
  const over = target.over && find({ ...target, ...target.over });
  const value = over === undefined ? figure : figure / over;
  return Number.isNaN(value) ? undefined : { target, figure, over, value, met: holds(value, target.bound) };
}

const holds = (value: number, bound: Bound) =>
  "atLeast" in bound ? value >= bound.atLeast : value <= bound.atMost;
