// `leasehold lead --priority --labels`, who leads next, and what `leasehold candidates` lists, with a real etcd. etcd's keys say who waits,
// and the command of each candidate which terms it had.
import { describe, expect, test } from "vitest";
import { Election, type Leadership } from "../../../src/index.js";
import { etcdOf } from "../../support/fixtures/subjects.js";
import { reasonOf, twoSessions } from "../../support/fixtures/two-sessions.js";
import { EtcdctlElect } from "../../support/clients/etcdctl-elect.js";
import { startWithUsers, WORKER } from "../../support/fixtures/users.js";
import { runCli, type RunningCli, startCli } from "../../support/programs/cli.js";

const two = twoSessions(30);
const { deleteKey, putKey, queued, until } = etcdOf(two);
const settings = (more = {}) => ({ endpoints: two.etcd.endpoints.join(","), ...more });
const list = (name: string, ...flags: readonly string[]) =>
  runCli(["candidates", name, ...flags], settings());
const cells = (stdout: string) =>
  stdout
    .split(/\r?\n/)
    .slice(0, -1)
    .map((line) => line.split(/ {2,}/));
const leads = (name: string, value = "the library", options = {}): Promise<Leadership> =>
  new Election(two.holder, name).campaign(value, options);
const candidatesOf = (name: string) => new Election(two.cluster, name).candidates();

/** A candidate that waits already. Its owner is also its value. */
async function candidate(name: string, owner: string, ...flags: readonly string[]): Promise<RunningCli> {
  const before = (await two.places(name)).length;
  const words = ["lead", name, "--owner", owner, "--value", owner, ...flags];
  const command = ["--", "sh", "-c", "trap 'exit 0' TERM; echo leads; while :; do sleep 0.02; done"];
  const program = startCli([...words, ...command], settings());
  await queued(name, before + 1);
  return program;
}

/** Ends them in this order; resolves with how many terms each had. */
async function termsOf(...programs: readonly RunningCli[]): Promise<number[]> {
  for (const { child, ended } of programs) {
    child.kill("SIGTERM");
    await ended;
  }
  return programs.map(({ stdout }) => stdout().split("leads").length - 1);
}

describe.concurrent("leasehold lead", () => {
  test("with --priority leads next, although others came before, when the leader gets SIGTERM; they start no command", async () => {
    const name = "priority";
    const leader = await candidate(name, "web-1", "--priority", "1");
    await leader.says("leads");
    const low = await candidate(name, "web-2", "--priority", "0");
    const high = await candidate(name, "web-3", "--priority", "10");
    expect(cells((await list(name)).stdout).map((row) => row.slice(0, 4))).toEqual([
      ["STATE", "VALUE", "OWNER", "PRIORITY"],
      ["leads", "web-1", "web-1", "1"],
      ["waits", "web-2", "web-2", "0"],
      ["waits", "web-3", "web-3", "10"],
    ]);

    leader.child.kill("SIGTERM");
    await high.says("leads");

    expect((await leader.ended).code).toBe(0);
    await queued(name, 2);
    expect(await termsOf(low, high)).toEqual([0, 1]);
    expect(await two.places(name)).toEqual([]);
  });

  test("leads on when one of a higher priority comes", async () => {
    const name = "stays";
    const leader = await candidate(name, "web-1", "--priority=-1000");
    await leader.says("leads");
    const high = await candidate(name, "web-2", "--priority", "1000");

    expect((await candidatesOf(name)).map(({ owner, leads }) => [owner, leads])).toEqual([
      ["web-1", true],
      ["web-2", false],
    ]);
    expect(await termsOf(high, leader)).toEqual([0, 1]);
  });

  test("with a negative priority lets one of priority 0 lead first, also when the leader's key is lost", async () => {
    const name = "lost";
    const leadership = await leads(name);
    const low = await candidate(name, "web-1", "--priority=-5");
    const usual = await candidate(name, "web-2", "--priority", "0");
    await deleteKey(leadership.key);

    await usual.says("leads");
    await queued(name, 2);
    expect(await termsOf(low, usual)).toEqual([0, 1]);
  });

  test("keeps its place without the flags: one of a higher priority behind it waits", async () => {
    const name = "plain";
    const leadership = await leads(name);
    const low = await candidate(name, "web-1", "--priority", "1");
    const plain = await candidate(name, "web-2");
    const high = await candidate(name, "web-3", "--priority", "9");
    await leadership.resign();
    await low.says("leads");
    low.child.kill("SIGTERM");
    await plain.says("leads");

    expect(high.stdout()).toBe("");
    expect(await termsOf(high, plain)).toEqual([0, 1]);
  });

  test("with --labels can be named by a leader of the library; without, it is in the way of one behind it", async () => {
    const name = "transfer";
    const leadership = await leads(name, "the library", { transferable: true });
    const first = await candidate(name, "web-1", "--labels", "zone=eu-1a,version=2.4.0=rc");
    const named = await candidate(name, "web-2", "--labels", "zone=eu-1b,note=");
    const plain = await candidate(name, "web-3");
    const behind = await candidate(name, "web-4", "--priority", "0");

    expect((await candidatesOf(name)).map(({ labels }) => labels)).toEqual([
      {},
      { zone: "eu-1a", version: "2.4.0=rc" },
      { zone: "eu-1b", note: "" },
      {},
      {},
    ]);
    expect(await reasonOf(leadership.transfer("web-4"))).toMatchObject({ reason: "blocked" });
    expect(await reasonOf(leadership.transfer("web-3"))).toMatchObject({ reason: "not_found" });
    await leadership.transfer("web-2");
    await named.says("leads");
    await queued(name, 4);
    expect(await termsOf(behind, first, plain, named)).toEqual([0, 0, 0, 1]);
  });

  test("is chosen by its labels, by the rule of another candidate", async () => {
    const name = "eligible";
    const leadership = await leads(name);
    const eligible = ({ labels }: { labels: Readonly<Record<string, string>> }) => labels["zone"] === "eu-1b";
    const chooses = new Election(two.session, name).campaign("chooses", { eligible });
    await queued(name, 2);
    const other = await candidate(name, "web-1", "--labels", "zone=eu-1a");
    const chosen = await candidate(name, "web-2", "--labels", "zone=eu-1b");
    await leadership.resign();

    await chosen.says("leads");
    await queued(name, 3);
    expect(await termsOf(other, chosen)).toEqual([0, 1]);
    await (await chooses).resign();
  });
});

describe("leasehold candidates", () => {
  test("lists those of all clients in the order of the queue, as a table and as JSON", async () => {
    const name = "list/all";
    const leadership = await leads(name, "http://a", { labels: { zone: "eu 1", v: "2" } });
    const other = new EtcdctlElect(two.etcd, name, "from etcdctl");
    await queued(name, 2);
    const waits = await candidate(name, "web-2", "--priority=-7");
    const [plain, json] = await Promise.all([list(name), list(name, "--json")]);

    const [head, ...rows] = cells(plain.stdout);
    expect([plain.code, plain.stderr, head]).toEqual([
      ...[0, "", ["STATE", "VALUE", "OWNER", "PRIORITY", "LABELS", "FENCE", "KEY"]],
    ]);
    expect(rows.map((row) => row.slice(0, 5))).toEqual([
      ["leads", "http://a", "the holder", "0", "zone=eu 1,v=2"],
      ["waits", "from etcdctl", "-", "-", "-"],
      ["waits", "web-2", "web-2", "-7", "-"],
    ]);
    expect(rows[0]?.slice(5)).toEqual([leadership.fence.toString(), leadership.key]);
    const listed = JSON.parse(json.stdout) as { candidates: Record<string, unknown>[] };
    expect(listed).toMatchObject({
      name,
      candidates: [
        {
          key: leadership.key,
          revision: leadership.fence.toString(),
          leaseId: two.holder.leaseId.toString(),
          ...{ leads: true, transferable: true, owner: "the holder", priority: 0 },
          labels: { zone: "eu 1", v: "2" },
        },
        { value: "from etcdctl", leads: false, transferable: false },
        { value: "web-2", owner: "web-2", priority: -7, labels: {} },
      ],
    });
    expect(Object.keys(listed.candidates[1] ?? {})).not.toContain("priority");
    expect(await termsOf(waits)).toEqual([0]);
    await leadership.resign();
    await other.leader();
    await other.resign();
  });

  test("ends with 1 and says so, or prints an empty list as JSON, if there are none; a lock has none", async () => {
    await putKey("list/lock/1a2b", JSON.stringify({ owner: "x", since: new Date().toISOString(), id: "x" }));
    const [plain, json, lock] = [
      await list("list/none"),
      await list("list/none", "--json"),
      await list("list/lock"),
    ];

    expect([plain.code, plain.stdout, plain.stderr]).toEqual([
      ...[1, "", 'leasehold: "list/none" has no candidates\n'],
    ]);
    expect([json.code, json.stdout]).toEqual([1, '{"name":"list/none","candidates":[]}\n']);
    expect([lock.code, lock.stdout]).toEqual([1, ""]);
  });

  test("escapes and cuts what hostile candidates say of themselves, and keeps a table to its lines", async () => {
    const name = "list/hostile";
    const evil = "\u001b[2J\u202e\nleads  web-1";
    const leadership = await leads(name, evil.repeat(3000), {
      labels: { [`\u0007${"n".repeat(60)}`]: evil.repeat(12) },
    });
    // Another client forges what the leader has said: nobody believes it.
    await putKey(`${name}/1a2b`, "forged");
    await putKey(
      `/leasehold/candidates/${name}/1a2b/about`,
      JSON.stringify({ owner: evil, priority: 9, labels: {} }),
    );
    const [plain, terminal, json] = await Promise.all([
      list(name),
      runCli(["candidates", name], settings({ terminal: true, before: "stty cols 80" })),
      list(name, "--json"),
    ]);

    const UNSAFE = /[\p{Cc}\p{Cf}\p{Cs}]/u;
    for (const { code, stdout } of [plain, terminal]) {
      expect([code, UNSAFE.test(stdout.replaceAll(/\r?\n/g, ""))]).toEqual([0, false]);
      expect(stdout.length).toBeLessThan(4000);
    }
    expect(cells(plain.stdout)).toHaveLength(3);
    expect(cells(plain.stdout)[2]?.slice(0, 5)).toEqual(["waits", "forged", "-", "-", "-"]);
    for (const line of terminal.stdout.split(/\r?\n/)) expect(line.length).toBeLessThanOrEqual(80);
    expect(JSON.parse(json.stdout)).toMatchObject({
      candidates: [{ value: evil.repeat(3000) }, { transferable: false }],
    });
    await leadership.resign();
  });

  test("shows a candidate whose priority was raised by a restart, and it leads next", async () => {
    const name = "list/raised";
    const leader = await candidate(name, "web-1", "--priority", "0");
    await leader.says("leads");
    const second = await candidate(name, "web-2", "--priority", "0");
    const third = await candidate(name, "web-3", "--priority", "0");
    expect(await termsOf(third)).toEqual([0]);
    const raised = await candidate(name, "web-3", "--priority", "1");
    leader.child.kill("SIGTERM");

    await raised.says("leads");
    await until(async () => (await candidatesOf(name)).length === 2);
    expect((await candidatesOf(name)).map(({ owner, leads }) => [owner, leads])).toEqual([
      ["web-3", true],
      ["web-2", false],
    ]);
    expect(await termsOf(second, raised)).toEqual([0, 1]);
  });
});

test("a user without the right to what candidates say of themselves leads without a priority only, and is told why: 77", async () => {
  const etcd = await startWithUsers();
  try {
    const as = {
      endpoints: etcd.endpoints.join(","),
      env: { ETCDCTL_USER: WORKER.username, ETCDCTL_PASSWORD: WORKER.password },
    };
    const lead = (...flags: readonly string[]) =>
      runCli(["lead", "jobs/rights", ...flags, "--", "echo", "leads"], as);
    const [plain, prior, listed] = [
      await lead(),
      await lead("--priority", "1"),
      await runCli(["candidates", "jobs/rights"], as),
    ];

    expect([plain.code, plain.stdout]).toEqual([0, "leads\n"]);
    for (const { code, stdout, stderr } of [prior, listed]) {
      expect([code, stdout]).toEqual([77, ""]);
      expect(stderr).toMatch(/permission denied.*grant the user this right/);
    }
    expect(await etcd.keysUnder("jobs/")).toEqual([]);
  } finally {
    await etcd.stop();
  }
});
