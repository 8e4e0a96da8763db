// The built program `leasehold top`, on a pseudo-terminal and without one.
import { execFileSync } from "node:child_process";
import { afterAll, beforeAll, describe, expect, test } from "vitest";
import { startEtcd, type EtcdCluster } from "../../support/etcd/etcd.js";
import { grantLease, putKeys } from "../../support/clients/many-keys.js";
import { runCli, startCli, type RunningCli } from "../../support/programs/cli.js";
import { Screen } from "../../support/programs/screen.js";
import { startTcpProxy } from "../../support/proxies/tcp-proxy.js";

let etcd: EtcdCluster;
beforeAll(async () => void (etcd = await startEtcd()), 60_000);
afterAll(() => etcd.stop());
const endpoints = () => etcd.endpoints.join(",");
const PATIENCE = { timeout: 15_000, interval: 50 };

const remove = (key: string) =>
  etcd.member.gateway("/v3/kv/deleterange", { key: Buffer.from(key).toString("base64") });

const owned = (owner: string) =>
  JSON.stringify({ owner, since: new Date(Date.now() - 3_600_000).toISOString(), id: owner });

interface Terminal {
  readonly program: RunningCli;
  readonly screen: Screen;
  readonly shows: (text: string | RegExp) => Promise<void>;
  readonly type: (keys: string) => void;
  /** Its device, as `tty` names it. */
  readonly device: () => string;
}

function startTop(words: readonly string[], { columns = 80, rows = 24, at = endpoints() } = {}): Terminal {
  const before = `stty rows ${rows} cols ${columns}; tty; echo "pid $$"`;
  const program = startCli(["top", ...words], { endpoints: at, terminal: true, before });
  const screen = new Screen(200, 60);
  let read = 0;
  const update = () => {
    const output = program.stdout();
    screen.write(output.slice(read));
    read = output.length;
  };
  program.child.stdout?.on("data", update);
  const shows = async (text: string | RegExp) => {
    const check = expect.poll(() => (update(), screen.text), PATIENCE);
    if (typeof text === "string") await check.toContain(text);
    else await check.toMatch(text);
  };
  const device = () => /\/dev\/pts\/\d+/.exec(program.stdout())?.[0] ?? "";
  return { program, screen, shows, device, type: (keys) => void program.child.stdin?.write(keys) };
}

const restored = ({ screen }: Terminal) => [screen.isAlternate, screen.isCursorVisible, screen.wraps];
const AS_BEFORE = [false, true, true];

const lineWith = ({ screen }: Terminal, text: string) =>
  screen.lines.findIndex((line) => line.includes(text));

describe("leasehold top on a terminal", () => {
  test("follows every change, sorts, shows the queue of the selected lock, filters, and ends with q", async () => {
    const leaseId = await grantLease(etcd.member, 300);
    await putKeys(etcd.member, ["live/a/1f"], { leaseId, value: owned("web-1") });
    await putKeys(etcd.member, ["live/b/1f", "live/b/2f"], { leaseId, value: owned("web-2") });
    const top = startTop(["live/"]);
    await top.shows("2 locks  2 holding  1 waiting");
    expect(top.screen.isAlternate).toBe(true);
    expect(top.screen.isCursorVisible).toBe(false);
    expect(lineWith(top, "live/b")).toBeLessThan(lineWith(top, "live/a"));
    expect(top.screen.text).toMatch(/live\/b +mutex +web-2 +1 +<60 min +0\/s/);

    await putKeys(etcd.member, ["live/a/2f", "live/a/3f"], { leaseId, value: owned("web-3") });
    await top.shows(/live\/a .* 2 +<60 min/);
    expect(lineWith(top, "live/a")).toBeLessThan(lineWith(top, "live/b"));
    await remove("live/a/1f");
    await top.shows(/live\/a +mutex +web-3 +1 +\d s +0\.1\/s/);

    top.type("\u001b[B");
    top.type("\r");
    await top.shows("holds <60 min");
    await top.shows(/1\. waits 60 min +web-2/);
    top.type("\u001b");
    await top.shows("NAME");
    top.type("/LIVE/A\r");
    await top.shows("filter: LIVE/A (Esc removes it)");
    await expect.poll(() => lineWith(top, "live/b"), PATIENCE).toBe(-1);
    top.type("r");
    await top.shows("RATE*");
    top.type("q");

    expect((await top.program.ended).code).toBe(0);
    expect(restored(top)).toEqual(AS_BEFORE);
  });

  test("shows names and owners of hostile clients escaped, and cut to its lines", async () => {
    const name = `evil/\u001b[2J${"漢".repeat(60)}`;
    await putKeys(etcd.member, [`${name}/1f`], { value: owned("\u001b]0;pwned\u0007\u202e") });
    const top = startTop(["evil/"]);
    await top.shows("evil/\\u001b[2J漢");

    expect(top.screen.text).toContain("\\u001b]0;pwn");
    expect(Math.max(...top.screen.lines.map((line) => line.length))).toBeLessThanOrEqual(80);
    top.type("q");
    await top.program.ended;
  });

  test("restores the terminal when it ends with an error, and shows that then", async () => {
    const keys = Array.from({ length: 20_001 }, (_, n) => `full/${n % 50}/${(n + 256).toString(16)}`);
    await putKeys(etcd.member, keys.slice(1));
    const top = startTop(["full/"]);
    await top.shows("50 locks");

    await putKeys(etcd.member, keys.slice(0, 1));

    expect((await top.program.ended).code).toBe(64);
    await top.shows('there are more than 20000 keys under "full/": narrow the prefix');
    expect(restored(top)).toEqual(AS_BEFORE);
  });

  test("follows a resize", async () => {
    await putKeys(
      etcd.member,
      Array.from({ length: 40 }, (_, n) => `size/${n}/1f`),
    );
    const top = startTop(["size/"]);
    await top.shows("40 locks");
    expect(top.screen.lines.filter((line) => line.startsWith("size/"))).toHaveLength(20);

    execFileSync("stty", ["-F", top.device(), "rows", "34", "cols", "100"]);
    await expect
      .poll(() => top.screen.lines.filter((line) => line.startsWith("size/")).length, PATIENCE)
      .toBe(30);
    top.type("G\u0003");

    expect((await top.program.ended).code).toBe(130);
    expect(restored(top)).toEqual(AS_BEFORE);
  });

  test("says that etcd does not answer, keeps the table, and goes on when it does", async () => {
    await putKeys(etcd.member, ["dead/a/1f"]);
    await using proxy = await startTcpProxy({ port: etcd.member.clientPort });
    const top = startTop(["dead/"], { at: proxy.endpoint.replace(/^https?:\/\//, "") });
    await top.shows("1 lock ");

    await proxy.mode("refuse");
    await putKeys(etcd.member, ["dead/b/1f"]);
    await top.shows(/ETCD DOES NOT ANSWER for \d+ m?s; this is revision/);
    expect(lineWith(top, "dead/a")).toBeGreaterThan(0);
    await proxy.mode("pass");
    await top.shows("2 locks");
    await expect.poll(() => lineWith(top, "DOES NOT ANSWER"), PATIENCE).toBe(-1);
    process.kill(Number(/pid (\d+)/.exec(top.program.stdout())?.[1]), "SIGTERM");

    expect((await top.program.ended).code).toBe(143);
    expect(restored(top)).toEqual(AS_BEFORE);
  });
});

describe("leasehold top without a terminal", () => {
  test("prints the present state once; with --json, one object", async () => {
    const leaseId = await grantLease(etcd.member, 300);
    await putKeys(etcd.member, ["once/a/1f", "once/a/2f"], { leaseId, value: owned("web\u001b[1m") });
    const [text, json, none] = await Promise.all([
      runCli(["top", "once/"], { endpoints: endpoints() }),
      runCli(["top", "once/", "--json", "--once"], { endpoints: endpoints() }),
      runCli(["top", "nothing/"], { endpoints: endpoints() }),
    ]);

    expect([text.code, text.stderr]).toEqual([0, ""]);
    expect(text.stdout).toMatch(/^NAME .*\nonce\/a +mutex +web\\u001b\[1m +1 +1 +<60 min\n$/);
    expect(JSON.parse(json.stdout)).toMatchObject({
      event: "locks",
      revision: expect.stringMatching(/^\d+$/) as string,
      locks: [
        {
          name: "once/a",
          kind: "mutex",
          total: { holders: 1, waiters: 1 },
          holders: [{ owner: "web\u001b[1m" }],
        },
      ],
      gone: [],
    });
    expect([none.code, none.stdout]).toEqual([0, "NAME  KIND  HOLDER  HOLDING  WAITING  HELD\n"]);
  });

  test("with --json writes what changes, at most once in an interval, until it is asked to stop", async () => {
    await putKeys(etcd.member, ["json/a/1f", "json/b/1f"]);
    const began = Date.now();
    const program = startCli(["top", "json/", "--json", "--interval", "300ms"], { endpoints: endpoints() });
    const lines = () => program.stdout().split("\n").slice(0, -1);
    const locks = () =>
      lines()
        .map((line) => JSON.parse(line) as { event: string; locks: { name: string }[]; gone: string[] })
        .filter(({ event }) => event === "locks");
    await expect.poll(() => locks().length, PATIENCE).toBe(1);
    expect(
      locks()[0]!
        .locks.map(({ name }) => name)
        .sort(),
    ).toEqual(["json/a", "json/b"]);

    await remove("json/b/1f");
    for (let n = 0; n < 30; n++) await putKeys(etcd.member, [`json/a/${n + 256}`]);
    await expect.poll(() => locks().flatMap(({ gone }) => gone), PATIENCE).toEqual(["json/b"]);
    await expect
      .poll(() => locks().at(-1)?.locks, PATIENCE)
      .toMatchObject([{ name: "json/a", total: { waiters: 30 } }]);
    expect(locks().length).toBeLessThanOrEqual(1 + Math.ceil((Date.now() - began) / 300));
    program.child.kill("SIGINT");

    expect((await program.ended).code).toBe(130);
  });

  test("ends with one line where etcd does not answer, and on a bad interval", async () => {
    const [dead, bad, word] = await Promise.all([
      runCli(["top"], { endpoints: "127.0.0.1:1" }),
      runCli(["top", "--interval", "50ms"], { endpoints: endpoints() }),
      runCli(["top", "--interval", "fast"], { endpoints: endpoints() }),
    ]);

    expect([dead.code, dead.stdout]).toEqual([69, ""]);
    expect(dead.stderr).toMatch(/^leasehold: etcd did not answer .*\n$/);
    expect([bad.code, bad.stderr]).toEqual([
      64,
      'leasehold: --interval must be 100ms or more, got "50ms"; see leasehold top --help\n',
    ]);
    expect([word.code, word.stderr.split("\n").length]).toEqual([64, 2]);
  });
});
