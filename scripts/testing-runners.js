// Runs the Jest example of docs/testing-your-code.md, and tests in virtual time with Jest's fake timers, in a folder with the packed
// package and Jest from the registry.
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

const IMPORTS = {
  "memory.test.mjs": `import { jest } from "@jest/globals";
import { connect, Mutex } from "leasehold";
import { memoryEtcd } from "leasehold/testing";`,
  "memory.test.cjs": `const { connect, Mutex } = require("leasehold");
const { memoryEtcd } = require("leasehold/testing");`,
};
const MEMORY_TESTS = `
for (const timers of ["real", "fake"]) {
  test("a lock is lost, and taken again, in virtual time with the " + timers + " timers of Jest", async () => {
    if (timers === "fake") jest.useFakeTimers();
    const etcd = await memoryEtcd({ time: "virtual", members: 3 });
    const mutex = new Mutex(connect({ hosts: etcd.hosts }), "jobs/nightly");
    const lock = await mutex.lock();
    await etcd.cut();
    await etcd.advance(20_000);
    expect(lock.signal.reason.loss).toBe("expired");
    await etcd.heal();
    const again = mutex.lock();
    await etcd.advance(20_000);
    expect((await again).fence > lock.fence).toBe(true);
    await etcd.stop();
    jest.useRealTimers();
  });
}
`;

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
  for (const [file, imports] of Object.entries(IMPORTS))
    await writeFile(path.join(folder, file), `${imports}\n${MEMORY_TESTS}`);
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
  return ended.code === 0 && /^Tests: +5 passed, 5 total$/m.test(ended.stderr) ? 0 : 1;
}

/** @param {string} text */
function lastLine(text) {
  return text.trim().split("\n").at(-1) ?? "";
}
