// `npm run sim:porcupine --`: checks the histories of simulated runs, or of a run of the lab, with Porcupine.
import { mkdirSync } from "node:fs";
import os from "node:os";
import path from "node:path";
import { parseArgs } from "node:util";
import { EXIT_NOT_RUN } from "../../../scripts/exit-not-run.js";
import { NotRunError } from "../../lab/runner/ground.js";
import { readRun } from "../../lab/runner/journal.js";
import { mutantOf, sources, type Build } from "../run/build.js";
import { runSim } from "../run/sim-run.js";
import { swarmOf, withRendezvous, withResults, withWeights } from "../run/swarm.js";
import { exportRun, linesOf } from "./export.js";
import { HAND_MADE } from "./hand-made.js";
import { PorcupineJudge, type ObjectVerdict } from "./judge.js";
import { Summary } from "./summary.js";

const USAGE = `npm run sim:porcupine -- [options]
  --seeds N       that many seeds, from --seed on (default: 200)
  --seed N        the first seed (default: 1)
  --mutant LIST   these rules of the lab's table are broken, one at a time: each must have a history that is not legal
  --weighted      runs of calls that take several permits of a semaphore at once
  --results       runs of callers of once and share, who keep results
  --rendezvous    runs of callers of latches and barriers
  --lab FOLDER    a run that the lab has kept there, instead of simulated runs
  --print         prints the operations of each run as lines of JSON
  --timeout S     seconds for one object of a run; then its result is unknown (default: 10)
  --pictures DIR  for the pictures of what is not legal (default: a folder of the system for temporary files)`;

const text = { type: "string" } as const;
const flag = { type: "boolean", default: false } as const;

const { values: flags } = parseArgs({
  options: {
    ...{
      seeds: { ...text, default: "200" },
      seed: { ...text, default: "1" },
      timeout: { ...text, default: "10" },
    },
    ...{
      pictures: { ...text, default: path.join(os.tmpdir(), "leasehold-porcupine") },
      mutant: text,
      lab: text,
      weighted: flag,
      results: flag,
      rendezvous: flag,
      print: flag,
      help: flag,
    },
  },
});

const seeds = Array.from({ length: Number(flags.seeds) }, (_, n) => Number(flags.seed) + n);
// Most errors of a run are expected, and Node.js needs longer for their stacks than for the rest of a call.
Error.stackTraceLimit = 0;

async function main(): Promise<void> {
  if (flags.help) return console.log(USAGE);
  await withJudge({}, checkHandMade);
  mkdirSync(flags.pictures, { recursive: true });
  await withJudge({ pictures: flags.pictures }, checkRuns);
}

async function withJudge(
  options: { pictures?: string },
  work: (judge: PorcupineJudge) => Promise<void>,
): Promise<void> {
  const judge = await PorcupineJudge.start({ timeoutSeconds: Number(flags.timeout), ...options });
  await work(judge).finally(() => judge.end());
}

/** The judge must accept the legal histories and reject the illegal ones. */
async function checkHandMade(judge: PorcupineJudge): Promise<void> {
  let right = 0;
  for (const { title, legal, operations } of HAND_MADE) {
    const [verdict] = await judge.check(title, operations);
    if (verdict!.result === (legal ? "Ok" : "Illegal")) right++;
    else fail(`hand-made history "${title}": ${verdict!.result}`);
  }
  console.log(`${right} of ${HAND_MADE.length} hand-made histories are judged right`);
}

async function checkRuns(judge: PorcupineJudge): Promise<void> {
  if (flags.lab !== undefined) return checkLab(judge, flags.lab);
  if (flags.mutant === undefined) return checkSources(judge);
  for (const name of flags.mutant.split(",")) await checkMutant(judge, name);
}

async function checkLab(judge: PorcupineJudge, folder: string): Promise<void> {
  const summary = new Summary();
  const operations = exportRun(readRun(folder), "when seen");
  if (flags.print) process.stdout.write(linesOf("lab", operations));
  const verdicts = await judge.check("lab", operations);
  summary.add(verdicts);
  for (const verdict of verdicts) report(verdict, "the run", `npm run sim:porcupine -- --lab ${folder}`);
  console.log(summary.text());
}

async function checkSources(judge: PorcupineJudge): Promise<void> {
  const build = await sources();
  const summary = new Summary();
  for (const seed of seeds) {
    const verdicts = await checkSeed(judge, build, { seed });
    summary.add(verdicts);
    for (const verdict of verdicts) report(verdict, `seed ${seed}`, replayOf(seed));
  }
  console.log(`seeds ${seeds[0]} to ${seeds.at(-1)}`);
  console.log(summary.text());
}

/** Ends with the first seed whose history is not legal. */
async function checkMutant(judge: PorcupineJudge, mutant: string): Promise<void> {
  const build = await mutantOf(mutant);
  const started = performance.now();
  for (const seed of seeds) {
    const verdicts = await checkSeed(judge, build, { seed, mutant });
    const found = verdicts.find(({ result }) => result === "Illegal");
    if (found === undefined) continue;
    const seconds = ((performance.now() - started) / 1000).toFixed(1);
    console.log(`${mutant}: ${found.object} illegal with seed ${seed}, after ${seconds} s`);
    return console.log(detailsOf(found, `${replayOf(seed)} --mutant ${mutant}`));
  }
  fail(`${mutant}: no illegal history with the seeds ${seeds[0]} to ${seeds.at(-1)}`);
}

function replayOf(seed: number): string {
  const chosen = (["weighted", "results", "rendezvous"] as const).filter((name) => flags[name]);
  return `npm run sim:porcupine -- ${chosen.map((name) => `--${name} `).join("")}--seed ${seed} --seeds 1`;
}

interface Which {
  readonly seed: number;
  readonly mutant?: string;
}

async function checkSeed(
  judge: PorcupineJudge,
  build: Build,
  { seed, mutant }: Which,
): Promise<ObjectVerdict[]> {
  const setting = swarmOf(String(seed));
  const heavy = flags.weighted ? withWeights(setting) : setting;
  const cached = flags.results ? withResults(heavy) : heavy;
  const { run } = await runSim({ ...(flags.rendezvous ? shortened(withRendezvous(cached)) : cached), build });
  const operations = exportRun(run, "exactly");
  if (flags.print) process.stdout.write(linesOf(String(seed), operations));
  return judge.check(`${mutant === undefined ? "" : `${mutant}-`}seed-${seed}`, operations);
}

/** A latch with thousands of calls has too many orders. */
const shortened = (setting: ReturnType<typeof withRendezvous>): typeof setting => ({
  ...setting,
  requests: MEETING_REQUESTS,
});
const MEETING_REQUESTS = 500;

function report(verdict: ObjectVerdict, whose: string, replay: string): void {
  const { object, result } = verdict;
  if (result === "Unknown") console.log(`${whose}, ${object}: unknown after ${flags.timeout} s`);
  if (result === "Illegal") fail(`${whose}, ${object}: illegal\n${detailsOf(verdict, replay)}`);
}

const detailsOf = ({ why, file }: ObjectVerdict, replay: string): string =>
  `  ${why}\n  picture: ${file}\n  replay: ${replay}`;

function fail(message: string): void {
  console.log(message);
  process.exitCode = 1;
}

await main().catch((error: unknown) => {
  if (!(error instanceof NotRunError)) throw error;
  console.log(`not run: ${error.message}`);
  process.exitCode = EXIT_NOT_RUN;
});
