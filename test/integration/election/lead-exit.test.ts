import { execFile, execFileSync } from "node:child_process";
import { fileURLToPath } from "node:url";
import { promisify } from "node:util";
import { beforeAll, expect, test } from "vitest";
import { leasesOf } from "../../support/clients/server-view.js";
import { twoSessions } from "../../support/fixtures/two-sessions.js";

const BUILD = fileURLToPath(new URL("../../../scripts/build.js", import.meta.url));
const PROGRAM = fileURLToPath(new URL("../../support/programs/lead-exit-program.js", import.meta.url));

const two = twoSessions(20);
beforeAll(() => void execFileSync(process.execPath, [BUILD], { timeout: 120_000 }), 130_000);

test("a process that has left its observer and ended its lead exits by itself; a listener that threw did not stop it", async () => {
  const before = await leasesOf(two.etcd.member);

  // Killed, and therefore failed, if something keeps it alive.
  const args = [PROGRAM, two.etcd.endpoints.join()];
  const { stdout, stderr } = await promisify(execFile)(process.execPath, args, { timeout: 25_000 });

  expect(JSON.parse(stdout)).toEqual({ seen: [null], thrown: ["the listener's own"] });
  expect(stderr).toBe("");
  expect(await leasesOf(two.etcd.member)).toEqual(before);
});
