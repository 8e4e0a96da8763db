/**
 * node --import tsx test/lab/model/explore.ts                     every scenario, then every rule switched off
 * node --import tsx test/lab/model/explore.ts --without <rule>    a shortest way to what the rule prevents
 * node --import tsx test/lab/model/explore.ts --in <scenario>     one scenario; also together with --without
 */
import { parseArgs } from "node:util";
import { ruleTable, scenarioTable, totalOf, traceOf } from "./report.js";
import { RULE_NAMES, RULES, type RuleName } from "./rules.js";
import { SCENARIO_NAMES, SCENARIOS, type ScenarioName } from "./scenarios.js";
import { explore } from "./search.js";

function oneOf<Name extends string>(
  what: string,
  names: readonly Name[],
  given: string | undefined,
): Name | undefined {
  if (given === undefined) return undefined;
  const name = names.find((other) => other === given);
  if (name !== undefined) return name;
  console.error(`Expected ${what} to be one of\n  ${names.join("\n  ")}\ngot "${given}"`);
  return process.exit(2);
}

function exploreAll(): void {
  const start = performance.now();
  const scenarios = new Map(SCENARIO_NAMES.map((name) => [name, explore(SCENARIOS[name])] as const));
  console.log(`${scenarioTable(scenarios)}\n`);
  const seconds = ((performance.now() - start) / 1000).toFixed(1);
  console.log(`${totalOf(scenarios)}: ${seconds} s\n`);
  for (const explored of scenarios.values()) {
    if (!explored.broken) continue;
    console.log(traceOf(explored));
    process.exitCode = 1;
  }
  console.log(ruleTable(new Map(RULE_NAMES.map((name) => [name, exploreWithout(name)] as const))));
}

const exploreWithout = (rule: RuleName): ReturnType<typeof explore> =>
  explore(SCENARIOS[RULES[rule].scenario], [rule]);

function explain(rule: RuleName): void {
  const { says, without, where } = RULES[rule];
  console.log(`The rule "${rule}": ${says} (src/${where}).`);
  console.log(`Without it: ${without}.\n`);
}

function exploreOne(scenario: ScenarioName, rule: RuleName | undefined): void {
  if (rule) explain(rule);
  const explored = explore(SCENARIOS[scenario], rule ? [rule] : []);
  const { states, broken } = explored;
  console.log(
    `${broken ? "Found" : "Nothing broken"} in ${states.toLocaleString("en-US")} states of "${scenario}"`,
  );
  if (broken) console.log(traceOf(explored));
  // Without a rule, a promise must break; with all rules, none may.
  if (Boolean(broken) !== Boolean(rule)) process.exitCode = 1;
}

const { values } = parseArgs({ options: { without: { type: "string" }, in: { type: "string" } } });
const rule = oneOf("--without", RULE_NAMES, values.without);
const scenario = oneOf("--in", SCENARIO_NAMES, values.in) ?? (rule && RULES[rule].scenario);
if (scenario) exploreOne(scenario, rule);
else exploreAll();
