// `npm test [-- FILTER …]`: all tests against a separate etcd, followed by the ten slowest tests. Arguments are passed
// to vitest: `npm test -- mutex`, `npm test -- -t "aborts"`. In CI, files that failed beside others run again alone.
import { spawn } from "node:child_process";
import { once } from "node:events";
import os from "node:os";
import path from "node:path";
import { fileURLToPath } from "node:url";
import { exitWhenMissing, findEtcd } from "../test/support/etcd/etcd.js";
import { newFailures, repeatable } from "./unsteady.js";

const ROOT = fileURLToPath(new URL("../", import.meta.url));
const script = (/** @type {string} */ name) => path.join(ROOT, "scripts", name);

const etcd = await findEtcd().catch(exitWhenMissing);
console.log(`Testing with etcd ${etcd.version} (${etcd.etcd}) on Node ${process.versions.node}.`);

/** @param {readonly string[]} args @param {NodeJS.ProcessEnv} env @returns {Promise<number>} the exit code */
async function vitest(args, env = {}) {
  const main = path.join(ROOT, "node_modules/vitest/vitest.mjs");
  const reporters = ["default", script("slowest-reporter.js"), script("failed-reporter.js")];
  const flags = reporters.map((reporter) => `--reporter=${reporter}`);
  const child = spawn(process.execPath, [main, "run", ...flags, ...args], {
    cwd: ROOT,
    stdio: "inherit",
    env: { ...process.env, ...env },
  });
  // a terminal sends Ctrl-C to vitest as well; when it ends, so does this process
  const pass = (/** @type {NodeJS.Signals} */ name) => void (name !== "SIGINT" && child.kill(name));
  const signals = /** @type {const} */ (["SIGINT", "SIGTERM", "SIGHUP"]);
  for (const name of signals) process.on(name, pass);
  const [code, signal] = await once(child, "exit");
  for (const name of signals) process.off(name, pass);
  return code ?? 128 + (os.constants.signals[/** @type {NodeJS.Signals} */ (signal)] ?? 0);
}

/** Runs the suite once and, if CI may repeat what failed, the failed files alone. @returns {Promise<number>} */
async function suite() {
  const failures = newFailures();
  const args = process.argv.slice(2);
  const code = await vitest(args, { LEASEHOLD_FAILED: failures.path });
  const failed = failures.read();
  if (code !== 1 || !process.env["CI"] || !repeatable(failed)) return code;
  console.log(`\nAgain, alone: ${failed.map(({ file }) => file).join(", ")}`);
  const again = await vitest([...failed.map(({ file }) => file), "--maxWorkers=1", "--no-file-parallelism"]);
  if (again === 0)
    for (const { file, tests } of failed) console.log(`unsteady: ${file}: ${tests.join("; ")}`);
  return again;
}

process.exitCode = await suite();
