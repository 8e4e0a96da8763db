import { execFile, spawn } from "node:child_process";
import { once } from "node:events";
import { text } from "node:stream/consumers";
import { promisify } from "node:util";
import { mkdtemp, readFile } from "node:fs/promises";
import { tmpdir } from "node:os";
import path from "node:path";
import { expect, test } from "vitest";
import { sources } from "../../sim/run/build.js";
import { runSim } from "../../sim/run/sim-run.js";
import { swarmOf } from "../../sim/run/swarm.js";

const build = await sources();

test("faults hit something in nearly all of the long runs", async () => {
  let calm = 0;
  for (let seed = 1; seed <= 12; seed++)
    if ((await runSim({ ...swarmOf(String(seed)), build })).hits.length === 0) calm++;
  expect(calm).toBeLessThan(3);
}, 300_000);

test("the bundle of the program gives the same hash as its sources", async () => {
  const { hash } = await runSim({ ...swarmOf("3"), build });
  const command = ["scripts/bundled.js", "test/sim/run/main.ts", "--seed", "3"];
  const { stdout } = await promisify(execFile)(process.execPath, command);
  expect(stdout).toContain(`seed 3: hash ${hash}`);
}, 60_000);

test("seeds in parts are all run once, and each part has its line and its row, with the hash of its runs", async () => {
  const record = path.join(await mkdtemp(path.join(tmpdir(), "leasehold-sim-")), "parts.md");
  const run = async (count: number): Promise<string> => {
    const seeds = ["--short", "--seed", "7", "--seeds", String(count), "--jobs", "2", "--record", record];
    const command = ["scripts/bundled.js", "test/sim/run/main.ts", ...seeds];
    return (await promisify(execFile)(process.execPath, command)).stdout;
  };
  const ranges = (output: string) => output.match(/\d+ to \d+/g)!.sort();
  const hashes = (output: string) => output.match(/[0-9a-f]{16}/g)!.sort();

  const first = await run(5);
  expect(ranges(first)).toEqual(["10 to 11", "7 to 11", "7 to 9"]);
  expect(first).toContain("all 2 parts, seeds 7 to 11: 0 broken");
  const table = await readFile(record, "utf8");
  expect(ranges(table)).toEqual(["10 to 11", "7 to 9"]);
  expect(hashes(table)).toEqual(hashes(first));
  expect(new Set(hashes(table)).size).toBe(2);

  // One seed more: the part from 7 to 9 is in the table, and the part from 10 to 12 is not.
  const second = await run(6);
  expect(ranges(second)).toEqual(["10 to 12", "7 to 12"]);
  expect(second).toContain("1 parts were in the table");
  expect(second).toContain(`${record}: 6 seeds in 3 parts, 0 broken`);
}, 120_000);

test("the replay command of a broken seed repeats each option that differs from the choice of the seed", async () => {
  const bundled = ["scripts/bundled.js", "test/sim/run/main.ts"];
  const broken = ["--seed", "1", "--mutant", "whole-ttl", "--only", "5,9,10", "--processes", "1"];
  const { stdout } = await promisify(execFile)(process.execPath, [...bundled, ...broken]).catch(
    (error: { stdout: string }) => error,
  );
  expect(stdout).toMatch(
    /^ {2}replay: npm run sim -- --mutant whole-ttl --seed 1 --only [\d,]+ --processes 1$/m,
  );
}, 60_000);

test("the program ends as by SIGPIPE, without a stack trace, once the reader of its output has gone", async () => {
  const command = ["scripts/bundled.js", "test/sim/run/main.ts", "--seed", "8", "--print"];
  const program = spawn(process.execPath, command, { stdio: ["ignore", "pipe", "pipe"] });
  const exit = once(program, "exit");
  const errors = text(program.stderr);
  program.stdout.once("data", () => program.stdout.destroy());

  expect(await exit).toEqual([141, null]);
  expect(await errors).toBe("");
}, 60_000);
