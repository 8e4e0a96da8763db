// `npm run chaos`: seeded runs of the lab, one tier after the other, each with a verdict; exit code 1 = an invariant
// was broken.
import { mkdirSync, mkdtempSync, rmSync, writeFileSync } from "node:fs";
import os from "node:os";
import path from "node:path";
import { EXIT_NOT_RUN } from "../../scripts/exit-not-run.js";
import { exitWhenMissing } from "../support/etcd/etcd.js";
import { judge, type Verdict } from "./checker/judge.js";
import { NotRunError } from "./runner/ground.js";
import { runLab } from "./runner/lab.js";
import { buildMutant } from "./mutants/build.js";
import { PARTS } from "./mutants/parts.js";
import { shrink } from "./runner/shrink.js";
import { timeline } from "./runner/timeline.js";
import { parseOptions, USAGE, type ChaosOptions } from "./options.js";
import { Tally } from "./tally.js";
import { TIERS, tierOf, type TierName } from "./tiers/index.js";

async function main(): Promise<void> {
  const options = optionsOrUsage();
  if (options === undefined) return;
  const tally = new Tally();
  const seconds = Math.ceil(options.seconds / (options.tiers.length * options.of.length));
  const started = performance.now();
  for (const tier of options.tiers)
    for (const of of options.of) await runTier(tier, { ...options, of: [of] }, { tally, seconds });
  if (tally.broken > 0) process.exitCode = 1;
  else if (tally.runs === tally.starved) process.exitCode = EXIT_NOT_RUN;
  if (tally.runs > 1) for (const line of tally.lines()) console.log(line);
  console.log(`${((performance.now() - started) / 1000).toFixed(0)} s in all`);
}

function optionsOrUsage(): ChaosOptions | undefined {
  try {
    const options = parseOptions(process.argv.slice(2));
    if (typeof options !== "string") return options;
    console.log(options === "help" ? USAGE : listOfFaults());
  } catch (error) {
    console.error(`${(error as Error).message}\n\n${USAGE}`);
    process.exitCode = 64;
  }
  return undefined;
}

/** What a fault needs is added automatically if the fault is named, or for all faults by an option. */
const named = ({ name, needs }: { readonly name: string; readonly needs?: string }) =>
  needs === undefined ? name : `${name}(${needs})`;

const listOfFaults = () =>
  Object.values(TIERS)
    .map(({ name, title, faults }) => `${name}  ${title}\n    ${faults.map(named).join(" ")}`)
    .join("\n");

async function runTier(
  name: TierName,
  options: ChaosOptions,
  { tally, seconds }: { tally: Tally; seconds: number },
): Promise<void> {
  const { title } = tierOf(name);
  const [of = "mutex"] = options.of;
  console.log(`\n${name}, ${title}, ${of}: seed ${options.seed}, ${seconds} s, TTL ${options.ttlSeconds}`);
  const folder =
    options.keep === undefined
      ? temporary()
      : path.join(options.keep, of === "mutex" ? name : `${name}-${of}`);
  try {
    const { verdict, planned, version } = await once(name, options, { seconds, keep: folder });
    console.log(`  etcd ${version}`);
    const starved = starvation();
    tally.add(verdict, starved !== undefined);
    for (const line of linesOf(verdict)) console.log(`  ${line}`);
    if (Object.keys(verdict.violations).length > 0 && starved !== undefined) {
      console.log(`  starved: ${starved}; what is broken above proves nothing`);
    } else if (Object.keys(verdict.violations).length > 0) {
      await explain(name, options, { seconds, folder, planned: planned.map(({ n }) => n) });
    } else if (options.keep === undefined) rmSync(folder, { recursive: true });
  } catch (error) {
    if (!(error instanceof NotRunError)) throw error;
    console.log(`not run: ${error.message}`);
  }
}

/** Above so many runnable threads per core, on average over a minute, a worker waits for its turn as long as a TTL lasts. */
const MOST_LOAD = 10;

/** Why the workers had too little of the machine for a verdict. */
function starvation(): string | undefined {
  const [load = 0] = os.loadavg();
  const cores = os.availableParallelism();
  return load > MOST_LOAD * cores ? `a load of ${load.toFixed(0)} on ${cores} cores` : undefined;
}

interface Where {
  readonly seconds: number;
  readonly keep: string;
  readonly only?: readonly number[] | undefined;
  readonly quiet?: boolean;
}

/** One run and its verdict; the history, the verdict and a timeline are written to `keep`. */
async function once(name: TierName, options: ChaosOptions, { seconds, keep, only, quiet }: Where) {
  const [of = "mutex"] = options.of;
  const {
    seed,
    faults,
    ttlSeconds,
    workers,
    lanes,
    names,
    nested,
    tls,
    auth,
    guardian,
    wanted,
    sticky,
    maxStallMs,
    releaseDelayMs,
    etcdVersion,
  } = options;
  const { without } = options;
  const chosen = only ?? options.only;
  const build =
    without === undefined
      ? options.build
      : buildMutant({ name: `without-${without}`, patches: PARTS[without] });
  mkdirSync(keep, { recursive: true });
  const { run, planned, version } = await runLab({
    ...{ tier: tierOf(name), of, seed, seconds, ttlSeconds, workers, lanes, names, nested, tls, keep },
    ...(auth && { auth }),
    guardian,
    wanted,
    sticky,
    ...(maxStallMs !== undefined && { maxStallMs }),
    ...(releaseDelayMs !== undefined && { releaseDelayMs }),
    ...(faults && { faults }),
    ...(chosen && { only: chosen }),
    ...(etcdVersion !== undefined && { etcdVersion }),
    ...(build !== undefined && { build }),
    say: (line) => options.quiet || quiet || console.log(`    ${line}`),
  });
  const verdict = judge(run);
  const heading = [
    `${name}, seed ${seed}, ${seconds} s, etcd ${version}`,
    ...sentencesOf(verdict).slice(0, 10),
  ];
  writeFileSync(path.join(keep, "timeline.svg"), timeline(run, heading));
  writeFileSync(path.join(keep, "verdict.txt"), [...heading, ...linesOf(verdict)].join("\n"));
  return { verdict, planned, version };
}

/** Looks for fewer faults that break the same invariant, and prints how to replay them. */
async function explain(
  name: TierName,
  options: ChaosOptions,
  { seconds, folder, planned }: { seconds: number; folder: string; planned: readonly number[] },
): Promise<void> {
  console.log(`  history, verdict and timeline.svg: ${folder}`);
  const fails = async (only: readonly number[]) => {
    const keep = temporary();
    const { verdict } = await once(name, options, { seconds, keep, only, quiet: true });
    const broken = Object.keys(verdict.violations);
    console.log(`    with ${only.length} faults: ${broken.join() || "nothing broken"}`);
    if (broken.length === 0) rmSync(keep, { recursive: true });
    else console.log(`      ${keep}`);
    return broken.length > 0;
  };
  const short = await shrink(planned, fails, { runs: options.shrinkRuns });
  console.log(`  replay: ${replay(name, { ...options, seconds, only: short })}`);
}

/** Includes everything that a schedule depends on: with other options, the numbers name other faults. */
function replay(tier: TierName, options: ChaosOptions): string {
  const { of, seed, seconds: time, ttlSeconds: ttl, workers, lanes, names, faults, only, build } = options;
  const { auth, etcdVersion: etcd, without } = options;
  const told = { tier, of, seed, time, ttl, workers, lanes, names, auth, faults, only, etcd, build, without };
  const given = Object.entries(told).filter(([, value]) => value !== undefined);
  const words = given.map(([option, value]) => `--${option} ${String(value)}`);
  return [
    "npm run chaos --",
    ...words,
    ...(options.nested ? ["--nested"] : []),
    ...(options.tls ? ["--tls"] : []),
    ...(options.guardian ? ["--guardian"] : []),
    ...(options.wanted ? ["--wanted"] : []),
    ...(options.sticky ? ["--sticky"] : []),
    ...(options.maxStallMs === undefined ? [] : ["--max-stall", String(options.maxStallMs / 1000)]),
    ...(options.releaseDelayMs === undefined ? [] : ["--delay", String(options.releaseDelayMs / 1000)]),
  ].join(" ");
}

function linesOf({ violations, soft, figures }: Verdict): string[] {
  const told = soft.map((sentence) => `told, not judged: ${sentence}`);
  const broken = Object.entries(violations).flatMap(([label, sentences]) => [
    `${label} BROKEN ${sentences.length} time(s):`,
    ...sentences.slice(0, 20).map((sentence) => `  ${sentence}`),
  ]);
  const verdict = broken.length === 0 ? "no hard invariant broken" : `${broken.length} lines of violations`;
  return [...figures.lines(), ...told.slice(0, 20), ...broken, verdict];
}

const sentencesOf = ({ violations }: Verdict) =>
  Object.entries(violations).flatMap(([label, sentences]) => sentences.map((it) => `${label}: ${it}`));

const temporary = () => mkdtempSync(path.join(os.tmpdir(), "leasehold-history-"));

await main().catch(exitWhenMissing);
// `scripts/ts.js` ends this process if it does not end by itself.
process.send?.(Number(process.exitCode ?? 0), () => process.disconnect?.());
