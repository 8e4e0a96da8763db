import type { Explored } from "./search.js";
import { RULES, type RuleName } from "./rules.js";
import type { ScenarioName } from "./scenarios.js";

/** A Markdown table in prettier's layout. */
function table(head: readonly string[], rows: readonly (readonly string[])[]): string {
  const widths = head.map((_, column) => Math.max(...[head, ...rows].map((row) => row[column]!.length)));
  const line = (row: readonly string[], fill: string): string =>
    `| ${row.map((cell, column) => cell.padEnd(widths[column]!, fill)).join(" | ")} |`;
  const rule = head.map(() => "");
  return [line(head, " "), line(rule, "-"), ...rows.map((row) => line(row, " "))].join("\n");
}

const thousands = (count: number): string => count.toLocaleString("en-US");

export function scenarioTable(explored: ReadonlyMap<ScenarioName, Explored>): string {
  const rows = [...explored].map(([name, { states, steps, overlaps }]) => [
    name,
    thousands(states),
    thousands(steps),
    thousands(overlaps),
  ]);
  return table(["scenario", "states", "steps between them", "states with two claims"], rows);
}

export function totalOf(explored: ReadonlyMap<ScenarioName, Explored>): string {
  const all = [...explored.values()];
  const states = all.reduce((sum, one) => sum + one.states, 0);
  const steps = all.reduce((sum, one) => sum + one.steps, 0);
  return `${all.length} scenarios, ${thousands(states)} states, ${thousands(steps)} steps between them`;
}

export function ruleTable(explored: ReadonlyMap<RuleName, Explored>): string {
  const rows = [...explored].map(([name, { broken }]) => [
    `\`${name}\``,
    RULES[name].says,
    broken?.invariant ?? "nothing",
    String(broken?.trace.length ?? 0),
  ]);
  return table(["rule", "what it says", "without it, broken", "steps"], rows);
}

/** The steps that lead to a broken promise, followed by the promise. */
export function traceOf({ broken }: Explored): string {
  if (!broken) return "";
  const steps = broken.trace.map((step, i) => `${String(i + 1).padStart(3)}. ${step}`);
  return [...steps, `  => broken: ${broken.invariant}. ${broken.what}`].join("\n");
}
