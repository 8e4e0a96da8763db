// `leasehold run --priority N` with a real etcd: who runs next, and what others see of it. etcd's keys say who holds and waits.
import { describe, expect, test } from "vitest";
import { Mutex } from "../../../src/index.js";
import { etcdOf } from "../../support/fixtures/subjects.js";
import { twoSessions } from "../../support/fixtures/two-sessions.js";
import { runCli, startCli } from "../../support/programs/cli.js";

const two = twoSessions(30);
const { queued } = etcdOf(two);
const settings = () => ({ endpoints: two.etcd.endpoints.join(",") });
const start = (name: string, priority: number, ...flags: readonly string[]) =>
  startCli(
    ["run", name, `--priority=${priority}`, ...flags, "--", "sh", "-c", "echo runs; read line; exit 0"],
    settings(),
  );
const run = (name: string, ...flags: readonly string[]) =>
  runCli(["run", name, ...flags, "--", "echo", "ran"], settings());
const mutexOf = (name: string) => new Mutex(two.session, name, { priorities: true });

describe.concurrent("commands with priorities", () => {
  test("run as their priorities say, between calls of the library, and show says which they have", async () => {
    const name = "printer";
    const hold = await mutexOf(name).lock({ priority: -3 });
    const low = start(name, -5, "--owner", "low");
    await queued(name, 2);
    const high = start(name, 7, "--owner", "high");
    await queued(name, 3);
    const [shown, lines] = await Promise.all(
      [[], ["--json"]].map((flags) => runCli(["show", name, ...flags], settings())),
    );

    const columns = shown!.stdout.split("\n").filter((line) => /waiting {2}/.test(line));
    expect(columns.map((line) => line.trim().split(/ {2,}/).slice(1, 3))).toEqual([
      ["high", "7"],
      ["low", "-5"],
    ]);
    expect(JSON.parse(lines!.stdout)).toMatchObject({
      kind: "mutex",
      holders: [{ priority: -3 }],
      waiters: [{ priority: 7 }, { priority: -5 }],
    });
    await hold.release();
    await high.says("runs");
    const next = mutexOf(name).lock({ priority: 1 });
    await queued(name, 3);
    high.child.stdin?.end("\n");
    expect((await high.ended).code).toBe(0);
    await (await next).release();
    await low.says("runs");
    low.child.stdin?.end("\n");
    expect((await low.ended).code).toBe(0);
    expect(await two.places(name)).toEqual([]);
  });

  test("with --try run if nobody holds or waits, and otherwise end with 75", async () => {
    const name = "tried";
    expect(await run(name, "--priority", "5", "--try")).toMatchObject({ code: 0, stdout: "ran\n" });
    const hold = await mutexOf(name).lock();

    expect(await run(name, "--priority", "1000", "--try")).toMatchObject({ code: 75, stdout: "" });
    await hold.release();
  });

  test("end with 64 beside a plain lock of the name, and a plain one beside them, too", async () => {
    const plain = await new Mutex(two.session, "plain").lock();
    expect((await run("plain", "--priority", "5")).code).toBe(64);
    await plain.release();

    const ranked = await mutexOf("ranked").lock();
    expect((await run("ranked", "--wait", "10s")).code).toBe(64);
    await ranked.release();
  });

  test("that are ended while they wait leave no key", async () => {
    const name = "ended";
    const hold = await mutexOf(name).lock();
    const waits = start(name, 3);
    await queued(name, 2);

    waits.child.kill("SIGTERM");
    expect((await waits.ended).code).toBe(128 + 15);
    expect(await two.places(name)).toHaveLength(1);
    await hold.release();
  });
});
