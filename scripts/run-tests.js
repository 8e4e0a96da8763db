// `npm test [-- FILTER …]`: unit and integration tests against a separate etcd. `npm run test:all [-- FILTER …]`: all tests.
// Arguments are passed to vitest: `npm test -- mutex`, `npm test -- -t "aborts"`; a filter searches all tests. In CI, files that
// failed beside others run again alone.
import { spawn } from "node:child_process";
import { once } from "node:events";
import os from "node:os";
import path from "node:path";
import { fileURLToPath } from "node:url";
import { exitWhenMissing, findEtcd } from "../test/support/etcd/etcd.js";
import { newFailures, repeatable } from "./unsteady.js";

const ROOT = fileURLToPath(new URL("../", import.meta.url));
/** The projects of vitest.config.ts. */
const SHORT = ["unit", "integration", "alone"];
const LONG = ["slow", "meta", "slow-alone"];

const etcd = await findEtcd().catch(exitWhenMissing);
console.log(`Testing with etcd ${etcd.version} (${etcd.etcd}) on Node ${process.versions.node}.`);

/** @param {readonly string[]} args @param {NodeJS.ProcessEnv} env @returns {Promise<number>} the exit code */
async function vitest(args, env = {}) {
  const main = path.join(ROOT, "node_modules/vitest/vitest.mjs");
  const reporter = path.join(ROOT, "scripts/test-reporter.js");
  const child = spawn(process.execPath, [main, "run", `--reporter=${reporter}`, ...args], {
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

/** Runs the tests once and, if CI may repeat what failed, the failed files alone. @returns {Promise<number>} */
async function suite() {
  const failures = newFailures();
  const { projects, next, args } = chosen(process.argv.slice(2));
  const flags = projects.map((name) => `--project=${name}`);
  const code = await vitest([...flags, ...args], { LEASEHOLD_FAILED: failures.path });
  if (code === 0 && next) console.log(`Next: ${next}`);
  const failed = failures.read();
  if (code !== 1 || !process.env["CI"] || !repeatable(failed)) return code;
  console.log(`\nAgain, alone: ${failed.map(({ file }) => file).join(", ")}`);
  const again = await vitest([...failed.map(({ file }) => file), "--maxWorkers=1", "--no-file-parallelism"]);
  if (again === 0)
    for (const { file, tests } of failed) console.log(`unsteady: ${file}: ${tests.join("; ")}`);
  return again;
}

/** @param {readonly string[]} words */
function chosen(words) {
  const args = words.filter((word) => word !== "--all" && word !== "--rest");
  if (words.includes("--all")) return { projects: [...SHORT, ...LONG], args };
  if (words.includes("--rest")) return { projects: LONG, args };
  if (args.some(choosesTests)) return { projects: [], args };
  return {
    projects: SHORT,
    args,
    next: "npm run test:all, which also runs the slow tests and those of the repository",
  };
}

/** Whether the word is a filter, or an option that chooses tests: these search everywhere. @param {string} word */
function choosesTests(word, /** @type {number} */ index, /** @type {readonly string[]} */ words) {
  if (/^(-t|--testNamePattern|--changed|--project)\b/.test(word)) return true;
  const before = words[index - 1] ?? "";
  // The value of an option, as in `--maxWorkers 1`.
  return !word.startsWith("-") && !(before.startsWith("--") && !before.includes("="));
}

process.exitCode = await suite();
