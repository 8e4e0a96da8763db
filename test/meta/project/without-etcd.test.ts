// `npm test` where nobody would read that it has left out what needs an etcd. `.ci/bare nothing` runs it without one otherwise.
import { spawnSync } from "node:child_process";
import { mkdtempSync, rmSync } from "node:fs";
import os from "node:os";
import path from "node:path";
import { fileURLToPath } from "node:url";
import { expect, onTestFinished, test } from "vitest";

const ROOT = fileURLToPath(new URL("../../../", import.meta.url));

test.each([["CI", "true"] as const, ["LEASEHOLD_ETCD_VERSION", "3.4"] as const])(
  "npm test runs nothing without an etcd with %s=%s, and fails",
  (name, value) => {
    const HOME = mkdtempSync(path.join(os.tmpdir(), "leasehold-home-"));
    onTestFinished(() => rmSync(HOME, { recursive: true }));
    const env = { PATH: HOME, HOME, [name]: value };
    const command = ["scripts/run-tests.js", "test/unit/fence"];
    const { status, stderr } = spawnSync(process.execPath, command, { cwd: ROOT, encoding: "utf8", env });

    expect(stderr).toMatch(/^No etcd .*was found on this machine/);
    expect(status).toBe(69);
  },
);
