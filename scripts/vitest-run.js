// Runs a part of the tests that `npm test` omits.
import { spawn } from "node:child_process";
import { once } from "node:events";
import path from "node:path";
import { fileURLToPath } from "node:url";
import { EXIT_NOT_RUN } from "./exit-not-run.js";

export const ROOT = fileURLToPath(new URL("../", import.meta.url));

/**
 * @param {string} filter
 * @param {{ env: NodeJS.ProcessEnv, within?: readonly string[], args?: readonly string[] }} how `within`: the command that
 *   starts vitest, and that execs it; `args` for vitest
 * @returns {Promise<number>} its exit code
 */
export async function runVitest(filter, { env, within = [], args = [] }) {
  const vitest = path.join(ROOT, "node_modules/vitest/vitest.mjs");
  const [command = process.execPath, ...rest] = [...within, process.execPath, vitest, "run", filter, ...args];
  const child = spawn(command, rest, { cwd: ROOT, stdio: "inherit", env: { ...process.env, ...env } });
  const [code] = await once(child, "exit");
  return /** @type {number | null} */ (code) ?? 1;
}

/** @param {Error} error why it cannot be run @returns {never} */
export function exitNotRun({ message }) {
  console.log(`not run: ${message}`);
  process.exit(EXIT_NOT_RUN);
}
