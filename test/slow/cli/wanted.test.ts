// `leasehold run --on-wanted` and `--reason`, and the reasons that `ls`, `show` and `run` print. etcd's keys say who holds and waits, and
// the command itself which signals it got.
import os from "node:os";
import { afterAll, describe, expect, test } from "vitest";
import { Election, type Hold, Mutex, RwLock, Semaphore } from "../../../src/index.js";
import { etcdOf } from "../../support/fixtures/subjects.js";
import { twoSessions } from "../../support/fixtures/two-sessions.js";
import { runCli, startCli } from "../../support/programs/cli.js";

const two = twoSessions(60);
const { putKey, deleteKey, queued } = etcdOf(two);
const settings = (more = {}) => ({ endpoints: two.etcd.endpoints.join(","), ...more });
const run = (...words: string[]) => runCli(words, settings());
const script = (text: string) => ["--", "sh", "-c", text];

/** Writes each signal that it gets, until SIGTERM. */
const RECORDS = `exec 2>/dev/null
trap 'echo USR1' USR1; trap 'echo HUP' HUP; trap 'echo TERM; exit 7' TERM
echo ready; while :; do sleep 0.02; done`;
/** What the command has written. */
const recordOf = (cli: { stdout: () => string }) => cli.stdout().split("\n").slice(0, -1);

const leaving: (() => Promise<void>)[] = [];
// Concurrent tests have no end that a function can listen to.
afterAll(() => Promise.all(leaving.map((leave) => leave())));

/** Waits for its turn, until it leaves, at the end of all tests at the latest. */
function waits(begin: (signal: AbortSignal) => Promise<Hold>) {
  const leaves = new AbortController();
  const ended = begin(leaves.signal).then(
    (hold) => hold.release(),
    () => undefined,
  );
  const leave = (): Promise<void> => {
    leaves.abort();
    return ended;
  };
  leaving.push(leave);
  return { ended, leave };
}

const next = (name: string, reason?: string) =>
  waits((signal) => new Mutex(two.session, name).lock({ signal, reason }));

const KINDS: readonly [words: string, wait: (name: string, signal: AbortSignal) => Promise<Hold>][] = [
  ["run", (name, signal) => new Mutex(two.session, name).lock({ signal })],
  ["run --shared", (name, signal) => new RwLock(two.session, name).writeLock({ signal })],
  ["run --permits 1", (name, signal) => new Semaphore(two.session, name, 1).acquire({ signal })],
  ["run --once 1", (name, signal) => new Mutex(two.session, name).lock({ signal })],
  ["lead", (name, signal) => new Election(two.session, name).campaign("next", { signal })],
];
const take = (name: string) => new Mutex(two.session, name).lock();

describe("--on-wanted", () => {
  test.concurrent.each(KINDS)("of %s sends the signal for the first waiter, once", async (words, wait) => {
    const [command = "", ...flags] = words.split(" ");
    const name = `wanted/${words.replaceAll(/\W+/g, "-")}`;
    const cli = startCli([command, name, ...flags, "--on-wanted", "SIGUSR1", ...script(RECORDS)], settings());
    await cli.says("ready");
    expect(await two.places(name)).toHaveLength(1);

    const first = waits((signal) => wait(name, signal));
    await cli.says("USR1");
    expect((await two.places(name)).map(({ leaseId }) => leaseId)).toContain(two.session.leaseId);
    // Another one is told to a listener at once when the first has left.
    await first.leave();
    await queued(name, 1);
    const second = waits((signal) => wait(name, signal));
    await queued(name, 2);
    cli.child.kill("SIGHUP");
    await cli.says("HUP");
    cli.child.kill("SIGTERM");
    const { code, stderr } = await cli.ended;
    await second.ended;

    expect([code, recordOf(cli)]).toEqual([7, ["ready", "USR1", "HUP", "TERM"]]);
    expect(stderr.match(/wanted by/g)).toHaveLength(1);
    expect(await two.places(name)).toEqual([]);
  });

  test("says who waits, and why, in a line or an event, also of a client that writes no value", async () => {
    const owner = `${os.hostname()}:${process.pid}`;
    const lines: string[] = [];
    for (const [n, flags] of [
      [1, []],
      [2, ["--json"]],
    ] as const) {
      const name = `says/${n}`;
      const cli = startCli(["run", name, ...flags, "--on-wanted", "SIGUSR1", ...script(RECORDS)], settings());
      await cli.says("ready");
      const waiter = next(name, "deploy 4711");
      await cli.says("USR1");
      cli.child.kill("SIGTERM");
      await Promise.all([cli.ended, waiter.ended]);
      lines.push(...cli.stderr().split("\n").slice(0, -1));
    }
    const name = "says/foreign";
    const cli = startCli(["run", name, "--on-wanted", "SIGUSR1", ...script(RECORDS)], settings());
    await cli.says("ready");
    await putKey(`${name}/1a2b`, "");
    await cli.says("USR1");
    cli.child.kill("SIGTERM");
    await cli.ended;
    await deleteKey(`${name}/1a2b`);

    const [plain, started, event] = lines;
    expect(plain).toBe(`leasehold: says/1 is wanted by ${owner} (deploy 4711): sent SIGUSR1 to the command`);
    expect(JSON.parse(started ?? "")).toMatchObject({ event: "started" });
    expect(JSON.parse(event ?? "")).toMatchObject({
      ...{ event: "wanted", name: "says/2", signal: "SIGUSR1" },
      waiter: { state: "waiting", owner, reason: "deploy 4711", leaseId: two.session.leaseId.toString() },
      message: `says/2 is wanted by ${owner} (deploy 4711): sent SIGUSR1 to the command`,
    });
    expect(cli.stderr()).toBe(
      "leasehold: says/foreign is wanted by other client (no lease): sent SIGUSR1 to the command\n",
    );
  });

  test.each([
    ["run", 128 + 15],
    ["lead", 128 + 15],
  ])(
    "of %s ends a command that does not handle the signal, for a waiter that was there before",
    async (command, code) => {
      const name = `before/${command}`;
      const hold =
        command === "run" ? await take(name) : await new Election(two.holder, name).campaign("first");
      const cli = startCli([command, name, "--on-wanted", "SIGTERM", "--", "sleep", "1000"], settings());
      await queued(name, 2);
      const third =
        command === "run"
          ? next(name)
          : waits((signal) => new Election(two.session, name).campaign("third", { signal }));
      await queued(name, 3);
      await hold.release();

      expect((await cli.ended).code).toBe(code);
      await third.ended;
      expect(await two.places(name)).toEqual([]);
    },
  );

  test("with a signal that asks a program to end, the slot of a command that ends counts as lost; with another one, as its code says", async () => {
    const ends = "trap 'exit 0' TERM USR1; echo ready; while :; do sleep 0.02; done";
    const codes: (number | null)[] = [];
    for (const signal of ["SIGTERM", "SIGUSR1"]) {
      const name = `slot/${signal}`;
      const words = ["run", name, "--once", "1", "--on-wanted", signal];
      const cli = startCli([...words, ...script(ends)], settings());
      await cli.says("ready");
      const waiter = next(name);
      codes.push((await cli.ended).code);
      await waiter.ended;
      codes.push((await run(...words, ...script("echo ran"))).code);
    }
    expect(codes).toEqual([76, 76, 0, 0]);
  });
});

describe("--reason", () => {
  const valueOf = async (name: string) => {
    const [entry] = await two.places(name);
    const { stdout } = await two.etcd.etcdctl(["get", "--print-value-only", entry?.key ?? ""]);
    return JSON.parse(stdout) as Record<string, unknown>;
  };

  test.each([
    ["a lock", []],
    ["a reader", ["--shared"]],
    ["a permit", ["--permits", "2"]],
  ])("of %s is in its key, and in what show and ls print", async (of, flags) => {
    const name = `reason/${of.replaceAll(" ", "-")}`;
    const words = ["run", name, ...flags, "--reason", "deploy 4711", "--owner", "web-3"];
    const cli = startCli([...words, ...script("echo ready; sleep 1000")], settings());
    await cli.says("ready");
    const [show, ls, showJson, lsJson] = await Promise.all([
      run("show", name),
      run("ls", name),
      run("show", name, "--json"),
      run("ls", name, "--json"),
    ]);
    const value = await valueOf(name);
    cli.child.kill("SIGTERM");
    await cli.ended;

    expect(value).toMatchObject({ owner: "web-3", reason: "deploy 4711" });
    expect(show.stdout).toMatch(/\nSTATE +OWNER +REASON +JOINED .*\nholding {2}web-3 {2}deploy 4711 {2}/);
    expect(ls.stdout).toMatch(/ {2}web-3 \(deploy 4711\) {2}/);
    expect(JSON.parse(showJson.stdout)).toMatchObject({ holders: [{ reason: "deploy 4711" }] });
    expect(JSON.parse(lsJson.stdout)).toMatchObject({ holder: { reason: "deploy 4711" } });
  });

  test("of a waiter is told to the holder, and that of the holder to a waiter; one without has neither column nor field", async () => {
    const lock = await new Mutex(two.holder, "told").lock();
    const cli = startCli(["run", "told", "--reason", "mine", "--", "true"], settings());
    const told = new Promise((resolve) => lock.onWanted(({ reason }) => resolve(reason)));
    await cli.says("held by the holder, 1 ahead");
    const [plain, json] = await Promise.all([run("show", "told"), run("show", "told", "--json")]);
    await lock.release();

    expect([await told, (await cli.ended).code]).toEqual(["mine", 0]);
    expect(plain.stdout).toMatch(/\nholding {2}the holder {2,}- {2,}.*\nwaiting {2}\S+ +mine /);
    expect(json.stdout.match(/"reason"/g)).toHaveLength(1);
    const again = await new Mutex(two.holder, "told").lock({ reason: "backup" });
    const [attempt, none] = await Promise.all([
      run("run", "told", "--try", "--", "true"),
      run("show", "told"),
    ]);
    await again.release();
    expect(attempt.stderr).toBe('leasehold: lock "told" is taken: held by the holder (backup)\n');
    expect(none.stdout).toContain("REASON");
  });
});

describe("reasons of hostile clients", () => {
  const hostile = "\u001b[2J\u0007\n\u202eleasehold: granted\u0000".repeat(1000);
  const UNSAFE = /[\p{Cc}\p{Cf}\p{Cs}]/u;
  const isSafe = (output: string) => !UNSAFE.test(output.replaceAll(/\r?\n/g, ""));
  const value = (reason: unknown) => JSON.stringify({ owner: "evil", id: "x", reason });

  test("reach no terminal, are cut, and stand in one line", async () => {
    await putKey("evil/1a2b", value(hostile));
    await putKey("evil/1a2c", value(hostile.repeat(24)));
    await putKey("evil/1a2d", value({ toString: "x" }));
    await putKey("evil/1a2e", value(""));
    const onTerminal = (...words: string[]) =>
      runCli(words, settings({ terminal: true, before: "stty cols 80" }));
    const outputs = await Promise.all([
      run("show", "evil"),
      run("ls", "evil"),
      onTerminal("show", "evil"),
      onTerminal("ls", "evil"),
    ]);
    const json = await run("show", "evil", "--json");

    for (const { code, stdout } of outputs) {
      expect([code, isSafe(stdout)]).toEqual([0, true]);
      expect(stdout).toContain("\\u001b[2J");
      expect(stdout.length).toBeLessThan(6000);
    }
    const [show, ls, wide, wideLs] = outputs.map(({ stdout }) => stdout.split(/\r?\n/));
    expect([show!.length, ls!.length]).toEqual([7, 3]);
    for (const line of [...wide!, ...wideLs!]) expect(line.length).toBeLessThanOrEqual(80);
    const { holders, waiters } = JSON.parse(json.stdout) as Record<string, { reason?: string }[]>;
    const reasons = [...holders!, ...waiters!].map(({ reason }) => reason);
    expect(reasons.map((reason) => reason && hostile.startsWith(reason))).toEqual([
      true,
      undefined,
      undefined,
      "",
    ]);
    expect(Buffer.byteLength(reasons[0]!)).toBeLessThanOrEqual(256);
  });

  test("are one safe line of run, for its command is told by a signal and nothing else", async () => {
    const cli = startCli(["run", "evil-run", "--on-wanted", "SIGUSR1", ...script(RECORDS)], settings());
    await cli.says("ready");
    await putKey("evil-run/1a2b", value(hostile));
    await cli.says("USR1");
    const waiting = startCli(["run", "evil", "--", "true"], settings());
    await waiting.says("ahead in the queue");
    waiting.child.kill("SIGTERM");
    cli.child.kill("SIGTERM");
    const ends = await Promise.all([cli.ended, waiting.ended]);
    await deleteKey("evil-run/1a2b");

    expect(recordOf(cli)).toEqual(["ready", "USR1", "TERM"]);
    for (const { stderr } of ends) {
      expect(stderr).toMatch(/^leasehold: .* evil \(\\u001b\[2J\\u0007\\u000a\\u202e.*\n$/);
      expect([isSafe(stderr), stderr.length < 1500]).toEqual([true, true]);
    }
  });
});
