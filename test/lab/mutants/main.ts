// `npm run chaos:mutants -- [--only NAME,…] [--runs N] [--seed S] [--baseline] [--write] [--build]`: the lab must
// notice each mutant within its budget of runs, or within N; with --baseline the same hunts must find nothing in the
// unchanged build. --write puts the results into the README; --build only leaves the builds. Exit code 1 = one was
// missed.
import { readFileSync, rmSync, writeFileSync } from "node:fs";
import { parseArgs } from "node:util";
import { judge } from "../checker/judge.js";
import { runLab } from "../runner/lab.js";
import { tierOf } from "../tiers/index.js";
import { buildMutant } from "./build.js";
import type { Hunt, Mutant } from "./mutant.js";
import { MUTANTS } from "./table.js";

const README = new URL("../README.md", import.meta.url);

const { values } = parseArgs({
  options: {
    only: { type: "string" },
    seed: { type: "string", default: "mutants" },
    runs: { type: "string", default: "" },
    baseline: { type: "boolean", default: false },
    write: { type: "boolean", default: false },
    build: { type: "boolean", default: false },
  },
});

interface Caught {
  /** Invariants, the one broken most often first. */
  readonly by: readonly string[];
  readonly runs: number;
  readonly seconds: number;
  readonly example: string;
}

type Hunted = Required<Mutant>;

const HUNTED = MUTANTS.filter((mutant): mutant is Hunted => mutant.hunt !== undefined);
const only = values.only?.split(",");
const unknown = only?.filter((name) => !HUNTED.some((mutant) => mutant.name === name)) ?? [];
if (unknown.length > 0)
  throw new RangeError(`Expected names of mutants that the lab hunts, got ${unknown.join()}`);
const wanted = HUNTED.filter(({ name }) => only?.includes(name) ?? true);
// A patch that no longer applies fails here, before an hour is spent.
const builds = new Map(wanted.map((mutant) => [mutant, values.baseline ? undefined : buildMutant(mutant)]));

const rows = new Map<string, string>();
let bad = 0;
if (values.build) {
  for (const build of builds.values()) console.log(build);
  process.exit();
}
for (const [mutant, build] of builds) {
  const caught = await hunt(mutant.hunt, build);
  if ((caught === undefined) !== values.baseline) bad++;
  console.log(sentence(mutant, caught));
  rows.set(mutant.name, row(mutant, caught));
  if (build !== undefined) rmSync(build, { recursive: true });
}
const expected = values.baseline ? "hunts that found nothing in the unchanged build" : "mutants caught";
console.log(`\n${wanted.length - bad} of ${wanted.length} ${expected}`);
if (values.write) write(rows);
process.exitCode = bad === 0 ? 0 : 1;

async function hunt(how: Hunt, build: string | undefined): Promise<Caught | undefined> {
  const started = performance.now();
  for (let run = 1; run <= runsOf(how); run++) {
    const seed = `${values.seed}-${run}`;
    const result = await runLab({
      ...how,
      tier: tierOf(how.tier),
      seed,
      ...(build !== undefined && { build }),
    });
    const { violations } = judge(result.run);
    const broken = Object.entries(violations).sort(([, a], [, b]) => b.length - a.length);
    if (broken.length === 0) continue;
    const seconds = Math.round((performance.now() - started) / 1000);
    return { by: broken.map(([label]) => label), runs: run, seconds, example: broken[0]?.[1][0] ?? "" };
  }
  return undefined;
}

function runsOf({ runs }: Hunt): number {
  return Number(values.runs || runs);
}

function sentence({ name, wrong, hunt }: Hunted, caught: Caught | undefined): string {
  if (caught === undefined)
    return `${name}: nothing found in ${runsOf(hunt)} run(s) of ${hunt.seconds} s (${wrong})`;
  return `${name}: ${caught.by.join()} in run ${caught.runs}, ${caught.seconds} s (${wrong})\n    ${caught.example}`;
}

function row({ name, wrong, hunt }: Hunted, caught: Caught | undefined): string {
  const found = caught ? `${caught.by.join(", ")} | ${caught.seconds} s, run ${caught.runs}` : "missed | –";
  return `| ${name} | ${wrong} | ${hunt.tier}: ${(hunt.faults ?? ["all"]).join(", ")} | ${found} of ${runsOf(hunt)} |`;
}

/** Between the two marks in the README; a mutant that was not hunted in this run keeps its row. */
function write(found: ReadonlyMap<string, string>): void {
  const text = readFileSync(README, "utf8");
  const [before = "", rest = ""] = text.split("<!-- mutants -->\n");
  const [old = "", after = ""] = rest.split("<!-- /mutants -->\n");
  const head =
    "| mutant | what it does wrong | hunted by | broken | after |\n| --- | --- | --- | --- | --- |";
  // The table may have been formatted since, with spaces between the name and the next column.
  const kept = (name: string) => old.split("\n").find((line) => line.split("|")[1]?.trim() === name);
  const table = MUTANTS.flatMap(({ name }) => found.get(name) ?? kept(name) ?? []);
  const marked = `<!-- mutants -->\n\n${head}\n${table.join("\n")}\n\n<!-- /mutants -->\n`;
  writeFileSync(README, before + marked + after);
}
