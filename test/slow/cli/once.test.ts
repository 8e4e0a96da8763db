// leasehold once, and what show says of its runs: whatever the marks in etcd contain.
import { afterAll, beforeAll, describe, expect, test } from "vitest";
import { once, RwLock } from "../../../src/index.js";
import { putKeys } from "../../support/clients/many-keys.js";
import { startWithUsers, type UserEtcd, WORKER } from "../../support/fixtures/users.js";
import { reasonOf, twoSessions } from "../../support/fixtures/two-sessions.js";
import { type CliSettings, runCli } from "../../support/programs/cli.js";

const two = twoSessions(30);
const endpoints = () => two.etcd.endpoints.join(",");
const run = (words: readonly string[], more: CliSettings = {}) =>
  runCli(words, { endpoints: endpoints(), ...more });
const onTerminal = (...words: string[]) => run(words, { terminal: true, before: "stty cols 5000" });
const objects = (stdout: string) =>
  stdout
    .split("\n")
    .slice(0, -1)
    .map((line) => JSON.parse(line) as Record<string, unknown>);
/** The cells of each line. */
const cells = (stdout: string) =>
  stdout
    .split(/\r?\n/)
    .slice(0, -1)
    .map((line) => line.split(/ {2,}/));
const isSafe = (output: string) => !/[\p{Cc}\p{Cf}\p{Cs}]/u.test(output.replaceAll(/\r?\n/g, ""));
const fail = (error: Error) => () => {
  throw error;
};

/** A run that goes on until it is told to end. */
async function running(name: string, slot: number | string) {
  let [begin, end] = [() => {}, () => {}];
  const begun = new Promise<void>((resolve) => (begin = resolve));
  const ended = new Promise<void>((resolve) => (end = resolve));
  const call = once(two.holder, name, slot, () => (begin(), ended));
  await begun;
  return { end: () => (end(), call) };
}

/** One slot in each state, from the youngest to the oldest. */
async function everyState(name: string) {
  await once(two.holder, name, 5, () => undefined);
  await reasonOf(
    once(two.session, name, "5", fail(Object.assign(new TypeError("no\nway"), { code: "E_NO" }))),
  );
  // Released by the work itself.
  await reasonOf(once(two.holder, name, "lost", (lock) => lock.release()));
  await putKeys(two.etcd.member, [`/leasehold/once/${name}//0000000000000007`], {
    value: '{"state":"missed"}',
  });
  return running(name, "any key");
}

const TIME = expect.stringMatching(/^\d{4}-\d\d-\d\dT[\d:.]{12}Z$/) as string;
const OWN = expect.stringMatching(/^\S+:\d+$/) as string;

describe("leasehold once", () => {
  test("lists the slots of a name, the youngest first, with their owners, times and errors", async () => {
    const last = await everyState("once/all");

    const [plain, json, two_] = await Promise.all([
      run(["once", "once/all"]),
      run(["once", "once/all", "--json"]),
      run(["once", "once/all", "--limit", "2"]),
    ]);
    await last.end();

    expect([plain.code, plain.stderr]).toEqual([0, ""]);
    expect(cells(plain.stdout)).toEqual([
      ["SLOT", "STATE", "OWNER", "SINCE", "ENDED", "ERROR"],
      ['"any key"', "running", "the holder", TIME, "-", "-"],
      ["7", "missed", "-", "-", "-", "-"],
      ['"lost"', "lost", "the holder", TIME, "-", "-"],
      ['"5"', "failed", OWN, TIME, TIME, "TypeError (E_NO): no\\u000away"],
      ["5", "done", "the holder", TIME, TIME, "-"],
    ]);
    const fence = expect.stringMatching(/^\d+$/) as string;
    expect([json.code, json.stderr, objects(json.stdout)]).toEqual([
      ...[0, ""],
      [
        { slot: "any key", state: "running", fence, owner: "the holder", since: TIME },
        { slot: 7, state: "missed" },
        { slot: "lost", state: "lost", fence, owner: "the holder", since: TIME },
        {
          ...{ slot: "5", state: "failed", fence, owner: OWN, since: TIME, ended: TIME },
          error: { name: "TypeError", code: "E_NO", message: "no\\u000away" },
        },
        { slot: 5, state: "done", fence, owner: "the holder", since: TIME, ended: TIME },
      ],
    ]);
    expect(two_.stdout).toMatch(/^SLOT.*\n"any key" .*\n7 .*\nand more: see --limit\n$/);
  });

  test("escapes and bounds what the marks contain, and shows none for a key that is no slot", async () => {
    const name = "once/hostile";
    const at = (slot: string) => `/leasehold/once/${name}//${slot}`;
    const evil = "\u001b[2J\u202e\n";
    const mark = {
      ...{
        state: "failed",
        owner: evil + "o".repeat(50_000),
        since: evil,
        ended: evil.repeat(1000),
        fence: evil,
      },
      error: { name: evil, code: evil, message: evil + "m".repeat(20_000) },
    };
    await putKeys(two.etcd.member, [at(`=${encodeURIComponent(evil)}`), at(`=${"x".repeat(5000)}`)], {
      value: JSON.stringify(mark),
    });
    await putKeys(two.etcd.member, [at("=%"), at("="), at("=junk"), at("1"), at("0000000000000001")], {
      value: evil,
    });

    const [plain, json, terminal] = await Promise.all([
      run(["once", name]),
      run(["once", name, "--json"]),
      onTerminal("once", name),
    ]);

    for (const { code, stdout } of [plain, terminal]) {
      expect([code, isSafe(stdout)]).toEqual([0, true]);
      expect(Math.max(...stdout.split("\n").map((line) => line.length))).toBeLessThan(5000);
    }
    expect(plain.stdout).toMatch(
      /^"\\u001b\[2J\\u202e\\n" +failed +\\u001b\[2J\\u202e\\u000ao+… +- +- +\\u001b/m,
    );
    const found = objects(json.stdout);
    expect(found.map(({ slot }) => (slot as string | number).toString().slice(0, 4)).sort()).toEqual([
      ...["", "\u001b[2J", "1", "junk", "xxxx"],
    ]);
    for (const record of found) expect(JSON.stringify(record).length).toBeLessThan(5000);
    expect(found.find(({ slot }) => slot === evil)?.["owner"]).toHaveLength(256);
  });

  test("ends with 1 and says so, or prints nothing as JSON, if none has run, and with 69 without etcd", async () => {
    const [plain, json, none, bad] = await Promise.all([
      run(["once", "once/none"]),
      run(["once", "once/none", "--json"]),
      run(["once", "once/none"], { endpoints: "127.0.0.1:1" }),
      run(["once", "/a"]),
    ]);

    expect(plain).toMatchObject({
      code: 1,
      stdout: "",
      stderr: 'leasehold: no run of "once/none" is known\n',
    });
    expect(json).toMatchObject({ code: 1, stdout: "", stderr: "" });
    expect(none).toMatchObject({ code: 69, stdout: "" });
    expect(none.stderr).toMatch(/^leasehold: .*127\.0\.0\.1:1.*; start etcd, check --endpoints,.*\n$/);
    expect(bad).toMatchObject({
      code: 64,
      stderr: expect.stringMatching(/^leasehold: Expected name to be /) as string,
    });
  });
});

describe("leasehold show", () => {
  test("says how many runs of once are in which state, if there are any", async () => {
    const last = await everyState("show/once");
    await once(two.holder, "show/done", 1, () => undefined);
    const lock = await new RwLock(two.holder, "show/done").readLock();

    const [all, json, done, none] = await Promise.all([
      run(["show", "show/once"]),
      run(["show", "show/once", "--json"]),
      run(["show", "show/done"]),
      run(["show", "show/none", "--json"]),
    ]);
    await Promise.all([last.end(), lock.release()]);
    const free = await run(["show", "show/once"]);

    const text = "runs of once: 1 running, 1 done, 1 failed, 1 lost, 1 missed\n";
    expect(all.code).toBe(0);
    expect(all.stdout).toMatch(/^show\/once .*\n(.*\n)+runs of once: .*\n$/);
    expect(all.stdout.endsWith(`\n${text}`)).toBe(true);
    expect(objects(json.stdout)).toMatchObject([
      { name: "show/once", runs: { running: 1, done: 1, failed: 1, lost: 1, missed: 1 } },
    ]);
    expect(free).toMatchObject({
      code: 1,
      stdout: text.replace("1 running", "0 running").replace("1 done", "2 done"),
    });
    expect(done.stdout).toMatch(
      /^show\/done .*\n(.*\n)+runs of once: 0 running, 1 done, 0 failed, 0 lost\n$/,
    );
    expect(objects(none.stdout)[0]).not.toHaveProperty("runs");
  });

  test("counts the youngest 100 of many", async () => {
    const keys = Array.from(
      { length: 101 },
      (_, n) => `/leasehold/once/show/many//${String(n).padStart(16, "0")}`,
    );
    await putKeys(two.etcd.member, keys.slice(0, 1), { value: '{"state":"failed"}' });
    await putKeys(two.etcd.member, keys.slice(1), { value: '{"state":"done"}' });

    expect((await run(["show", "show/many"])).stdout).toBe(
      "runs of once: 0 running, 100 done, 0 failed, 0 lost, of the youngest 100\n",
    );
  });

  describe("to a user who may not read the marks", () => {
    let etcd: UserEtcd;
    beforeAll(async () => void (etcd = await startWithUsers()), 60_000);
    afterAll(() => etcd?.stop());

    test("shows the queue; once ends with 77", async () => {
      const settings = {
        endpoints: etcd.endpoints.join(","),
        env: { ETCDCTL_USER: WORKER.username, ETCDCTL_PASSWORD: WORKER.password },
      };
      const [show, list] = await Promise.all([
        run(["show", "jobs/a", "--json"], settings),
        run(["once", "jobs/a"], settings),
      ]);

      expect(objects(show.stdout)).toMatchObject([{ name: "jobs/a", total: { holders: 0 } }]);
      expect(list).toMatchObject({ code: 77, stdout: "" });
      expect(list.stderr).toMatch(/^leasehold: .*runs of "jobs\/a".*; grant the user this right/);
    });
  });
});
