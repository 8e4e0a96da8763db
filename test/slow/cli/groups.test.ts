// leasehold members and shards: what they print of groups whose members say anything of themselves, now and after each change.
import { describe, expect, test } from "vitest";
import { connect, join, Mutex, type Shard, shards, type ShardsOptions } from "../../../src/index.js";
import { grantLease, putKeys } from "../../support/clients/many-keys.js";
import { abortOf } from "../../support/clients/session-client.js";
import { twoSessions } from "../../support/fixtures/two-sessions.js";
import { runCli, startCli } from "../../support/programs/cli.js";

const two = twoSessions(30);
const endpoints = () => two.etcd.endpoints.join(",");
const run = (...words: string[]) => runCli(words, { endpoints: endpoints() });
const start = (...words: string[]) => startCli(words, { endpoints: endpoints() });
const onTerminal = (...words: string[]) =>
  runCli(words, { endpoints: endpoints(), terminal: true, before: "stty cols 5000" });
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

/** A member in a cluster of its own. */
async function member(
  name: string,
  options: Partial<ShardsOptions>,
  work: (shard: Shard) => unknown = ({ signal }) => abortOf(signal),
) {
  const cluster = connect({ hosts: two.etcd.endpoints });
  const own = await shards(cluster, name, { count: 12, settleMs: 0, ttlSeconds: 30, ...options }, work);
  return { ...own, owned: () => own.owned, close: () => cluster.close({ drainMs: 0 }) };
}

const HOSTILE = {
  id: "evil\u001b[2J\u001b]0;title\u0007\n  active",
  value: "\u202ehttp://\u001b[31mred",
  zone: "z\u0000",
};

describe("leasehold shards", () => {
  test("has a line for each member with what it owns, and says what no member owns or has to own", async () => {
    const name = "shards/all";
    const a = await member(name, { id: "a", value: "http://a", capacity: 2 });
    await expect.poll(() => a.owned()).toHaveLength(12);
    const b = await member(name, HOSTILE);
    await expect.poll(() => b.owned()).toHaveLength(4);
    const [lost] = b.owned();
    // Somebody else has the lock of a shard.
    const taken = new Mutex(two.holder, `${name}/shard/${lost}`).lock();
    await two.queued(`${name}/shard/${lost}`, 2);
    const [owner] = await two.places(`${name}/shard/${lost}`);
    await two.etcd.etcdctl(["del", owner!.key]);
    const lock = await taken;
    // Its owner, or the other one, waits for it again.
    await two.queued(`${name}/shard/${lost}`, 2);

    const [plain, json] = await Promise.all([run("shards", name), run("shards", name, "--json")]);
    const terminal = await onTerminal("shards", name);
    const evil = "evil\\u001b[2J\\u001b]0;title\\u0007\\u000a";
    const [title, heads, ...rows] = cells(plain.stdout);
    expect([plain.code, plain.stderr, isSafe(plain.stdout)]).toEqual([0, "", true]);
    expect(title?.slice(0, 3)).toEqual([name, "12 shards", "2 members"]);
    expect(heads).toEqual(["MEMBER", "VALUE", "ZONE", "CAPACITY", "STATE", "SHARE", "OWNED", "SHARDS"]);
    expect(rows[0]?.slice(0, 7)).toEqual(["a", "http://a", "-", "2", "active", "8.0", "8"]);
    expect(rows[1]?.slice(0, 2)).toEqual([evil, "active"]);
    expect(plain.stdout).toContain("\\u202ehttp://\\u001b[31mred  z\\u0000  1");
    expect(rows.at(-2)).toEqual(["MOVE", "FROM", "TO", "SHARDS"]);
    expect(rows.at(-1)?.slice(0, 2)).toEqual(["waiting", "the holder"]);
    expect(rows.at(-1)?.at(-1)).toBe(`${lost}`);
    expect(isSafe(terminal.stdout)).toBe(true);
    const [group] = objects(json.stdout);
    expect(group).toMatchObject({
      ...{ name, count: 12 },
      members: [
        { id: "a", value: "http://a", share: 8 },
        { ...HOSTILE, share: 4 },
      ],
      balance: { least: -1, most: 0 },
      moves: [{ shard: lost, state: "waiting", from: null, fence: lock.fence.toString() }],
    });
    await lock.release();
    await Promise.all([a.close(), b.close()]);
  });

  test("prints the group again with --watch, through a move, and ends with 130 on SIGINT", async () => {
    const name = "shards/watched";
    const [text, json] = [start("shards", name, "--watch"), start("shards", name, "--watch", "--json")];
    await Promise.all([text.says(`"${name}" has no members\n`), json.says('"members":[]')]);
    let settle = () => {};
    const settled = new Promise<void>((resolve) => (settle = resolve));
    const a = await member(name, { id: "a", count: 2 }, async ({ signal }) => {
      await abortOf(signal);
      await settled;
    });
    await text.says(/a .* 2\.0 +2 +0-1\n/);
    const b = await member(name, { id: "b", count: 2 });
    await Promise.all([
      text.says(/\nwaiting +a +b +[01]\n/),
      json.says('"state":"waiting","from":"a","to":"b"'),
    ]);
    settle();
    await text.says(/b +\S+ +1 +active +1\.0 +1 +[01]\n$/);

    text.child.kill("SIGINT");
    json.child.kill("SIGTERM");

    const [ended, lines] = await Promise.all([text.ended, json.ended]);
    expect([ended.code, ended.stderr, lines.code, lines.stderr]).toEqual([130, "", 143, ""]);
    expect(ended.stdout).toMatch(
      /2 shards {2}2 members {2}2 owned, 0 free, 1 moving {2}balance -1\.0 to \+1\.0\n/,
    );
    const states = objects(lines.stdout);
    expect(states.map(({ revision }) => Number(revision))).toEqual(
      states.map(({ revision }) => Number(revision)).sort((x, y) => x - y),
    );
    await Promise.all([a.close(), b.close()]);
  });

  test("says that a member has another number of shards, and shows nothing of keys that are no member's", async () => {
    const name = "shards/odd";
    const a = await member(name, { id: "a", count: 2 });
    const leaseId = await grantLease(two.etcd.member, 600);
    const other = { member: "b", value: "", owner: "o", capacity: 1, state: "active" };
    const put = (key: string, value: unknown) =>
      putKeys(two.etcd.member, [`${name}/members/${key}`], { leaseId, value: JSON.stringify(value) });
    await put("6a1f", { ...other, shards: { count: 4096, rule: 1, declines: [0, 1] } });
    await put("6a2f", other);
    await put("6a3f", "\u001b[2J".repeat(10_000));
    await putKeys(two.etcd.member, [
      `${name}/shard/9999999/6a1f`,
      `${name}/shard/-1/6a1f`,
      `${name}/shard//`,
    ]);

    const [plain, json] = await Promise.all([run("shards", name), run("shards", name, "--json")]);

    expect(plain.stdout).toMatch(/\nb +1 +active, 4096 shards, declines 2 +0\.0 +0 +-\n$/);
    expect(objects(json.stdout)).toMatchObject([
      { count: 2, members: [{ id: "a" }, { id: "b", declines: [0, 1] }] },
    ]);
    await a.close();
  });

  test("ends with 1 and says so, or prints an empty group as JSON, if nobody is there, and with 69 without etcd", async () => {
    const dead = { endpoints: "127.0.0.1:1" };
    const [plain, json, none, bad] = await Promise.all([
      run("shards", "shards/none"),
      run("shards", "shards/none", "--json"),
      runCli(["shards", "shards/none", "--watch"], dead),
      run("shards", "/a"),
    ]);

    expect(plain).toMatchObject({ code: 1, stdout: "", stderr: 'leasehold: "shards/none" has no members\n' });
    expect([json.code, json.stderr]).toEqual([1, ""]);
    expect(objects(json.stdout)).toMatchObject([{ name: "shards/none", count: 0, members: [], moves: [] }]);
    expect([none.code, none.stdout]).toEqual([69, ""]);
    expect(none.stderr).toMatch(/^leasehold: .*127\.0\.0\.1:1.*; start etcd, check --endpoints,.*\n$/);
    expect([bad.code, bad.stderr]).toEqual([
      64,
      expect.stringMatching(/^leasehold: Expected name to be .*\n$/),
    ]);
  });
});

test("ls, show and top show the members of a group as such, and the shards as the mutexes that they are", async () => {
  const name = "kinds/group";
  const a = await member(name, { ...HOSTILE, owner: "web-1", count: 1 });
  const b = await member(name, { id: "b", owner: "web-2", count: 1 });
  await expect.poll(() => two.places(`${name}/shard/0`)).toHaveLength(1);

  const [ls, show, top] = await Promise.all([
    run("ls", `${name}/`, "--json"),
    run("show", `${name}/members`),
    run("top", `${name}/`, "--once", "--json"),
  ]);

  expect(objects(ls.stdout)).toMatchObject([
    { name: `${name}/members`, kind: "members", holder: { owner: "web-1" }, total: { waiters: 0 } },
    { name: `${name}/shard/0`, kind: "mutex", holder: { state: "holding" } },
  ]);
  expect(ls.stdout).not.toContain('"value"');
  const [title, , ...rows] = cells(show.stdout);
  expect(title).toEqual([`${name}/members`, "members", "2 holding, 0 waiting"]);
  expect(rows.map((row) => row.slice(0, 2))).toEqual([
    ["holding", "web-1"],
    ["holding", "web-2"],
  ]);
  expect(objects(top.stdout)).toMatchObject([
    { locks: [{ kind: "members", total: { holders: 2, waiters: 0 } }, { kind: "mutex" }] },
  ]);
  await Promise.all([a.close(), b.close()]);
});

describe("leasehold members", () => {
  test("lists who is in a group in the order of their joins, escaped, again after each change, and ends with 1 if nobody is", async () => {
    const name = "members/all";
    const none = await run("members", name);
    const watching = start("members", name, "--watch");
    await watching.says(`"${name}" has no members\n`);
    const first = await join(two.holder, name, HOSTILE.value, { id: HOSTILE.id });
    await watching.says(/the holder +\d+\n/);
    const second = await join(two.session, name, "second");
    await watching.says(/ second +active /);
    await second.update({ state: "draining" });
    await watching.says(/ second +draining /);

    const [plain, json] = await Promise.all([run("members", name), run("members", name, "--json")]);
    await first.leave();
    await watching.says(/\n\nMEMBER .*\n\S+ +second .*\n$/);
    watching.child.kill("SIGINT");
    const ended = await watching.ended;

    expect(none).toMatchObject({ code: 1, stdout: "", stderr: `leasehold: "${name}" has no members\n` });
    expect([plain.code, isSafe(plain.stdout), isSafe(ended.stdout), ended.code]).toEqual([
      0,
      true,
      true,
      130,
    ]);
    expect(cells(plain.stdout).map((row) => row[0])).toEqual([
      ...["MEMBER", "evil\\u001b[2J\\u001b]0;title\\u0007\\u000a", second.id],
    ]);
    expect(objects(json.stdout)).toMatchObject([
      {
        name,
        members: [{ id: HOSTILE.id, value: HOSTILE.value, owner: "the holder" }, { state: "draining" }],
      },
    ]);
    await second.leave();
  });
});
