// Runs vitest with this project's reporter. In CI, files that failed beside others run again alone.
import { spawn } from "node:child_process";
import { once } from "node:events";
import os from "node:os";
import path from "node:path";
import { fileURLToPath } from "node:url";
import { EXIT_NOT_RUN } from "./exit-not-run.js";
import { newFailures, repeatable } from "./unsteady.js";

export const ROOT = fileURLToPath(new URL("../", import.meta.url));

/** @typedef {{ env?: NodeJS.ProcessEnv | undefined, within?: readonly string[] | undefined }} How `within`: the command that starts vitest, and that execs it */

/**
 * Runs the tests once and, if CI may repeat what failed, the failed files alone.
 * @param {readonly string[]} args of vitest
 * @param {How} how
 * @returns {Promise<number>} the exit code
 */
export async function runVitest(args, { env, within } = {}) {
  const failures = newFailures();
  const code = await vitest(args, { env: { LEASEHOLD_FAILED: failures.path, ...env }, within });
  const failed = failures.read();
  if (code !== 1 || !process.env["CI"] || !repeatable(failed)) return code;
  console.log(`\nAgain, alone: ${failed.map(({ file }) => file).join(", ")}`);
  const alone = [...failed.map(({ file }) => file), "--maxWorkers=1", "--no-file-parallelism"];
  const again = await vitest(alone, { env, within });
  if (again === 0)
    for (const { file, tests } of failed) console.log(`unsteady: ${file}: ${tests.join("; ")}`);
  return again;
}

/** @param {readonly string[]} args @param {How} how */
async function vitest(args, { env, within = [] }) {
  const main = path.join(ROOT, "node_modules/vitest/vitest.mjs");
  const reporter = path.join(ROOT, "scripts/test-reporter.js");
  const call = [...within, process.execPath, main, "run", `--reporter=${reporter}`, ...args];
  const [command = process.execPath, ...rest] = call;
  const child = spawn(command, rest, { cwd: ROOT, stdio: "inherit", env: { ...process.env, ...env } });
  // a terminal sends Ctrl-C to vitest as well; when it ends, so does this process
  const pass = (/** @type {NodeJS.Signals} */ name) => void (name !== "SIGINT" && child.kill(name));
  const signals = /** @type {const} */ (["SIGINT", "SIGTERM", "SIGHUP"]);
  for (const name of signals) process.on(name, pass);
  const [code, signal] = await once(child, "exit");
  for (const name of signals) process.off(name, pass);
  return code ?? 128 + (os.constants.signals[/** @type {NodeJS.Signals} */ (signal)] ?? 0);
}

/** @param {Error} error why it cannot be run @returns {never} */
export function exitNotRun({ message }) {
  console.log(`not run: ${message}`);
  process.exit(EXIT_NOT_RUN);
}
