// `leasehold run` with a real etcd: the command, its exit code, its signals, its environment, and the wait for the lock.
import { spawn } from "node:child_process";
import { once } from "node:events";
import os from "node:os";
import { afterAll, beforeAll, describe, expect, test } from "vitest";
import { connect, inspect, Mutex, RwLock, type Cluster } from "../../../src/index.js";
import { placesOf } from "../../support/clients/server-view.js";
import { startEtcd, type EtcdCluster } from "../../support/etcd/etcd.js";
import { CLI, runCli, startCli } from "../../support/programs/cli.js";
import { owned } from "../../support/programs/owned.js";

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
const settings = (more = {}) => ({ endpoints: etcd.endpoints.join(","), ...more });
const run = (words: readonly string[], more = {}) => runCli(["run", ...words], settings(more));
const start = (words: readonly string[], more = {}) => startCli(["run", ...words], settings(more));
const keysOf = (name: string) => placesOf(etcd.member, name);
const script = (text: string) => ["--", "sh", "-c", text];

const SIGNALS = ["SIGINT", "SIGHUP", "SIGQUIT", "SIGUSR1"] as const;

describe("the exit code", () => {
  test.concurrent.each([
    ["a command that fails", script("exit 7"), 7, ""],
    ["a command that was killed", script("kill -KILL $$"), 128 + 9, ""],
    ["no such command", ["--", "no-such-command"], 127, "leasehold: no-such-command: command not found\n"],
    ["a file that is no program", ["--", CLI.replace(/[^/]*$/, "index.d.ts")], 126, /: permission denied/],
  ])("of %s", async (title, words, code, stderr) => {
    const name = `code/${title.replaceAll(" ", "-")}`;
    const result = await run([name, ...words]);

    expect(result).toMatchObject({ code, stdout: "" });
    expect(result.stderr).toMatch(stderr === "" ? /^$/ : stderr);
    expect(await keysOf(name)).toEqual([]);
  });
});

describe("--release-delay", () => {
  test.concurrent.each(["run", "lead"])("of %s is that of its session", async (command) => {
    const name = `delayed/${command}`;
    const flags = ["--ttl", "5s", "--release-delay", "3s"];
    const cli = startCli([command, name, ...flags, ...script("echo ready; sleep 60")], settings());
    await cli.says("ready");
    const ttls = (await keysOf(name)).map(async ({ leaseId }) => {
      const answer: unknown = await etcd.member.gateway("/v3/lease/timetolive", { ID: leaseId.toString() });
      return Number((answer as { grantedTTL: string }).grantedTTL);
    });
    // The delay lease has the TTL, the delay, and a second for etcd's own delay.
    expect((await Promise.all(ttls)).toSorted()).toEqual([5, 9]);
    cli.child.kill("SIGTERM");

    expect(await cli.ended).toMatchObject({ code: 128 + 15 });
    expect(await keysOf(name)).toEqual([]);
  });
});

describe("signals", () => {
  test("that leasehold gets are passed on, and the command decides which of them ends it", async () => {
    const told = SIGNALS.map((name) => `trap 'echo ${name}' ${name.slice(3)}`).join("; ");
    const cli = start([
      "signals",
      ...script(`${told}; trap '' TERM; trap 'exit 9' USR2; echo ready; while :; do sleep 0.05; done`),
    ]);
    await cli.says("ready");
    cli.child.kill("SIGTERM");
    for (const name of SIGNALS) {
      cli.child.kill(name);
      await cli.says(name);
    }
    cli.child.kill("SIGUSR2");

    expect((await cli.ended).code).toBe(9);
  });

  test.concurrent.each(["SIGTERM", "SIGINT"] as const)(
    "%s ends the wait for the lock, and leaves no key",
    async (name) => {
      const queue = `waiting/${name}`;
      await new Mutex(cluster, queue).withLock(async () => {
        const cli = start([queue, ...script("echo started")]);
        await cli.says("1 ahead in the queue");
        cli.child.kill(name);

        expect(await cli.ended).toMatchObject({ code: 128 + os.constants.signals[name], stdout: "" });
        expect(await keysOf(queue)).toHaveLength(1);
      });
    },
  );
});

describe("the environment of the command", () => {
  test("has the name, the key, the fence and the lease as etcdctl reads it", async () => {
    const { stdout } = await run([
      "env/mutex",
      ...script("env | grep -E '^LEASEHOLD_(NAME|KEY|FENCE|LEASE)='"),
    ]);
    const facts = Object.fromEntries(
      stdout
        .trim()
        .split("\n")
        .map((line) => line.split("=") as [string, string]),
    );

    expect(facts).toEqual({
      LEASEHOLD_NAME: "env/mutex",
      LEASEHOLD_KEY: expect.stringMatching(/^env\/mutex\/[0-9a-f]+$/) as string,
      LEASEHOLD_FENCE: expect.stringMatching(/^\d+$/) as string,
      LEASEHOLD_LEASE: expect.stringMatching(/^[0-9a-f]{16}$/) as string,
    });
    expect(facts["LEASEHOLD_KEY"]).toContain(BigInt(`0x${facts["LEASEHOLD_LEASE"]}`).toString(16));
  });
});

test("--owner of run and lead is what others see, and one that is too long or empty is refused", async () => {
  await using cluster = connect({ hosts: etcd.endpoints });
  for (const command of ["run", "lead"]) {
    const name = `owned/${command}`;
    const holds = startCli([command, name, "--owner", "backup of web-3", "--", "sleep", "60"], {
      endpoints: etcd.endpoints.join(","),
    });
    await expect
      .poll(async () => (await inspect(cluster, name)).holders.map(({ owner, value }) => owner ?? value))
      .toEqual(["backup of web-3"]);
    holds.child.kill("SIGTERM");
    await holds.ended;
    const refused = ["", "x".repeat(257)].map((owner) =>
      runCli([command, name, "--owner", owner, "--", "true"], { endpoints: etcd.endpoints.join(",") }),
    );
    for (const { code, stderr } of await Promise.all(refused))
      expect([code, stderr]).toEqual([64, expect.stringContaining("--owner must be 1 to 256 bytes")]);
  }
});

describe("the wait for the lock", () => {
  test("is limited by --wait, or left out by --try: 75, with the holder", async () => {
    await new Mutex(cluster, "taken").withLock(async (lock) => {
      const owner = `${os.hostname()}:${process.pid}`;
      const [wait, attempt] = await Promise.all([
        run(["taken", "--wait", "2s", ...script("echo started")]),
        run(["taken", "--try", ...script("echo started")]),
      ]);

      expect([wait.code, attempt.code]).toEqual([75, 75]);
      expect(wait.stdout + attempt.stdout).toBe("");
      expect(wait.stderr).toMatch(
        /^leasehold: .*\n(leasehold: Lock "taken" not acquired within 2000 ms.*\n)?$/m,
      );
      expect(attempt.stderr).toBe(`leasehold: lock "taken" is taken: held by ${owner}\n`);
      expect(await keysOf("taken")).toEqual([expect.objectContaining({ key: lock.key })]);
    });
  });

  test("ends with the lock when it is free: readers side by side, and permits, without a fence, even of an outer lock", async () => {
    const hold = script('echo "fence ${LEASEHOLD_FENCE-none}"; read line; exit 3');
    const outer = { env: { LEASEHOLD_FENCE: "1" } };
    const readers = [1, 2].map(() => start(["rw", "--shared", ...hold], outer));
    const permits = [1, 2].map(() => start(["sem", "--permits", "2", ...hold], outer));
    await Promise.all([...readers, ...permits].map((cli) => cli.says("fence none")));
    const writer = start(["rw", ...script("exit 4")]);
    const third = start(["sem", "--permits", "2", ...script("exit 5")]);
    await Promise.all([writer.says("held by"), third.says("held by")]);
    for (const cli of [...readers, ...permits]) cli.child.stdin?.end();
    const ends = await Promise.all([...readers, ...permits, writer, third].map(({ ended }) => ended));

    expect(ends.map(({ code }) => code)).toEqual([3, 3, 3, 3, 4, 5]);
    expect(await new RwLock(cluster, "rw").tryWriteLock().then((lock) => lock?.release())).toBeUndefined();
  });

  test("ends at once with 75 where --max-waiting says that the queue is full", async () => {
    const lock = await new Mutex(cluster, "bounded").lock();
    const waits = start(["bounded", "--max-waiting", "1", ...script("exit 3")]);
    await waits.says("held by");
    const late = await start(["bounded", "--max-waiting", "1", ...script("exit 4")]).ended;

    expect(late.code).toBe(75);
    expect(late.stderr).toContain('Queue of "bounded" is full: 1 wait, and maxWaiting is 1');
    await lock.release();
    expect((await waits.ended).code).toBe(3);
  });

  test("ends at once with 75 where --supersede lets a newer one take its place", async () => {
    const lock = await new Mutex(cluster, "newest").lock();
    const older = start(["newest", "--supersede", ...script("exit 3")]);
    await older.says("held by");
    const newer = start(["newest", "--supersede", "--owner", "ci/4712", ...script("exit 4")]);

    const ended = await older.ended;
    expect(ended.code).toBe(75);
    expect(ended.stderr).toContain('Superseded by a newer call for "newest" of "ci/4712"');
    await lock.release();
    expect((await newer.ended).code).toBe(4);
  });

  test("is reported in lines, in JSON lines, or in one line of a terminal that the command's output replaces", async () => {
    const mutex = new Mutex(cluster, "told");
    const lock = await mutex.lock();
    const plain = start(["told", ...script("echo started")]);
    await plain.says("1 ahead in the queue");
    const json = start(["told", "--json", ...script("echo started")]);
    await json.says('"ahead":2');
    const terminal = start(["told", ...script("echo started")], { terminal: true, env: { TERM: "xterm" } });
    await terminal.says("3 ahead in the queue");
    await lock.release();
    const [text, lines, shown] = await Promise.all([plain.ended, json.ended, terminal.ended]);

    expect([text.code, lines.code, shown.code]).toEqual([0, 0, 0]);
    const owner = `${os.hostname()}:${process.pid}`;
    expect(text.stderr).toBe(`leasehold: waiting for told: held by ${owner}, 1 ahead in the queue\n`);
    const events = lines.stderr
      .trim()
      .split("\n")
      .map((line) => JSON.parse(line) as Record<string, unknown>);
    expect(events[0]).toMatchObject({ event: "waiting", name: "told", ahead: 2, holder: { owner } });
    expect(events[0]).toMatchObject({ total: { holders: 1, waiters: 2 } });
    expect(events.at(-1)).toMatchObject({
      event: "started",
      name: "told",
      pid: expect.any(Number) as number,
    });
    expect(shown.stdout).toMatch(/^\rleasehold: waiting for told: held by .*3 ahead in the queue\u001b\[K/);
    expect(shown.stdout).toMatch(/\r\u001b\[Kstarted\r\n$/);
  });

  test("cannot be forged or colored by the name of the holder", async () => {
    const other = connect({ hosts: etcd.endpoints, session: { owner: "a\u001b[31m\nleasehold: granted" } });
    await new Mutex(other, "hostile").withLock(async () => {
      const cli = start(["hostile", ...script("echo started")]);
      await cli.says("1 ahead in the queue");
      cli.child.kill("SIGTERM");
      await cli.ended;

      expect(cli.stderr()).toContain("held by a\\u001b[31m\\u000aleasehold: granted, 1 ahead");
    });
    await other.close();
  });
});

describe("standard streams", () => {
  test("are the command's: its input, its output, its errors", async () => {
    const result = await run(["streams", ...script("cat; echo errors >&2")], { input: "text" });

    expect(result).toMatchObject({ code: 0, stdout: "text", stderr: "errors\n" });
  });

  test("that nobody reads end neither leasehold nor its wait", async () => {
    await new Mutex(cluster, "deaf").withLock(async () => {
      const cli = start(["deaf", "--wait", "1s", ...script("true")]);
      cli.child.stdout?.destroy();
      cli.child.stderr?.destroy();
      const [code] = (await once(cli.child, "exit")) as [number];

      expect(code).toBe(75);
    });
  });

  test("may be closed", async () => {
    const line = 'exec "$0" "$1" run closed -- sh -c "exit 6" <&- >&- 2>&-';
    const env = { ...process.env, ETCDCTL_ENDPOINTS: etcd.endpoints.join(",") };
    const child = owned(spawn("sh", ["-c", line, process.execPath, CLI], { env, stdio: "ignore" }));
    const [code] = (await once(child, "exit")) as [number];

    expect(code).toBe(6);
  });
});
