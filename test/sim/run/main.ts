// `npm run sim`: runs of the simulated world, one for each seed; exit code 1: an invariant was broken.
import { mkdirSync, writeFileSync } from "node:fs";
import path from "node:path";
import { parseArgs } from "node:util";
import { timeline } from "../../lab/runner/timeline.js";
import { mutantOf, sources, type Build } from "./build.js";
import { explain, KINDS, sentencesOf, settingOf } from "./explain.js";
import { LIVE_MS, runLive, type LiveResult } from "./live.js";
import { runParts } from "./parts.js";
import type { SimResult } from "./sim-run.js";
import { Summary } from "./summary.js";

const USAGE = `npm run sim -- [options]
  --seeds N     that many seeds, from --seed on (default: 100)
  --seed N      the first seed (default: 1)
  --short       each run makes about 200 calls to etcd, and has faults from its start on
  --transport   over the client's own HTTP/2 and gRPC, whose sockets are simulated, with faults of its own
  --workers     worker threads renew the leases, and main threads stand still
  --crashes     sessions have a delay after a crash, and in half of the runs processes have guardians
  --wanted      holders listen for waiters
  --sticky      the keys of locks may stay with their sessions after a release
  --bounded     calls join a queue only if few wait in it
  --weighted    calls take several permits of a semaphore at once
  --newest      most calls of a mutex end the older ones that wait
  --priorities  the calls of a mutex have priorities
  --shards      members of a group share out shards, work on them, and come and go
  --results     callers of once and share keep results, and give them to one another
  --rendezvous  callers count down latches, wait for barriers, and enter and leave double barriers
  --live        each run is judged during the run as well, and ends when a violation is noticed
  --jobs N      that many processes at once, each with a part of the seeds; prints each part and the total
  --record FILE with --jobs: adds a row for each part to a table, and omits the parts that are in it
  --only LIST   of the planned faults, these numbers only
  --processes N that many processes instead of the seed's choice
  --print       every step of the run
  --mutant NAME a rule of the lab's table is broken; ends with the first seed that notices
  --keep DIR    leaves the timeline of each broken run there
  --ui          serves a page that shows a run and breaks it by hand; prints its address
  --play QUERY  repeats the run of the page's address, as it was broken by hand; with --ui: on the page`;

const text = { type: "string" } as const;
const flag = { type: "boolean", default: false } as const;

interface Flags {
  readonly short: boolean;
  readonly transport: boolean;
  readonly workers: boolean;
  readonly crashes: boolean;
  readonly wanted: boolean;
  readonly sticky: boolean;
  readonly bounded: boolean;
  readonly weighted: boolean;
  readonly newest: boolean;
  readonly priorities: boolean;
  readonly shards: boolean;
  readonly results: boolean;
  readonly rendezvous: boolean;
  readonly live: boolean;
  readonly only: readonly number[] | undefined;
  readonly processes: number | undefined;
  readonly print: boolean;
  readonly keep: string | undefined;
  readonly mutant: string | undefined;
}

// Most errors of a run are expected, and Node.js needs longer for their stacks than for the rest of a call. Without the property,
// errors have no stack. With a limit of 0, V8 still visits the frames.
Reflect.deleteProperty(Error, "stackTraceLimit");

let build: Build;

async function main(): Promise<void> {
  const { values } = parseArgs({
    options: {
      ...{ seeds: text, seed: text, only: text, keep: text, mutant: text, print: flag, help: flag },
      ...{
        ui: flag,
        play: text,
        short: flag,
        transport: flag,
        workers: flag,
        crashes: flag,
        wanted: flag,
        sticky: flag,
        bounded: flag,
        weighted: flag,
        newest: flag,
        priorities: flag,
        shards: flag,
        results: flag,
        rendezvous: flag,
        live: flag,
        jobs: text,
        record: text,
        processes: text,
      },
    },
  });
  if (values.help) return console.log(USAGE);
  if (values.ui) return (await import("../page/main.js")).serve(values.play);
  if (values.play !== undefined) return (await import("../page/main.js")).play(values.play);
  const first = Number(values.seed ?? "1");
  const count = Number(values.seeds ?? (values.seed === undefined ? "100" : "1"));
  const { print, keep, mutant } = values;
  if (values.jobs !== undefined) return inParts({ ...values, first, count, jobs: Number(values.jobs) });
  build = await (mutant === undefined ? sources() : mutantOf(mutant));
  const only = values.only?.split(",").map(Number);
  const processes = values.processes === undefined ? undefined : Number(values.processes);
  await runSeeds(first, count, { ...values, only, processes, print, keep, mutant });
}

interface InParts extends Pick<Flags, (typeof KINDS)[number]> {
  readonly first: number;
  readonly count: number;
  readonly jobs: number;
  readonly keep?: string | undefined;
  readonly record?: string | undefined;
}

async function inParts({ first, count, jobs, keep, record, ...kinds }: InParts): Promise<void> {
  const kind = KINDS.filter((name) => kinds[name]);
  const args = [...kind.map((name) => `--${name}`), ...(keep === undefined ? [] : ["--keep", keep])];
  if ((await runParts({ first, count, jobs, args, record })) > 0) process.exitCode = 1;
}

async function runSeeds(first: number, count: number, flags: Flags): Promise<void> {
  const summary = new Summary();
  let broken = 0;
  let seed = first;
  for (; seed < first + count; seed++) {
    const live = await runSeed(seed, flags);
    summary.add(live.result);
    if (count === 1) console.log(`seed ${seed}: hash ${live.result.hash}, ${live.result.calls} calls`);
    if (sentencesOf(live.verdict).length === 0) continue;
    broken++;
    await explain(seed, { build, ...flags }, live);
    if (flags.keep !== undefined) keepTimeline(flags.keep, seed, live.result);
    if (flags.mutant !== undefined) break;
  }
  const last = Math.min(seed, first + count - 1);
  console.log(
    `seeds ${first} to ${last}: ${broken} broken; ${summary.contents}; hash ${summary.hash}; ${summary.speed}`,
  );
  if (broken > 0) process.exitCode = 1;
}

function runSeed(seed: number, flags: Flags): Promise<LiveResult> {
  const print = flags.print ? (line: string) => console.log(line) : undefined;
  const setting = settingOf(seed, { build, ...flags });
  return runLive({ ...setting, print }, flags.live ? LIVE_MS : Infinity);
}

function keepTimeline(folder: string, seed: number, { run }: SimResult): void {
  mkdirSync(folder, { recursive: true });
  writeFileSync(path.join(folder, `seed-${seed}.svg`), timeline(run, [`seed ${seed}`]));
}

await main();
