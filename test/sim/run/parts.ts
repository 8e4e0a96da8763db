import { execFile, spawn } from "node:child_process";
import { once } from "node:events";
import { text } from "node:stream/consumers";
import { fileURLToPath } from "node:url";
import { promisify } from "node:util";
import { PartTable } from "./part-table.js";

const ROOT = fileURLToPath(new URL("../../../", import.meta.url));
/** Seeds of a part, at most. A new process is slower for its first 2,000 seeds, until V8 has compiled its code. */
const PART = 10_000;
/** What a process prints last. */
const SUMMARY = /^seeds (\d+) to (\d+): (\d+) broken; (.*); hash (\w+); (.*)$/m;

export interface Parts {
  readonly first: number;
  readonly count: number;
  /** How many run at the same time, each on one core. */
  readonly jobs: number;
  /** What else each process gets. */
  readonly args: readonly string[];
  /** A table in Markdown that gets a row for each part. A part that is in it is not run again. */
  readonly record: string | undefined;
}

interface Part {
  readonly first: number;
  readonly count: number;
}

/** Runs the seeds in parts, each in a process of its own. Prints each part, then the total; returns the number of broken seeds. */
export async function runParts(parts: Parts): Promise<number> {
  const record = parts.record === undefined ? undefined : new PartTable(parts.record);
  const all = split(parts);
  const waiting = all.filter(({ first, count }) => record?.has(first, first + count - 1) !== true);
  const left = all.length - waiting.length;
  const seeds = waiting.reduce((sum, { count }) => sum + count, 0);
  const run = { args: parts.args, record, commit: await commitNow() };
  const started = performance.now();
  let broken = 0;
  const work = async (): Promise<void> => {
    for (let part = waiting.shift(); part !== undefined; part = waiting.shift()) {
      // `broken += await …` would read the sum before the part has run, and lose what other parts add meanwhile.
      const found = await runPart(part, run);
      broken += found;
    }
  };
  await Promise.all(Array.from({ length: parts.jobs }, work));
  const perSecond = (seeds / ((performance.now() - started) / 1000)).toFixed(1);
  const last = parts.first + parts.count - 1;
  const omitted = left === 0 ? "" : `; ${left} parts were in the table`;
  console.log(
    `all ${all.length} parts, seeds ${parts.first} to ${last}: ${broken} broken; ${perSecond} a second${omitted}`,
  );
  if (record !== undefined) console.log(`${record.file}: ${record.total}`);
  return broken;
}

function split({ first, count, jobs }: Parts): Part[] {
  const size = Math.min(PART, Math.ceil(count / jobs));
  const parts: Part[] = [];
  for (let done = 0; done < count; done += size)
    parts.push({ first: first + done, count: Math.min(size, count - done) });
  return parts;
}

interface PartRun {
  readonly args: readonly string[];
  readonly record: PartTable | undefined;
  readonly commit: string;
}

/** @throws {Error} if the process ends without its summary. */
async function runPart({ first, count }: Part, { args, record, commit }: PartRun): Promise<number> {
  const seeds = ["--seed", String(first), "--seeds", String(count)];
  const command = ["scripts/bundled.js", "test/sim/run/main.ts", ...seeds, ...args];
  const child = spawn(process.execPath, [...process.execArgv, ...command], {
    ...{ cwd: ROOT, stdio: ["ignore", "pipe", "inherit"] },
  });
  const [output] = await Promise.all([text(child.stdout), once(child, "exit")]);
  process.stdout.write(output);
  const [, , , found, contents = "", hash = "", speed = ""] = SUMMARY.exec(output) ?? [];
  if (found === undefined) throw new Error(`the part from seed ${first} ended with code ${child.exitCode}`);
  const broken = Number(found);
  record?.add({ first, last: first + count - 1, broken, contents, hash, speed, commit });
  return broken;
}

/** With a "+" if the tree has changes. */
async function commitNow(): Promise<string> {
  const git = promisify(execFile);
  const args = ["describe", "--always", "--dirty=+", "--exclude=*"];
  return git("git", args, { cwd: ROOT }).then(
    ({ stdout }) => stdout.trim(),
    () => "unknown",
  );
}
