import { execFile, spawn } from "node:child_process";
import { once } from "node:events";
import { appendFileSync, existsSync } from "node:fs";
import { text } from "node:stream/consumers";
import { fileURLToPath } from "node:url";
import { promisify } from "node:util";

const ROOT = fileURLToPath(new URL("../../../", import.meta.url));
/** Seeds of a part, at most. A new process needs a few seconds until its code is compiled. */
const PART = 5000;
/** What a process prints last. */
const SUMMARY = /^seeds (\d+) to (\d+): (\d+) broken; (.*); (.*)$/m;
const HEADING =
  "| seeds | broken | contents | speed | commit | Node.js |\n| --- | --- | --- | --- | --- | --- |\n";

export interface Parts {
  readonly first: number;
  readonly count: number;
  /** How many run at the same time, each on one core. */
  readonly jobs: number;
  /** What else each process gets. */
  readonly args: readonly string[];
  /** A table in Markdown that gets a row for each part. */
  readonly record: string | undefined;
}

interface Part {
  readonly first: number;
  readonly count: number;
}

/** Runs the seeds in parts, each in a process of its own. Prints each part, then the total; returns the number of broken seeds. */
export async function runParts(parts: Parts): Promise<number> {
  const waiting = split(parts);
  const size = waiting.length;
  const commit = await commitNow();
  const started = performance.now();
  let broken = 0;
  const work = async (): Promise<void> => {
    for (let part = waiting.shift(); part !== undefined; part = waiting.shift())
      broken += await runPart(part, parts, commit);
  };
  await Promise.all(Array.from({ length: parts.jobs }, work));
  const perSecond = (parts.count / ((performance.now() - started) / 1000)).toFixed(1);
  const last = parts.first + parts.count - 1;
  console.log(`all ${size} parts, seeds ${parts.first} to ${last}: ${broken} broken; ${perSecond} a second`);
  return broken;
}

function split({ first, count, jobs }: Parts): Part[] {
  const size = Math.min(PART, Math.ceil(count / jobs));
  const parts: Part[] = [];
  for (let done = 0; done < count; done += size)
    parts.push({ first: first + done, count: Math.min(size, count - done) });
  return parts;
}

/** @throws {Error} if the process ends without its summary. */
async function runPart({ first, count }: Part, { args, record }: Parts, commit: string): Promise<number> {
  const seeds = ["--seed", String(first), "--seeds", String(count)];
  const command = ["scripts/bundled.js", "test/sim/run/main.ts", ...seeds, ...args];
  const child = spawn(process.execPath, [...process.execArgv, ...command], {
    ...{ cwd: ROOT, stdio: ["ignore", "pipe", "inherit"] },
  });
  const [output] = await Promise.all([text(child.stdout), once(child, "exit")]);
  process.stdout.write(output);
  const [, from, to, broken, contents, speed] = SUMMARY.exec(output) ?? [];
  if (broken === undefined) throw new Error(`the part from seed ${first} ended with code ${child.exitCode}`);
  if (record !== undefined) {
    const row = `| ${from} to ${to} | ${broken} | ${contents} | ${speed} | ${commit} | ${process.versions.node} |\n`;
    appendFileSync(record, existsSync(record) ? row : HEADING + row);
  }
  return Number(broken);
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
