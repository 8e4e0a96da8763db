// The programs of docs/testing-your-code.md, by the runners that are installed here, in a user's project.
import { execFile } from "node:child_process";
import path from "node:path";
import { fileURLToPath } from "node:url";
import { expect, it } from "vitest";
import { findEtcd } from "../../support/etcd/etcd.js";
import { testProgram } from "../../support/fixtures/test-programs.js";
import { UserProject } from "../../support/fixtures/user-project.js";
import { owned } from "../../support/programs/owned.js";

const ROOT = fileURLToPath(new URL("../../../", import.meta.url));

async function run(project: UserProject, args: readonly string[]) {
  const { etcd } = await findEtcd();
  // This test's own runner must not be found by the other one.
  const env = Object.fromEntries(
    Object.entries(process.env).filter(([name]) => !/^(VITEST|NODE_TEST|NODE_OPTIONS|TEST$)/.test(name)),
  );
  const options = { cwd: project.folder, env: { ...env, LEASEHOLD_ETCD: path.dirname(etcd) } };
  return new Promise<{ code: number | null; text: string }>((resolve) => {
    const child = owned(
      execFile(process.execPath, args, options, (_error, stdout, stderr) =>
        resolve({ code: child.exitCode, text: stdout + stderr }),
      ),
    );
  });
}

it("the example for node:test passes", { timeout: 60_000 }, async () => {
  using project = new UserProject();
  project.write("handover.test.js", testProgram("node:test"));

  const { code, text } = await run(project, ["--test", "--test-reporter=tap", "handover.test.js"]);

  expect(text).toMatch(/^# pass 1$/m);
  expect(code).toBe(0);
});

it("the example for vitest passes", { timeout: 60_000 }, async () => {
  using project = new UserProject(["vitest"]);
  project.write("nightly.test.js", testProgram("vitest"));
  const vitest = path.join(ROOT, "node_modules/vitest/vitest.mjs");

  const { code, text } = await run(project, [vitest, "run", "--reporter=json"]);

  expect(text).toMatch(/"numPassedTests":2/);
  expect(code).toBe(0);
});
