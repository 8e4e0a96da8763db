// `leasehold run --once` with keys that are texts, and the output that --keep-output keeps, with a real etcd.
import { describe, expect, test } from "vitest";
import { once } from "../../../src/index.js";
import { twoSessions } from "../../support/fixtures/two-sessions.js";
import { type CliSettings, runCli, startCli } from "../../support/programs/cli.js";

const two = twoSessions(30);
const settings = () => ({ endpoints: two.etcd.endpoints.join(",") });
const run = (words: readonly string[], more: CliSettings = {}) =>
  runCli(["run", ...words], { ...settings(), ...more });
const start = (words: readonly string[]) => startCli(["run", ...words], settings());
const script = (text: string) => ["--", "sh", "-c", text];
const never = script("echo this must not run");
const KEPT = "--keep-output";
const objects = (text: string) =>
  text
    .split("\n")
    .slice(0, -1)
    .map((line) => JSON.parse(line) as object);

describe("leasehold run --once with a key that is a text", () => {
  test("runs the command once, under a lock of its own, and shares the slot with the library", async () => {
    const words = ["texts", "--once", "any key/1", ...script("echo $LEASEHOLD_NAME")];

    expect(await run(words)).toMatchObject({ code: 0, stdout: "texts/any%20key%2F1\n", stderr: "" });
    const told = await run(words);
    expect(told).toMatchObject({ code: 0, stdout: "" });
    expect(told.stderr).toMatch(
      /^leasehold: slot "any key\/1" of texts was run before, by \S+:\d+: not running the command\n$/,
    );
    expect(await once(two.holder, "texts", "any key/1", () => 7)).toMatchObject({
      ran: false,
      reason: "done",
    });
    expect(await once(two.holder, "texts", "another", () => 7)).toMatchObject({ ran: true });
  });

  test("keeps the slot for --keep, a day without it", async () => {
    await run(["kept", "--once", "a", "--keep", "30d", "--", "true"]);
    await run(["kept", "--once", "b", "--", "true"]);

    const marks = await two.places("/leasehold/once/kept/");
    const ttls = await Promise.all(
      marks.map(async ({ leaseId }) => {
        const { stdout } = await two.etcd.etcdctl(["lease", "timetolive", leaseId.toString(16)]);
        return Number(/remaining\((\d+)s\)/.exec(stdout)?.[1]);
      }),
    );
    expect(ttls.map((ttl) => Math.floor(ttl / 86_400)).sort((a, b) => a - b)).toEqual([1, 33]);
  });

  test("waits for the run of another client, skips it, or fails with 75, as --if-running says", async () => {
    let [begin, end] = [() => {}, () => {}];
    const begun = new Promise<void>((resolve) => (begin = resolve));
    const ended = new Promise<void>((resolve) => (end = resolve));
    const running = once(two.holder, "running", "a", () => (begin(), ended));
    await begun;
    const words = ["running", "--once", "a"];

    const [skipped, failed, json, timedOut] = await Promise.all([
      run([...words, ...never]),
      run([...words, "--if-running", "fail", ...never]),
      run([...words, "--if-running", "fail", "--json", ...never]),
      run([...words, "--if-running", "wait", "--wait", "3s", ...never]),
    ]);
    const waiting = start([...words, "--if-running", "wait", "--if-held", "skip", ...never]);
    await waiting.says('leasehold: waiting for the run of slot "a" of running: held by the holder\n');
    end();
    await running;

    expect(skipped).toMatchObject({ code: 0, stdout: "" });
    expect(skipped.stderr).toBe(
      'leasehold: slot "a" of running is running, by the holder: not running the command\n',
    );
    expect(failed).toMatchObject({ code: 75, stdout: "" });
    expect(failed.stderr).toBe('leasehold: slot "a" of "running" is running, by the holder\n');
    expect(objects(json.stderr)).toMatchObject([{ error: { exitCode: 75 } }]);
    expect(timedOut).toMatchObject({ code: 75, stdout: "" });
    expect(await waiting.ended).toMatchObject({ code: 0, stdout: "" });
    expect(waiting.stderr()).toContain('slot "a" of running was run before, by the holder: not running');
  });
});

describe("leasehold run --once --keep-output", () => {
  test("shows the output as it comes, and replays it to later calls, with a line that says so", async () => {
    const first = start([
      "output",
      "--once",
      "a",
      KEPT,
      ...script("echo begun; echo error >&2; read line; echo ended"),
    ]);
    await first.says("begun\n");
    first.child.stdin?.end("go\n");
    expect(await first.ended).toMatchObject({ code: 0, stdout: "begun\nended\n", stderr: "error\n" });

    const again = await run(["output", "--once", "a", KEPT, ...never]);
    expect(again).toMatchObject({ code: 0, stdout: "begun\nended\n" });
    expect(again.stderr).toMatch(
      /^leasehold: slot "a" of output was run before, by \S+:\d+: replaying its output\n$/,
    );
    const json = await run(["output", "--once", "a", KEPT, "--json", ...never]);
    expect(json.stdout).toBe("begun\nended\n");
    expect(objects(json.stderr)).toMatchObject([
      { event: "once", name: "output", slot: "a", reason: "done", failed: false, commandCode: 0, cut: false },
    ]);
    expect(await run(["output", "--once", "a", ...never])).toMatchObject({ code: 0, stdout: "" });
  });

  test("replays the output of a command that has failed, with its code; --rerun if-failed runs it again", async () => {
    const words = ["failed", "--once", "a"];
    const failing = await run([...words, KEPT, ...script("echo half; exit 7")]);
    expect(failing).toMatchObject({ code: 7, stdout: "half\n" });
    expect(failing.stderr).toBe(
      'leasehold: slot "a" of failed counts as failed: the command failed (exit code 7)\n',
    );

    const again = await run([...words, KEPT, ...never]);
    expect(again).toMatchObject({ code: 7, stdout: "half\n" });
    expect(again.stderr).toMatch(
      / was run before and failed, by \S+: replaying its output \(exit code 7\)\n$/,
    );
    expect(await run([...words, ...never])).toMatchObject({ code: 79, stdout: "" });
    expect(await once(two.holder, "failed", "a", () => 7, { result: "keep" })).toMatchObject({
      ...{ status: "failed", error: { name: "CommandFailed", message: "exit code 7" } },
      result: { exitCode: 7, output: "half\n" },
    });
    const better = await run([...words, KEPT, "--rerun", "if-failed", ...script("echo whole")]);
    expect(better).toMatchObject({ code: 0, stdout: "whole\n", stderr: "" });
    expect(await run([...words, KEPT, ...never])).toMatchObject({ code: 0, stdout: "whole\n" });
  });

  test("keeps nothing of a command that a signal has ended: it is lost", async () => {
    const words = ["lost", "--once", "a", KEPT];
    expect(await run([...words, ...script("echo half; kill -KILL $$")])).toMatchObject({
      code: 137,
      stdout: "half\n",
    });

    expect(await run([...words, ...never])).toMatchObject({ code: 76, stdout: "" });
    expect(await run([...words, "--rerun", "if-lost", ...script("echo whole")])).toMatchObject({
      stdout: "whole\n",
    });
  });

  test("keeps the end of a long output, also for a slot that is a number", async () => {
    const long = 'i=0; while [ $i -lt 20000 ]; do echo "line $i of an output"; i=$((i+1)); done';
    const first = await run(["long", "--once", "1", KEPT, ...script(long)]);
    const replay = await run(["long", "--once", "1", KEPT, ...never]);

    expect(first.stdout).toHaveLength(468_890);
    expect(first.stdout.endsWith(replay.stdout)).toBe(true);
    expect(replay.stdout.length).toBeGreaterThan(60_000);
    expect(replay.stderr).toMatch(
      /slot 1 of long was run before, by \S+: replaying the end of its output\n$/,
    );
  });

  test("goes on, and keeps the output, when the reader of it has gone", async () => {
    const lines = "echo begun; read line; yes 'more than a pipe has room for' | head -10000; echo end";
    const first = start(["reader", "--once", "a", KEPT, ...script(lines)]);
    await first.says("begun\n");
    first.child.stdout?.destroy();
    first.child.stdin?.end("go\n");
    await new Promise((resolve) => first.child.once("exit", resolve));

    const { code, stdout } = await run(["reader", "--once", "a", KEPT, ...never]);
    expect(code).toBe(0);
    expect(stdout).toMatch(/(more than a pipe has room for\n)+end\n$/);
  });

  test("does not wait for a process that has left the group with the output", async () => {
    const words = ["daemon", "--once", "a", KEPT];
    const first = await run([...words, ...script("setsid sleep 60 2>/dev/null & echo $!")]);

    expect(first.code).toBe(0);
    // No text at all would be the process group of this test.
    expect(first.stdout).toMatch(/^[1-9]\d*\n$/);
    process.kill(Number(first.stdout), "SIGKILL");
    expect(await run([...words, ...never])).toMatchObject({ stdout: first.stdout });
  });

  test("replays nothing that is no output, and on a terminal no control character", async () => {
    const keep = (slot: string, result: unknown) =>
      once(two.holder, "hostile", slot, () => result, { result: "keep" });
    await Promise.all([
      keep("a", { exitCode: 0, output: "\u001b[2Jred\u202e\n" }),
      keep("b", { id: "ch_1" }),
      once(two.holder, "hostile", "c", () => 7),
    ]);
    const replay = (slot: string, more?: CliSettings) =>
      run(["hostile", "--once", slot, KEPT, ...never], more);

    expect((await replay("a")).stdout).toBe("\u001b[2Jred\u202e\n");
    expect((await replay("a", { terminal: true })).stdout).toMatch(/\\u001b\[2Jred\\u202e\r\n$/);
    for (const slot of ["b", "c"]) {
      const { code, stdout, stderr } = await replay(slot);
      expect({ code, stdout }).toEqual({ code: 0, stdout: "" });
      expect(stderr).toMatch(/by the holder: not running the command, whose output was not kept\n$/);
    }
  });
});
