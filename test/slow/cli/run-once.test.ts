// `leasehold run --once` with a real etcd.
import { afterAll, beforeAll, describe, expect, test } from "vitest";
import { connect, once, type Cluster } from "../../../src/index.js";
import { placesOf } from "../../support/clients/server-view.js";
import { startEtcd, type EtcdCluster } from "../../support/etcd/etcd.js";
import { runCli, startCli } from "../../support/programs/cli.js";

let etcd: EtcdCluster;
let cluster: Cluster;
beforeAll(async () => {
  etcd = await startEtcd();
  cluster = connect({ hosts: etcd.endpoints });
});
afterAll(async () => {
  await cluster.close();
  await etcd.stop();
});
const settings = () => ({ endpoints: etcd.endpoints.join(",") });
const run = (words: readonly string[]) => runCli(["run", ...words], settings());
const start = (words: readonly string[]) => startCli(["run", ...words], settings());
const script = (text: string) => ["--", "sh", "-c", text];

describe("leasehold run --once", () => {
  test("runs the command of a slot once, and says so to later callers with 0", async () => {
    const words = ["cli/once", "--once", "202601020304", ...script("echo ran with $LEASEHOLD_FENCE")];

    const first = await run(words);
    expect(first).toMatchObject({ code: 0, stderr: "" });
    expect(first.stdout).toMatch(/^ran with \d+\n$/);
    const second = await run(words);
    expect(second).toMatchObject({ code: 0, stdout: "" });
    expect(second.stderr).toMatch(
      /^leasehold: slot 202601020304 of cli\/once was run before, by \S+:\d+: not running the command\n$/,
    );
    expect(await placesOf(etcd.member, "cli/once")).toEqual([]);
  });

  test("shares its slots with the library, and writes one event with --json", async () => {
    await once(cluster, "cli/shared", 5, () => undefined);

    const { code, stderr } = await run(["cli/shared", "--json", "--once", "5", ...script("echo ran")]);
    expect(code).toBe(0);
    expect(JSON.parse(stderr)).toMatchObject({
      ...{ event: "once", name: "cli/shared", slot: 5, reason: "done", failed: false },
      ...{ owner: expect.any(String) as string, since: expect.any(String) as string },
      message: expect.any(String) as string,
    });
  });

  test("tells a run whose leasehold was killed, runs it again only with --rerun if-lost", async () => {
    const words = ["cli/killed", "--once", "1", "--ttl", "2s"];
    const killed = start([...words, ...script("echo begun; sleep 60")]);
    await killed.says("begun");
    const running = await run([...words, ...script("echo ran")]);
    expect(running).toMatchObject({ code: 0, stdout: "" });
    expect(running.stderr).toContain("is running");
    killed.child.kill("SIGKILL");
    await killed.ended;
    await expect.poll(() => placesOf(etcd.member, "cli/killed")).toEqual([]);

    const told = await run([...words, ...script("echo ran")]);
    expect(told).toMatchObject({ code: 76, stdout: "" });
    expect(told.stderr).toContain("slot 1 of cli/killed was begun, but its run was lost, by");
    const again = await run([...words, "--rerun", "if-lost", ...script("echo ran")]);
    expect(again).toMatchObject({ code: 0, stdout: "ran\n", stderr: "" });
    expect((await run([...words, ...script("echo ran")])).stderr).toContain("was run before");
  });

  test("does not count a command that was ended, or that could not be started, as run", async () => {
    const ended = await run(["cli/ended", "--once", "1", "--max-hold", "300ms", ...script("sleep 60")]);
    expect(ended.code).toBe(76);
    const missing = await run(["cli/ended", "--once", "2", "--", "no-such-command"]);
    expect(missing.code).toBe(127);

    expect(await run(["cli/ended", "--once", "1", ...script("echo ran")])).toMatchObject({ code: 76 });
    const again = ["cli/ended", "--once", "2", "--rerun", "if-lost", ...script("echo ran")];
    expect(await run(again)).toMatchObject({ code: 0, stdout: "ran\n" });
  });

  /** What a caller with `--json` is told. */
  async function told(name: string) {
    const { code, stderr } = await run([name, "--json", "--once", "1", ...script("echo again")]);
    return { code, ...(JSON.parse(stderr) as object) };
  }
  const again = (name: string, rerun: "if_lost" | "if_failed") =>
    once(cluster, name, 1, () => "again", { rerun });

  test("counts a command that ends with another code than 0 as failed: in its line, and to callers by 79", async () => {
    const failing = ["cli/failed", "--once", "1", ...script("exit 7")];
    expect(await run(failing)).toEqual({
      ...{ code: 7, signal: null, stdout: "" },
      stderr: "leasehold: slot 1 of cli/failed counts as failed: the command failed (exit code 7)\n",
    });

    expect(await told("cli/failed")).toMatchObject({ code: 79, reason: "done", failed: true });
    expect((await run(failing)).stderr).toContain("slot 1 of cli/failed was run before and failed, by");
    expect(await again("cli/failed", "if_lost")).toMatchObject({ reason: "done", run: { failed: true } });
    const words = ["cli/failed", "--once", "1", "--rerun", "if-failed", ...script("echo again")];
    expect(await run(words)).toMatchObject({ code: 0, stdout: "again\n", stderr: "" });
    expect(await again("cli/failed", "if_failed")).toMatchObject({ reason: "done", run: { failed: false } });
  });

  test.each([
    ["is killed", "kill -KILL $$", 137],
    ["ends with the code of a command that was killed", "exit 137", 137],
    ["is interrupted by somebody else", "kill -INT $$", 130],
  ])("counts a command that %s as lost: in the mark, and to callers by 76", async (what, text, code) => {
    const name = `cli/${what.replaceAll(" ", "-")}`;
    const { stderr, ...ended } = await run([name, "--json", "--once", "1", ...script(text)]);

    expect(ended).toMatchObject({ code });
    const lines = stderr
      .trim()
      .split("\n")
      .map((line) => JSON.parse(line) as object);
    expect(lines.at(-1)).toMatchObject({ event: "slot", name, slot: 1, state: "lost", commandCode: code });
    expect(await told(name)).toMatchObject({ code: 76, reason: "lost", failed: false });
    expect(await again(name, "if_lost")).toEqual({ ran: true, value: "again" });
  });

  test.each([
    ["dies of it", "echo begun; exec sleep 60", 143],
    ["ends in order, with 0", "trap 'kill $!; exit 0' TERM; echo begun; sleep 60 & wait", 76],
  ])("counts a command that got SIGTERM through leasehold, and %s, as lost", async (_, text, code) => {
    const name = `cli/told-to-end-${code}`;
    const stopped = start([name, "--once", "1", ...script(text)]);
    await stopped.says("begun");
    stopped.child.kill("SIGTERM");

    expect(await stopped.ended).toMatchObject({ code });
    expect(stopped.stderr()).toContain(`slot 1 of ${name} counts as lost: the command was ended early`);
    expect(await told(name)).toMatchObject({ code: 76, reason: "lost" });
    expect(await again(name, "if_failed")).toEqual({ ran: true, value: "again" });
  });

  test("counts a command that has done its work after SIGHUP as done: it is no order to end", async () => {
    const words = [
      "cli/reloaded",
      "--once",
      "1",
      ...script("trap 'echo reloaded; exit 0' HUP; echo begun; sleep 60 & wait"),
    ];
    const running = start(words);
    await running.says("begun");
    running.child.kill("SIGHUP");

    expect(await running.ended).toMatchObject({ code: 0 });
    expect(await again("cli/reloaded", "if_failed")).toMatchObject({
      reason: "done",
      run: { failed: false },
    });
  });

  test("skips the slot with --if-held skip while another one runs: exit code 0, and no place in the queue", async () => {
    const long = start(["cli/skips", "--once", "1", ...script("echo begun; exec sleep 60")]);
    await long.says("begun");
    const words = ["cli/skips", "--once", "2", "--if-held", "skip"];

    const skipped = await run([...words, ...script("echo ran")]);
    expect(skipped).toMatchObject({ code: 0, stdout: "" });
    expect(skipped.stderr).toBe(
      "leasehold: slot 2 of cli/skips is skipped, because another client holds the lock: not running the command\n",
    );
    const { stderr } = await run([...words, "--json", ...script("echo ran")]);
    expect(JSON.parse(stderr)).toMatchObject({ event: "once", slot: 2, reason: "held" });
    expect(await placesOf(etcd.member, "cli/skips")).toHaveLength(1);
    long.child.kill("SIGTERM");
    await long.ended;
    expect(await run([...words, ...script("echo ran")])).toMatchObject({
      code: 0,
      stdout: "ran\n",
      stderr: "",
    });
  });
});
