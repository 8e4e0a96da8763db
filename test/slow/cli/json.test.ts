// Real output of --json against src/tools/cli/json-types.ts, from which docs/cli.schema.json is made: only here is each line of each
// command read.
import { expect, test } from "vitest";
import { Election, Mutex, once, shards } from "../../../src/index.js";
import { putKeys } from "../../support/clients/many-keys.js";
import { abortOf } from "../../support/clients/session-client.js";
import { type JsonSample, objectionsTo } from "../../support/fixtures/json-samples.js";
import { blocksIn, readPage } from "../../support/fixtures/pages.js";
import { twoSessions } from "../../support/fixtures/two-sessions.js";
import { runCli, startCli } from "../../support/programs/cli.js";

const two = twoSessions(30);
const endpoints = () => two.etcd.endpoints.join(",");

async function linesOf(...words: string[]): Promise<string[]> {
  const { stdout, stderr } = await runCli(words.includes("--json") ? words : [...words, "--json"], {
    endpoints: endpoints(),
  });
  return `${stdout}${stderr}`.split("\n").slice(0, -1);
}

const samples = (type: string, lines: readonly string[]): JsonSample[] =>
  lines.map((line) => ({ type, line }));

// It runs eighteen programs, one after the other.
test(
  "every line of every command has the type that is documented, and nothing else",
  { timeout: 120_000 },
  async () => {
    const lock = await new Mutex(two.holder, "json/lock").lock();
    const leadership = await new Election(two.holder, "json/leader").campaign("x");
    await putKeys(two.etcd.member, ["json/lock/6a1f", "json/junk/1/2"]);
    const observing = startCli(["observe", "json/leader", "--json"], { endpoints: endpoints() });
    await observing.says("\n");
    await leadership.resign();
    await observing.says("null}\n");
    observing.child.kill("SIGINT");
    const observed = (await observing.ended).stdout.split("\n").slice(0, -1);
    const options = { count: 3, zone: "z", settleMs: 0 };
    const group = await shards(two.cluster, "json/group", options, ({ signal }) => abortOf(signal));
    await expect.poll(() => group.owned).toHaveLength(3);
    await putKeys(two.etcd.member, ["json/group/shard/0/6a1f"]);

    const labels = { zone: "eu-1a" };
    const leads = await new Election(two.holder, "json/candidates").campaign("x", { priority: 1, labels });
    await putKeys(two.etcd.member, ["json/candidates/6a1f"], { value: "foreign" });

    await once(two.holder, "json/once", 1, () => undefined);
    await once(two.holder, "json/once", "a", () => Promise.reject(new Error("no"))).catch(() => {});

    const all = [
      samples("LockJson", await linesOf("ls", "json/")),
      samples("QueueJson", await linesOf("show", "json/lock")),
      samples("QueueJson", await linesOf("show", "json/none")),
      samples("LeaderJson", await linesOf("leader", "json/none")),
      samples("LeaderJson", await linesOf("leader", "json/lock")),
      samples("LeaderJson", observed),
      samples("CandidatesJson", await linesOf("candidates", "json/none")),
      samples("CandidatesJson", await linesOf("candidates", "json/candidates")),
      samples("MembersJson", await linesOf("members", "json/group")),
      samples("ShardsJson", await linesOf("shards", "json/group")),
      samples("ShardsJson", await linesOf("shards", "json/none")),
      samples("OnceRecordJson", await linesOf("once", "json/once")),
      samples("QueueJson", await linesOf("show", "json/once")),
      samples("ReleaseJson", await linesOf("release", "json/lock", "--yes")),
      samples("ReleaseJson", await linesOf("release", "json/none", "--yes")),
      samples("CompletionJson", await linesOf("completion", "bash")),
      samples("ErrorJson", await linesOf("show", "/")),
    ];

    expect(all.map((lines) => lines.length)).toEqual([7, 1, 1, 1, 1, 2, 1, 1, 1, 1, 1, 2, 1, 1, 1, 1, 1]);
    expect(objectionsTo(all.flat())).toEqual([]);
    await Promise.all([lock.release().catch(() => {}), leads.resign(), group.close()]);
  },
);

/** The lines of a command until it has written this, and then gets SIGINT. */
async function linesUntil(text: string | RegExp, words: readonly string[], at = endpoints()) {
  const program = startCli(words, { endpoints: at });
  await program.says(text);
  program.child.kill("SIGINT");
  const { stdout, stderr } = await program.ended;
  return `${stdout}${stderr}`.split("\n").slice(0, -1);
}

/** Waits for the lock, gets it, and loses it. */
async function linesOfLoss(name: string): Promise<string[]> {
  const lock = await new Mutex(two.holder, name).lock();
  const program = startCli(["run", name, "--json", "--", "sleep", "1000"], { endpoints: endpoints() });
  await program.says('"waiting"');
  await lock.release();
  await program.says('"started"');
  const [own] = await two.places(name);
  await two.etcd.etcdctl(["del", own?.key ?? ""]);
  return (await program.ended).stderr.split("\n").slice(0, -1);
}

/** Campaigns, and loses its lease meanwhile. */
async function linesOfRetry(name: string): Promise<string[]> {
  const leadership = await new Election(two.holder, name).campaign("x");
  const words = ["lead", name, "--json", "--ttl", "2s", "--", "true"];
  const program = startCli(words, { endpoints: endpoints() });
  await two.queued(name, 2);
  const [, own] = await two.places(name);
  await two.etcd.etcdctl(["lease", "revoke", (own?.leaseId ?? 0n).toString(16)]);
  await program.says('"retrying"');
  await leadership.resign();
  return (await program.ended).stderr.split("\n").slice(0, -1);
}

/** Is wanted by another client while it runs. */
async function linesOfWanted(name: string): Promise<string[]> {
  const words = ["run", name, "--json", "--on-wanted", "SIGTERM", "--", "sleep", "1000"];
  const program = startCli(words, { endpoints: endpoints() });
  await program.says('"started"');
  const next = new Mutex(two.session, name).lock({ reason: "deploy" });
  const { stderr } = await program.ended;
  await (await next).release();
  return stderr.split("\n").slice(0, -1);
}

const NOBODY = "127.0.0.1:1";
const eventsIn = (lines: readonly string[]) => [
  ...new Set(lines.map((line) => (JSON.parse(line) as { event?: string }).event)),
];

test("so has every line of run and lead on standard error", async () => {
  const leftBehind = ["sh", "-c", "trap '' TERM; sleep 1000 >/dev/null 2>&1 & exit 0"];
  const [lost, ended, shared, led, retrying, wanted] = await Promise.all([
    linesOfLoss("run/lost"),
    linesOf("run", "run/ended", "--json", "--grace", "1ms", "--", ...leftBehind),
    linesOf("run", "run/shared", "--json", "--shared", "--", "true"),
    linesOf("lead", "run/led", "--json", "--", "true"),
    linesOfRetry("run/retrying"),
    linesOfWanted("run/wanted"),
  ]);
  const failed = await linesOf("run", "run/none", "--json", "--", "no-such-command");

  expect([lost, ended, shared, led, retrying, wanted].map(eventsIn)).toEqual([
    ["waiting", "started", "lost"],
    ["started", "ending", "killed"],
    ["started"],
    ["started"],
    ["retrying", "started"],
    ["started", "wanted"],
  ]);
  expect(failed).toHaveLength(1);
  expect(
    objectionsTo([
      ...samples("RunJson", [lost, ended, shared, led, retrying, wanted].flat()),
      ...samples("ErrorJson", failed),
    ]),
  ).toEqual([]);
});

test("so has the line of a run that --once has prevented, and of one that has failed", async () => {
  const words = ["run", "run/once", "--json", "--once", "1", "--", "true"];
  const [first, second] = [await linesOf(...words), await linesOf(...words)];
  const failed = await linesOf("run", "run/once", "--json", "--once", "2", "--", "false");
  const keeping = ["run", "run/text", "--json", "--once", "a", "--keep-output", "--", "false"];
  const [kept, replayed] = [await linesOf(...keeping), await linesOf(...keeping)];

  expect([first, second, failed, kept, replayed].map(eventsIn)).toEqual([
    ...[["started"], ["once"], ["started", "slot"], ["started", "slot"], ["once"]],
  ]);
  expect(replayed[0]).toContain('"commandCode":1');
  expect(objectionsTo(samples("RunJson", [first, second, failed, kept, replayed].flat()))).toEqual([]);
});

test("so has every line of top, doctor and ui", async () => {
  const lock = await new Mutex(two.holder, "top/lock").lock();
  await putKeys(two.etcd.member, ["top/lock/6a1f", "top/junk/1/2"]);
  const [top, once, silent, healthy, broken, ui] = await Promise.all([
    linesUntil(/"locks"[^]*"etcd"|"etcd"[^]*"locks"/, ["top", "top/", "--json"]),
    linesOf("top", "top/", "--once"),
    linesUntil('"answers":false', ["top", "--json"], NOBODY),
    linesOf("doctor", "--ttl", "2s"),
    linesOf("doctor", "--endpoints", NOBODY),
    linesUntil("\n", ["ui", "top/", "--json"]),
  ]);
  await lock.release();
  const ofTop = [...top, ...once, ...silent].map((line) => ({
    type: eventsIn([line])[0] === "locks" ? "LocksJson" : "ContactJson",
    line,
  }));
  const reports = [healthy, broken].flatMap((lines) => [
    ...samples("FindingJson", lines.slice(0, -1)),
    ...samples("SummaryJson", lines.slice(-1)),
  ]);

  expect(eventsIn(top).sort()).toEqual(["etcd", "locks"]);
  expect([once.length, silent.length, ui.length]).toEqual([1, 1, 1]);
  expect(healthy.length).toBeGreaterThan(broken.length);
  expect(objectionsTo([...ofTop, ...reports, ...samples("PageJson", ui)])).toEqual([]);
});

test("so has every line that docs/cli-json.md shows", () => {
  const lines = blocksIn(readPage("docs/cli-json.md"))
    .filter(({ language }) => language === "json")
    .flatMap(({ code }) => code.trim().split("\n"));
  const types: Readonly<Record<string, string>> = { locks: "LocksJson", etcd: "ContactJson" };
  const shown = lines.map((line) => ({ type: types[eventsIn([line])[0] ?? ""] ?? "RunJson", line }));

  expect(shown.map(({ type }) => type)).toEqual([
    ...["RunJson", "RunJson", "RunJson", "RunJson", "RunJson", "LocksJson", "ContactJson"],
  ]);
  expect(objectionsTo(shown)).toEqual([]);
});

test("the check objects to a field that is missing, of another type, or undocumented", () => {
  const leader = (fields: string) => ({ type: "LeaderJson", line: `{"name":"a","leader":null${fields}}` });

  expect(objectionsTo([leader("")])).toEqual([]);
  expect(objectionsTo([leader(',"more":1')])).toHaveLength(1);
  expect(objectionsTo([{ type: "LeaderJson", line: '{"name":"a"}' }])).toHaveLength(1);
  expect(objectionsTo([{ type: "LeaderJson", line: '{"name":1,"leader":null}' }])).toHaveLength(1);
});
