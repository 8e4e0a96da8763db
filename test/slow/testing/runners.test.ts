// The programs of docs/testing-your-code.md, by the runners that are installed here, in a user's project.
import { execFile } from "node:child_process";
import { readFileSync } from "node:fs";
import path from "node:path";
import { fileURLToPath } from "node:url";
import { describe, expect, it } from "vitest";
import { findEtcd } from "../../support/etcd/etcd.js";
import {
  asCommonJs,
  CASES,
  casesProgram,
  heartbeatProgram,
  LINES_OF_CASES,
} from "../../support/fixtures/test-programs.js";
import { UserProject } from "../../support/fixtures/user-project.js";
import { owned } from "../../support/programs/owned.js";

const ROOT = fileURLToPath(new URL("../../../", import.meta.url));
const RUN_MS = 240_000;

/** Runs every test file of the project. */
const RUNNERS = {
  vitest: {
    args: [
      path.join(ROOT, "node_modules/vitest/vitest.mjs"),
      "run",
      "--testTimeout=60000",
      "--hookTimeout=60000",
    ],
    passed: (text: string) => Number(/^ *Tests .*?(\d+) passed/m.exec(text)?.[1]),
  },
  "node:test": {
    args: ["--test", "--test-reporter=tap"],
    passed: (text: string) => Number(/^# pass (\d+)$/m.exec(text)?.[1]),
  },
} as const;
type Runner = keyof typeof RUNNERS;

async function passed(runner: Runner, project: UserProject): Promise<number> {
  const { etcd } = await findEtcd();
  const { args, passed: count } = RUNNERS[runner];
  // This test's own runner must not be found by the other one.
  const env = Object.fromEntries(
    Object.entries(process.env).filter(([name]) => !/^(VITEST|NODE_TEST|NODE_OPTIONS|TEST$)/.test(name)),
  );
  const options = {
    cwd: project.folder,
    env: { ...env, NO_COLOR: "1", LEASEHOLD_ETCD: path.dirname(etcd) },
    maxBuffer: 1 << 26,
  };
  const { code, text } = await new Promise<{ code: number | null; text: string }>((resolve) => {
    const child = owned(
      execFile(process.execPath, args, options, (_error, stdout, stderr) =>
        resolve({ code: child.exitCode, text: stdout + stderr }),
      ),
    );
  });
  expect(code, text).toBe(0);
  return count(text);
}

const projectFor = (runner: Runner): UserProject => new UserProject(runner === "vitest" ? [runner] : []);

it("the page has six cases, of at most 12 lines each", () => {
  expect(CASES).toHaveLength(6);
  expect(Math.max(...LINES_OF_CASES)).toBeLessThanOrEqual(12);
});

describe.each(Object.keys(RUNNERS) as Runner[])("with %s", { timeout: RUN_MS }, (runner) => {
  it("the cases pass in virtual time, with its fake timers and without, and so does the program with both", async () => {
    using project = projectFor(runner);
    project.write("cases.test.js", casesProgram(runner));
    project.write("fake.test.js", casesProgram(runner, { timers: "fake" }));
    project.write("heartbeat.test.js", heartbeatProgram(runner));

    expect(await passed(runner, project)).toBe(2 * CASES.length + 1);
  });

  it("the cases pass with a real etcd, when one line is another one", async () => {
    using project = projectFor(runner);
    project.write("real.test.js", casesProgram(runner, { etcd: "startEtcd" }));

    expect(await passed(runner, project)).toBe(CASES.length);
  });
});

// Half as much on two cores of 2020; what else runs on the machine costs processor time, too.
const MOST_CPU_SECONDS = 20;

it(
  `1,000 of the cases take less than ${MOST_CPU_SECONDS} s of processor time`,
  { timeout: RUN_MS },
  async () => {
    using project = projectFor("node:test");
    const report = `process.on("exit", () => {
    const { user, system } = process.cpuUsage();
    require("node:fs").writeFileSync("seconds.txt", String((user + system) / 1e6));
  });`;
    const times = Math.ceil(1_000 / CASES.length);
    project.write("cases.test.cjs", asCommonJs(casesProgram("node:test", { times })) + report);

    expect(await passed("node:test", project)).toBe(times * CASES.length);
    const seconds = Number(readFileSync(path.join(project.folder, "seconds.txt"), "utf8"));
    expect(seconds).toBeLessThan(MOST_CPU_SECONDS);
  },
);
