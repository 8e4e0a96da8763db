// `npm run chaos:rivals`: other locks under the same faults as leasehold, judged by the same rules. Exit code 1:
// leasehold itself broke a rule, or a scenario could not be played.
import { mkdirSync, openSync, writeFileSync } from "node:fs";
import { mkdtemp } from "node:fs/promises";
import os from "node:os";
import path from "node:path";
import { fileURLToPath } from "node:url";
import { EXIT_NOT_RUN } from "../../../scripts/exit-not-run.js";
import { EtcdMissingError, exitWhenMissing } from "../../support/etcd/etcd.js";
import { Guardian } from "../../support/servers/guarded.js";
import { RedisMissingError } from "../../support/servers/redis.js";
import { NotRunError } from "../runner/ground.js";
import { record } from "../runner/journal.js";
import { parseOptions, USAGE, type RivalsOptions } from "./options.js";
import { play, StalledError, type Played } from "./play.js";
import { resultsOf, type Outcome } from "./results.js";
import type { Scenario } from "./scenarios/scenario.js";
import { scenarios } from "./scenarios/scenarios.js";
import { SUBJECTS, type Subject } from "./subjects/subjects.js";

const RESULTS = fileURLToPath(new URL("./RESULTS.md", import.meta.url));
const EX_USAGE = 64;

/** A scenario during which the machine stalled is played again, up to this many times in total. */
const ATTEMPTS = 4;

interface Job {
  readonly subject: Subject;
  readonly scenario: Scenario;
  attempts: number;
}

async function main(): Promise<void> {
  const options = optionsOrUsage();
  if (options === undefined) return;
  const started = performance.now();
  const guardian = new Guardian(await mkdtemp(path.join(os.tmpdir(), "leasehold-rivals-")));
  try {
    const outcome = await playAll(jobsOf(options), options, guardian);
    const results = resultsOf(outcome, { seed: options.seed, seconds: (performance.now() - started) / 1000 });
    console.log(`\n${results}`);
    for (const [{ title }, why] of outcome.notRun) console.log(`not run: ${title}: ${why}`);
    if (options.write) writeFileSync(RESULTS, results);
    process.exitCode = exitCodeOf(outcome);
  } finally {
    await guardian.dismiss();
  }
}

function optionsOrUsage(): RivalsOptions | undefined {
  try {
    const options = parseOptions(process.argv.slice(2), {
      subjects: SUBJECTS.map(({ name }) => name),
      scenarios: scenarios("").map(({ name }) => name),
    });
    if (!options.help) return options;
    console.log(USAGE);
    for (const { name, title } of [...SUBJECTS, ...scenarios("")])
      console.log(`  ${name.padEnd(16)}${title}`);
  } catch (error) {
    console.error(`${(error as Error).message}\n\n${USAGE}`);
    process.exitCode = EX_USAGE;
  }
  return undefined;
}

/** Long ones first, so that the run does not end with a wait for one of them. */
function jobsOf({ seed, subjects, scenarios: wanted }: RivalsOptions): Job[] {
  const all = scenarios(seed).filter(({ name }) => wanted.includes(name));
  return all
    .toReversed()
    .flatMap((scenario) =>
      SUBJECTS.filter(
        (subject) => subjects.includes(subject.name) && (scenario.suits?.(subject) ?? true),
      ).map((subject) => ({ subject, scenario, attempts: 0 })),
    );
}

async function playAll(jobs: readonly Job[], options: RivalsOptions, guardian: Guardian): Promise<Outcome> {
  const outcome = new Results();
  const queue = [...jobs];
  const lane = async () => {
    for (let job = queue.shift(); job !== undefined; job = queue.shift()) {
      if (outcome.notRun.has(job.subject)) continue;
      const begun = performance.now();
      const told = await playOne(job, { options, guardian, outcome });
      // When its turn comes at the end of the queue, the machine may be less busy.
      if (told === "again") queue.push(job);
      const seconds = ((performance.now() - begun) / 1000).toFixed(1).padStart(6);
      console.error(`${seconds} s  ${nameOf(job)}: ${told}, ${queue.length} of ${jobs.length} left`);
    }
  };
  await Promise.all(Array.from({ length: options.jobs }, lane));
  return outcome;
}

class Results implements Outcome {
  readonly played: Played[] = [];
  readonly failed: string[] = [];
  readonly stalled: string[] = [];
  readonly notRun = new Map<Subject, string>();
}

interface Tools {
  readonly options: RivalsOptions;
  readonly guardian: Guardian;
  readonly outcome: Results;
}

async function playOne(job: Job, { options, guardian, outcome }: Tools): Promise<string> {
  try {
    const played = await play(job.subject, job.scenario, guardian);
    if (options.keep !== undefined) keep(options.keep, played);
    outcome.played.push(played);
    return "played";
  } catch (error) {
    const { message } = error as Error;
    if (error instanceof EtcdMissingError) return exitWhenMissing(error);
    if (error instanceof StalledError && ++job.attempts < ATTEMPTS) return "again";
    if (error instanceof StalledError) outcome.stalled.push(`${nameOf(job)}: ${message}`);
    else if (error instanceof NotRunError || error instanceof RedisMissingError)
      outcome.notRun.set(job.subject, message);
    else outcome.failed.push(`${nameOf(job)}: ${message}`);
    return `not run: ${message}`;
  }
}

const nameOf = ({ subject, scenario }: Pick<Job, "subject" | "scenario">) =>
  `${subject.name} ${scenario.name}`;

function keep(folder: string, { subject, scenario, lines }: Played): void {
  mkdirSync(folder, { recursive: true });
  const file = openSync(path.join(folder, `${subject.name}-${scenario.name}.jsonl`), "w");
  for (const line of [...lines].sort((a, b) => Number(a.t - b.t))) record(file, line);
}

function exitCodeOf({ played, failed }: Outcome): number {
  if (played.length === 0 && failed.length === 0) return EXIT_NOT_RUN;
  const own = played.filter(({ subject }) => subject.name.startsWith("leasehold"));
  const broken = own.some(({ findings }) =>
    Object.values(findings).some(({ violations }) => violations.length > 0),
  );
  return broken || failed.length > 0 ? 1 : 0;
}

await main();
