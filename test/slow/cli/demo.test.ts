// `leasehold demo`, as the package has it: processes of its own on an etcd of its own, and a verdict that can fail.
import { fork } from "node:child_process";
import { once } from "node:events";
import { mkdtempSync, readdirSync, rmSync } from "node:fs";
import os from "node:os";
import path from "node:path";
import { beforeAll, expect, onTestFinished, test } from "vitest";
import { play } from "../../../examples/demo/play.js";
import type { PromiseJson } from "../../../src/tools/cli/json-types.js";
import { EXIT } from "../../../src/tools/cli/io.js";
import { buildPackage } from "../../support/fixtures/examples.js";
import { objectionsTo } from "../../support/fixtures/json-samples.js";
import { runCli, startCli } from "../../support/programs/cli.js";
import { owned } from "../../support/programs/owned.js";

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
const DEMO = new URL("../../../examples/demo/", import.meta.url);
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

test(
  "the demo ends at once when its etcd ends while it starts, as by Ctrl-C",
  { timeout: 5000 },
  async () => {
    const options = { endpoints: [], workers: 5, seed: 1, sabotage: false, ui: false };
    const start = () => Promise.reject(new Error("the etcd has ended"));
    const interrupt = new AbortController().signal;

    await expect(play({ options, start, screen: process.stdout, interrupt })).rejects.toThrow("has ended");
  },
);

test.each(["worker.js", "observer.js"])(
  "%s of the demo ends when the demo dies while it starts",
  async (file) => {
    const folder = mkdtempSync(path.join(os.tmpdir(), "leasehold-orphan-"));
    onTestFinished(() => rmSync(folder, { recursive: true }));
    const endpoints = ["http://127.0.0.1:1"];
    const job = {
      endpoints,
      folder,
      prefix: "p",
      lock: "p/l",
      counter: "p/c",
      name: "A",
      seed: 1,
      ttlSeconds: 3,
    };
    const child = owned(
      fork(new URL(file, DEMO), [JSON.stringify(job)], { stdio: ["ignore", "ignore", "ignore", "ipc"] }),
    );
    const ended = once(child, "exit");
    child.disconnect();

    expect(await ended).toEqual([0, null]);
  },
);

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
