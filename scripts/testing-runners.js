// Runs the Jest example of docs/testing-your-code.md in a folder with the packed package and Jest from the registry.
// Prints `not run: reason` and exits with 75 without the registry.
import { execFile } from "node:child_process";
import { mkdtemp, rm, writeFile } from "node:fs/promises";
import os from "node:os";
import path from "node:path";
import { fileURLToPath } from "node:url";
import { promisify } from "node:util";
import { findEtcd } from "../test/support/etcd/etcd.js";
import { testProgram } from "../test/support/fixtures/test-programs.js";
import { exitNotRun } from "./vitest-run.js";

const ROOT = fileURLToPath(new URL("../", import.meta.url));
const JEST = "jest@30";
const run = promisify(execFile);

const folder = await mkdtemp(path.join(os.tmpdir(), "leasehold-jest-"));
try {
  process.exitCode = await runJest();
} finally {
  await rm(folder, { recursive: true, force: true });
}

async function runJest() {
  const { stdout } = await run("npm", ["pack", "--json", "--pack-destination", folder], { cwd: ROOT });
  const [{ filename }] = /** @type {[{ filename: string }]} */ (JSON.parse(stdout));
  await writeFile(path.join(folder, "package.json"), '{ "type": "module" }');
  await writeFile(path.join(folder, "outage.test.js"), testProgram("Jest"));
  const install = ["install", "--no-audit", "--no-fund", `./${filename}`, JEST];
  await run("npm", install, { cwd: folder, timeout: 240_000 }).catch(async (error) => {
    await rm(folder, { recursive: true, force: true });
    exitNotRun(
      new Error(`${JEST} cannot be had from the registry: ${lastLine(error.stderr ?? error.message)}`),
    );
  });
  const { etcd } = await findEtcd();
  const env = {
    ...process.env,
    LEASEHOLD_ETCD: path.dirname(etcd),
    NODE_OPTIONS: "--experimental-vm-modules",
  };
  const jest = path.join(folder, "node_modules/jest/bin/jest.js");
  const ended = await run(process.execPath, [jest, "--ci"], { cwd: folder, env, timeout: 120_000 }).then(
    ({ stderr }) => ({ code: 0, stderr }),
    (error) => ({ code: 1, stderr: String(error.stderr) }),
  );
  console.log(ended.stderr);
  return ended.code === 0 && /^Tests: +1 passed, 1 total$/m.test(ended.stderr) ? 0 : 1;
}

/** @param {string} text */
function lastLine(text) {
  return text.trim().split("\n").at(-1) ?? "";
}
