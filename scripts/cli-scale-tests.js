// Runs test/cli-scale: the program with 1,000 locks and 5,000 waiters. Prints `not run: reason` and exits with 75 where the
// machine has no /proc or no util-linux `script`.
import { spawnSync } from "node:child_process";
import { existsSync } from "node:fs";
import { exitNotRun, runVitest } from "./vitest-run.js";

if (!existsSync("/proc/self/stat")) exitNotRun(new Error("there is no /proc, which has the processor times"));
if (spawnSync("script", ["--version"]).error)
  exitNotRun(new Error("there is no script, for a pseudo-terminal"));
process.exitCode = await runVitest("test/cli-scale", { env: { LEASEHOLD_CLI_SCALE: "1" } });
