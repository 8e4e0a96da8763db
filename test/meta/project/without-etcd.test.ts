// `npm test` on a machine that has no etcd, and nothing that downloads one. `.ci/bare nothing` runs all of it there.
import { spawnSync } from "node:child_process";
import { mkdtempSync, rmSync } from "node:fs";
import os from "node:os";
import path from "node:path";
import { fileURLToPath } from "node:url";
import { expect, onTestFinished, test } from "vitest";

const ROOT = fileURLToPath(new URL("../../../", import.meta.url));
/** It starts a runner of its own, beside others. */
const RUN_MS = 100_000;

function npmTest(env: Readonly<Record<string, string>>) {
  const HOME = mkdtempSync(path.join(os.tmpdir(), "leasehold-home-"));
  onTestFinished(() => rmSync(HOME, { recursive: true }));
  const words = ["scripts/run-tests.js", "test/unit/fence", "test/integration/locks/endings"];
  return spawnSync(process.execPath, words, {
    ...{ cwd: ROOT, encoding: "utf8", timeout: RUN_MS, env: { PATH: HOME, HOME, ...env } },
  });
}

test(
  "npm test runs the files that need no real etcd, and says how many others it did not run",
  () => {
    const { status, stdout } = npmTest({});

    expect(stdout).toMatch(/tests passed, 0 failed, in 1 files/);
    expect(stdout).toMatch(/^not run: \d+ files of test\/integration: they need a real etcd$/m);
    expect(stdout).toContain("No etcd was found on this machine");
    expect(status).toBe(0);
  },
  RUN_MS,
);

test.each([["CI", "true"] as const, ["LEASEHOLD_ETCD_VERSION", "3.4"] as const])(
  "npm test runs nothing then with %s=%s, and fails",
  (name, value) => {
    const { status, stderr } = npmTest({ [name]: value });

    expect(stderr).toMatch(/^No etcd .*was found on this machine/);
    expect(status).toBe(69);
  },
);
