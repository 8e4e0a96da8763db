// Every state of the model is visited, which no random run does. See test/lab/model/README.md.
import { describe, expect, test } from "vitest";
import { traceOf } from "../../lab/model/report.js";
import { RULE_NAMES, RULES } from "../../lab/model/rules.js";
import { SCENARIO_NAMES, SCENARIOS, type Accidents, type ScenarioName } from "../../lab/model/scenarios.js";
import { explore, type Explored } from "../../lab/model/search.js";

const done = new Map<ScenarioName, Explored>();
/** Each scenario is explored once. */
function explored(name: ScenarioName): Explored {
  const result = done.get(name) ?? explore(SCENARIOS[name]);
  done.set(name, result);
  return result;
}

/** Keys that may be deleted while their holder continues: only the fence helps then. */
const TAKEN_AWAY: readonly (keyof Accidents)[] = ["pauses", "deletions", "purges", "revokes"];

describe("the protocol, explored to the last state", { timeout: 120_000 }, () => {
  test.each(SCENARIO_NAMES)("keeps every promise in: %s", (name) => {
    expect(traceOf(explored(name))).toBe("");
  });

  test("has two claims on one lock only where a key was taken from its holder", () => {
    const safe = SCENARIO_NAMES.filter((name) =>
      TAKEN_AWAY.every((accident) => SCENARIOS[name].accidents[accident] === 0),
    );

    expect(safe.length).toBeGreaterThan(0);
    expect(safe.filter((name) => explored(name).overlaps > 0)).toEqual([]);
    expect(explored("pauses").overlaps).toBeGreaterThan(0);
  });
});

describe("the protocol without one of its rules", { timeout: 120_000 }, () => {
  test.each(RULE_NAMES)("breaks a promise: %s", (rule) => {
    const { scenario, breaks } = RULES[rule];

    expect(explore(SCENARIOS[scenario], [rule]).broken?.invariant).toBe(breaks);
  });
});
