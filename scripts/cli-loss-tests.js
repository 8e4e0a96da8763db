// Runs test/cli-loss: `leasehold run` loses its lock in several ways while the next holder waits, many times over.
// `--rounds N`: rounds of each way, 10 unless told. Prints `not run: reason` and exits with 75 without Perl or /proc.
import { execFile } from "node:child_process";
import { existsSync } from "node:fs";
import { parseArgs, promisify } from "node:util";
import { exitNotRun, runVitest } from "./vitest-run.js";

const { rounds } = parseArgs({ options: { rounds: { type: "string", default: "10" } } }).values;
if (!/^[1-9]\d*$/.test(rounds)) throw new RangeError(`--rounds must be a positive number, got "${rounds}"`);
if (!existsSync("/proc/self/stat")) exitNotRun(new Error("this system has no /proc"));
await promisify(execFile)("perl", ["-MTime::HiRes=CLOCK_MONOTONIC", "-e", "1"]).catch(exitNotRun);
console.log(`${rounds} rounds of each way to lose a lock.`);
process.exitCode = await runVitest("test/cli-loss", { env: { LEASEHOLD_CLI_LOSS: rounds } });
