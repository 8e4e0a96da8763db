// Runs the programs of docs/testing-your-code.md with Jest, as ES modules and as CommonJS, in a folder with the packed package and Jest
// from the registry. Then 1,000 of its cases with Jest, vitest and node:test; prints the seconds that each takes, and how many locks
// the etcd inside the process makes in a second.
// Prints `not run: reason` and exits with 75 without the registry.
import { execFile } from "node:child_process";
import { mkdtemp, rm, symlink, writeFile } from "node:fs/promises";
import os from "node:os";
import path from "node:path";
import { fileURLToPath } from "node:url";
import { promisify } from "node:util";
import { findEtcd } from "../test/support/etcd/etcd.js";
import { asCommonJs, CASES, casesProgram, heartbeatProgram } from "../test/support/fixtures/test-programs.js";
import { exitNotRun } from "./vitest-run.js";

const ROOT = fileURLToPath(new URL("../", import.meta.url));
const JEST = "jest@30";
const run = promisify(execFile);

const FAKE = /** @type {const} */ ({ timers: "fake" });
const REAL = /** @type {const} */ ({ etcd: "startEtcd" });
const TIMES = Math.ceil(1_000 / CASES.length);
const MANY = TIMES * CASES.length;

const LOCKS = 20_000;
const SPEED = `import { connect, Mutex } from "leasehold";
import { memoryEtcd } from "leasehold/testing";
const etcd = await memoryEtcd({ time: process.argv[2] });
const cluster = connect({ hosts: etcd.hosts });
const mutex = new Mutex(cluster, "a");
const since = performance.now();
for (let n = 0; n < ${LOCKS}; n++) await (await mutex.lock()).release();
console.log(Math.round(${LOCKS} / (performance.now() - since) * 1_000) + " locks/s");
await cluster.close();
await etcd.stop();
`;

/** What each of them runs. `passed` matches the output if it has; its group, or else the seconds, are printed. */
const RUNS = [
  {
    name: "the guide with Jest",
    files: {
      "cases.test.mjs": casesProgram("Jest"),
      "fake.test.mjs": casesProgram("Jest", FAKE),
      "cases.test.cjs": asCommonJs(casesProgram("Jest")),
      "fake.test.cjs": asCommonJs(casesProgram("Jest", FAKE)),
      "heartbeat.test.mjs": heartbeatProgram("Jest"),
      "heartbeat.test.cjs": asCommonJs(heartbeatProgram("Jest")),
    },
    args: ["node_modules/jest/bin/jest.js", "--ci", "--testTimeout=60000", "--rootDir=."],
    passed: new RegExp(`^Tests: +${4 * CASES.length + 2} passed, ${4 * CASES.length + 2} total$`, "m"),
  },
  {
    name: "the guide's cases with Jest and a real etcd",
    files: { "real.test.mjs": casesProgram("Jest", REAL) },
    args: ["node_modules/jest/bin/jest.js", "--ci", "--testTimeout=60000", "--rootDir=."],
    passed: new RegExp(`^Tests: +${CASES.length} passed, ${CASES.length} total$`, "m"),
  },
  {
    name: `${MANY} tests of the guide with Jest`,
    files: { "many.test.cjs": asCommonJs(casesProgram("Jest", { times: TIMES })) },
    args: ["node_modules/jest/bin/jest.js", "--ci", "--rootDir=."],
    passed: new RegExp(`^Tests: +${MANY} passed, ${MANY} total$`, "m"),
  },
  {
    name: `${MANY} tests of the guide with vitest`,
    files: { "many.test.js": casesProgram("vitest", { times: TIMES }) },
    args: ["node_modules/vitest/vitest.mjs", "run"],
    passed: new RegExp(`^ *Tests +${MANY} passed`, "m"),
  },
  {
    name: `${MANY} tests of the guide with node:test`,
    files: { "many.test.js": casesProgram("node:test", { times: TIMES }) },
    args: ["--test", "--test-reporter=tap"],
    passed: new RegExp(`^# pass ${MANY}$`, "m"),
  },
  ...["real", "virtual"].map((time) => ({
    name: `locks of a free mutex, one after the other, in ${time} time`,
    files: { "speed.js": SPEED },
    args: ["speed.js", time],
    passed: /^(\d+ locks\/s)$/m,
  })),
];

const folder = await mkdtemp(path.join(os.tmpdir(), "leasehold-runners-"));
try {
  await install();
  for (const each of RUNS) if (!(await passes(each))) process.exitCode = 1;
} finally {
  await rm(folder, { recursive: true, force: true });
}

async function install() {
  const { stdout } = await run("npm", ["pack", "--json", "--pack-destination", folder], { cwd: ROOT });
  const [{ filename }] = /** @type {[{ filename: string }]} */ (JSON.parse(stdout));
  await writeFile(path.join(folder, "package.json"), '{ "type": "module" }');
  const args = ["install", "--no-audit", "--no-fund", `./${filename}`, JEST];
  await run("npm", args, { cwd: folder, timeout: 240_000 }).catch(async (error) => {
    await rm(folder, { recursive: true, force: true });
    exitNotRun(
      new Error(`${JEST} cannot be had from the registry: ${lastLine(error.stderr ?? error.message)}`),
    );
  });
  await symlink(path.join(ROOT, "node_modules/vitest"), path.join(folder, "node_modules/vitest"), "dir");
}

/** @param {(typeof RUNS)[number]} each */
async function passes({ name, files, args, passed }) {
  const cwd = await mkdtemp(path.join(folder, "run-"));
  await symlink(path.join(folder, "node_modules"), path.join(cwd, "node_modules"), "dir");
  await writeFile(path.join(cwd, "package.json"), '{ "type": "module" }');
  for (const [file, text] of Object.entries(files)) await writeFile(path.join(cwd, file), text);
  const { etcd } = await findEtcd();
  const env = {
    ...process.env,
    LEASEHOLD_ETCD: path.dirname(etcd),
    NO_COLOR: "1",
    NODE_OPTIONS: "--experimental-vm-modules",
  };
  const since = performance.now();
  const ended = await run(process.execPath, args, { cwd, env, timeout: 240_000, maxBuffer: 1 << 26 }).then(
    ({ stdout, stderr }) => ({ code: 0, text: stdout + stderr }),
    (error) => ({ code: 1, text: `${error.stdout}${error.stderr}` }),
  );
  const seconds = `${((performance.now() - since) / 1_000).toFixed(1)} s`;
  const match = ended.code === 0 ? passed.exec(ended.text) : null;
  console.log(match === null ? `${ended.text}\n${name}: failed` : `${name}: ${match[1] ?? seconds}`);
  return match !== null;
}

/** @param {string} text */
function lastLine(text) {
  return text.trim().split("\n").at(-1) ?? "";
}
