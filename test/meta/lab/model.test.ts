import { execFileSync } from "node:child_process";
import { existsSync, readFileSync } from "node:fs";
import { fileURLToPath } from "node:url";
import { afterAll, describe, expect, test } from "vitest";
import { ruleTable, scenarioTable, totalOf, traceOf } from "../../lab/model/report.js";
import { RULE_NAMES, RULES, type RuleName } from "../../lab/model/rules.js";
import { SCENARIO_NAMES, SCENARIOS, type Accidents, type ScenarioName } from "../../lab/model/scenarios.js";
import { explore, type Explored } from "../../lab/model/search.js";

/** See test/lab/model/README.md. Every scenario is explored once, and every rule is switched off once. */
const scenarios = new Map<ScenarioName, Explored>();
const rules = new Map<RuleName, Explored>();

function once<Name>(done: Map<Name, Explored>, name: Name, run: () => Explored): Explored {
  const explored = done.get(name) ?? run();
  done.set(name, explored);
  return explored;
}

const explored = (name: ScenarioName): Explored => once(scenarios, name, () => explore(SCENARIOS[name]));
const without = (rule: RuleName): Explored =>
  once(rules, rule, () => explore(SCENARIOS[RULES[rule].scenario], [rule]));

/** Keys that may be deleted while their holder continues: only the fence helps then. */
const TAKEN_AWAY: readonly (keyof Accidents)[] = ["pauses", "deletions", "revokes"];

afterAll(() => console.log(`${scenarioTable(scenarios)}\n${totalOf(scenarios)}\n`));

describe("the protocol, explored to the last state", () => {
  test.each(SCENARIO_NAMES)("keeps every promise in: %s", (name) => {
    const result = explored(name);

    expect(traceOf(result)).toBe("");
  });

  test("has 100,000 states and more", () => {
    const states = SCENARIO_NAMES.map((name) => explored(name).states);

    expect(states.reduce((sum, count) => sum + count)).toBeGreaterThanOrEqual(100_000);
  });

  test("has two claims on one lock only where a key was taken from its holder", () => {
    const safe = SCENARIO_NAMES.filter((name) =>
      TAKEN_AWAY.every((accident) => SCENARIOS[name].accidents[accident] === 0),
    );

    const overlapping = safe.filter((name) => explored(name).overlaps > 0);

    expect(safe.length).toBeGreaterThan(0);
    expect(overlapping).toEqual([]);
  });

  test("has two claims at once when a process stops for longer than its lease lasts", () => {
    expect(explored("pauses").overlaps).toBeGreaterThan(0);
  });

  test("is visited in the same order every time", () => {
    const again = explore(SCENARIOS.turns);

    expect(again).toEqual(explored("turns"));
    expect(explore(SCENARIOS.aborts, ["own-create-revision"])).toEqual(without("own-create-revision"));
  });
});

describe("the protocol without one of its rules", () => {
  test.each(RULE_NAMES)("breaks a promise: %s", (rule) => {
    const { broken } = without(rule);

    expect(broken?.invariant).toBe(RULES[rule].breaks);
    expect(broken?.trace.length).toBeGreaterThan(1);
    expect(broken?.trace.every((step) => step.length > 0)).toBe(true);
    expect(traceOf(without(rule))).toMatch(/=> broken: .+$/);
  });
});

test("a wrong order of steps is told as a story by one command", () => {
  const command = fileURLToPath(new URL("../../lab/model/explore.ts", import.meta.url));
  const args = ["--import", "tsx", command, "--without", "watch-before-read"];

  const told = execFileSync(process.execPath, args, { encoding: "utf8", timeout: 25_000 });

  expect(told).toContain(traceOf(without("watch-before-read")));
});

test.each(RULE_NAMES)("the file that keeps the rule exists: %s", (rule) => {
  const { where } = RULES[rule];

  expect(existsSync(new URL(`../../../src/${where}`, import.meta.url))).toBe(true);
});

describe("the model's README", () => {
  const readme = readFileSync(new URL("../../lab/model/README.md", import.meta.url), "utf8");

  test("has the number of states", () => {
    for (const name of SCENARIO_NAMES) explored(name);

    expect(readme).toContain(totalOf(scenarios));
  });

  test("has the promise that each rule keeps, and the length of the shortest trace", () => {
    expect(readme).toContain(ruleTable(new Map(RULE_NAMES.map((rule) => [rule, without(rule)]))));
  });
});
