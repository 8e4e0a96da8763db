// `leasehold demo`, as the package has it: processes of its own on an etcd of its own, and a verdict that can fail.
import { readdirSync } from "node:fs";
import os from "node:os";
import path from "node:path";
import { beforeAll, expect, test } from "vitest";
import type { PromiseJson } from "../../../src/cli/json-types.js";
import { EXIT } from "../../../src/cli/io.js";
import { buildPackage } from "../../support/fixtures/examples.js";
import { objectionsTo } from "../../support/fixtures/json-samples.js";
import { runCli, startCli } from "../../support/programs/cli.js";

/** Without an etcd that it could find, and with one of etcdctl's that does not answer. */
const BARE = { endpoints: "127.0.0.1:1", env: { PATH: path.dirname(process.execPath), LEASEHOLD_ETCD: "" } };
const PROMISES = [
  "one holder at a time",
  "served in order",
  "fences rise",
  "stale writes refused",
  "no update lost",
  "recovered in time",
  "nothing left behind",
];
const RUN_MS = 90_000;

const folders = () => readdirSync(os.tmpdir()).filter((name) => name.startsWith("leasehold-demo-"));

beforeAll(() => buildPackage(), 150_000);

test(
  "the demo keeps every promise through its faults, and finds the broken ones when the workers skip the fence",
  async () => {
    const [sound, sabotaged] = await Promise.all([
      runCli(["demo", "--json", "--seed", "1"], BARE),
      runCli(["demo", "--json", "--seed", "1", "--sabotage", "fence"], BARE),
    ]);
    const [kept, broken] = [sound, sabotaged].map(({ stdout }) => stdout.split("\n").slice(0, -1));
    const promises = (lines: readonly string[] = []) => lines.map((line) => JSON.parse(line) as PromiseJson);

    expect(sound.stderr + sabotaged.stderr).toBe("");
    expect(promises(kept).map(({ promise }) => promise)).toEqual(PROMISES);
    expect(promises(kept).flatMap((each) => each.broken)).toEqual([]);
    const found = promises(broken).filter((each) => !each.kept);
    expect(found.map(({ promise }) => promise)).toEqual(
      expect.arrayContaining(["stale writes refused", "no update lost"]),
    );
    expect([sound.code, sabotaged.code]).toEqual([EXIT.ok, EXIT.nothing]);
    const lines = [...(kept ?? []), ...(broken ?? [])];
    expect(objectionsTo(lines.map((line) => ({ type: "PromiseJson", line })))).toEqual([]);
  },
  RUN_MS,
);

test("a signal ends the demo with all that it has started", async () => {
  const before = folders();
  const { child, says, ended } = startCli(["demo"], BARE);
  await says(/ A /);
  child.kill("SIGTERM");

  expect(await ended).toMatchObject({ code: 143, stderr: "" });
  expect(folders().filter((folder) => !before.includes(folder))).toEqual([]);
});

test.each([
  ["--workers 4", EXIT.usage, "Expected --workers to be a whole number from 5 to 26, got '4'"],
  ["--sabotage all", EXIT.usage, "Expected --sabotage to be 'fence', got 'all'"],
  ["--endpoints 127.0.0.1:1/x", EXIT.usage, "Expected --endpoints to be"],
  ["--endpoints 127.0.0.1:1", EXIT.unavailable, "No etcd answers at http://127.0.0.1:1"],
])("demo %s ends with %i: %s", async (flags, code, message) => {
  const { stderr, ...ended } = await runCli(["demo", ...flags.split(" ")], BARE);

  expect(ended).toMatchObject({ code, stdout: "" });
  expect(stderr).toContain(`leasehold: ${message}`);
});
