// What becomes of the programs that a test starts, when it fails and when its runner is killed.
import { execFile } from "node:child_process";
import { readFileSync } from "node:fs";
import path from "node:path";
import { fileURLToPath } from "node:url";
import { afterAll, beforeAll, expect, onTestFinished, test } from "vitest";
import { type EtcdCluster, startEtcd } from "../../support/etcd/etcd.js";
import { UserProject } from "../../support/fixtures/user-project.js";
import { owned } from "../../support/programs/owned.js";
import { pidsWith } from "../../support/programs/process-state.js";

const ROOT = fileURLToPath(new URL("../../../", import.meta.url));
const CONFIG = `
export default {
  test: { isolate: false, pool: "forks", setupFiles: ["${ROOT}test/support/setup.ts"], testTimeout: 20_000 },
};
`;
/** All kinds of programs: with and without a terminal, with commands and groups of their own, and one that is stopped. */
const TESTS = `
import { spawn } from "node:child_process";
import { writeFileSync } from "node:fs";
import { expect, test } from "vitest";
import { startCli } from "${ROOT}test/support/programs/cli.js";
import { owned } from "${ROOT}test/support/programs/owned.js";
import { commandOf, pidsWith } from "${ROOT}test/support/programs/process-state.js";
import { Said } from "${ROOT}test/support/programs/said.js";

const name = (text) => text + process.pid;
const programs = () =>
  pidsWith("STARTED_IN=" + process.env.STARTED_IN).map(commandOf).filter((line) => /leasehold-cli|sleep/.test(line));

test("starts programs", async () => {
  const settings = { endpoints: process.env.ENDPOINTS };
  const terminal = { ...settings, terminal: true };
  const command = ["--", "sh", "-c", "trap '' HUP; echo ready; sleep 1000"];
  const started = [
    startCli(["top"], terminal),
    startCli(["top", "--json"], settings),
    startCli(["run", name("a"), ...command], terminal),
    startCli(["run", name("b"), ...command], settings),
    startCli(["lead", name("c"), ...command], settings),
    startCli(["ui"], settings),
  ];
  await Promise.all(started.map(({ says }) => says(/NAME|{|ready|http/)));
  owned(spawn("sleep", ["1000"])).kill("SIGSTOP");
  const group = spawn("sh", ["-c", "sleep 1000 & echo ready; wait"], { detached: true });
  await new Said(owned(group, { group: true })).next();
  writeFileSync("programs", String(programs()));
  await theEnd;
});

test("finds them gone", async () => {
  await expect.poll(programs).toEqual([]);
});
`;

let etcd: EtcdCluster;
beforeAll(async () => void (etcd = await startEtcd()));
afterAll(() => etcd.stop());

/** Runs the tests until vitest has ended. */
async function run(project: UserProject, end: string) {
  project.write("vitest.config.js", CONFIG);
  project.write("programs.test.js", TESTS.replace("theEnd", end));
  const vitest = path.join(ROOT, "node_modules/vitest/vitest.mjs");
  // This test's own runner must not be found by the other one.
  const own = Object.entries(process.env).filter(([name]) => !/^(VITEST|TEST$)/.test(name));
  const rest = { STARTED_IN: project.folder, ENDPOINTS: etcd.endpoints.join(), NO_COLOR: "1" };
  const env = { ...Object.fromEntries(own), ...rest };
  return new Promise<string>((resolve) => {
    const options = { cwd: project.folder, env };
    const done = (_error: unknown, stdout: string, stderr: string) => resolve(stdout + stderr);
    owned(execFile(process.execPath, [vitest, "run"], options, done));
  });
}

test.each([
  ["fails end with it", `Promise.reject(new Error("no"))`, /1 failed.*1 passed/],
  ["kills its worker end", `process.kill(process.pid, "SIGKILL")`, /Worker exited unexpectedly/],
  ["kills its runner end", `new Promise(() => process.kill(process.ppid, "SIGKILL"))`, /^(?!.*passed)/s],
])("the programs that a test has started when it %s", { timeout: 60_000 }, async (_title, end, says) => {
  using project = new UserProject(["vitest"]);
  const left = () => pidsWith(`STARTED_IN=${project.folder}`);
  onTestFinished(() => left().forEach((pid) => process.kill(pid, "SIGKILL")));

  const text = await run(project, end);

  expect(text).toMatch(says);
  const programs = readFileSync(path.join(project.folder, "programs"), "utf8");
  for (const each of ["top", "run", "lead", "ui", "sleep 1000"]) expect(programs).toContain(each);
  await expect.poll(left).toEqual([]);
});
