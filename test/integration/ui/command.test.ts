// `leasehold ui`: the built program, its page and its token.
import { afterAll, beforeAll, describe, expect, test } from "vitest";
import { connect, Mutex, type Cluster } from "../../../src/index.js";
import { startEtcd, type EtcdCluster } from "../../support/etcd/etcd.js";
import { runCli, startCli, type RunningCli } from "../../support/programs/cli.js";
import { ask, Listener } from "../../support/ui/client.js";

let etcd: EtcdCluster;
let cluster: Cluster;
beforeAll(async () => {
  etcd = await startEtcd();
  cluster = connect({ hosts: etcd.endpoints, session: { owner: "web-1" } });
});
afterAll(async () => {
  await cluster.close();
  await etcd.stop();
});

const endpoints = () => etcd.endpoints.join(",");

async function start(words: readonly string[]): Promise<{ cli: RunningCli; url: string; home: string }> {
  const cli = startCli(["ui", ...words], { endpoints: endpoints() });
  await cli.says(/http:\S+\n/);
  const url = cli.stdout().trim();
  return { cli, url, home: new URL("/", url).href };
}

const end = (cli: RunningCli, signal: NodeJS.Signals = "SIGINT") => {
  cli.child.kill(signal);
  return cli.ended;
};

describe("leasehold ui", () => {
  test("prints an address on 127.0.0.1 with a token, serves the page, and ends with 130", async () => {
    const { cli, url } = await start([]);
    const { status, text, headers } = await ask(url);
    const { code, stderr } = await end(cli);

    expect(url).toMatch(/^http:\/\/127\.0\.0\.1:\d+\/\?token=[\w-]{43}$/);
    expect(status).toBe(200);
    expect(text).toContain('<script src="page.js" defer></script>');
    expect(headers["set-cookie"]?.[0]).toMatch(
      /^leasehold-\d+=[\w-]{43}; HttpOnly; SameSite=Strict; Path=\/$/,
    );
    expect([code, stderr]).toEqual([130, ""]);
  });

  test("answers 401 without the token and 403 with another one, for everything", async () => {
    const { cli, url, home } = await start([]);
    const cookie = (await ask(url)).headers["set-cookie"]?.[0]?.split(";")[0] ?? "";
    const files = ["", "page.js", "page.css", "events", "release", "nothing"];
    const statuses = async (headers: Record<string, string>, query = "") =>
      Promise.all(files.map(async (file) => (await ask(`${home}${file}${query}`, { headers })).status));
    const [none, wrong, wrongCookie] = [
      await statuses({}),
      await statuses({}, "?token=x"),
      await statuses({ cookie: `${cookie}x` }),
    ];
    const known = await Promise.all(
      ["", "page.js", "page.css"].map((file) =>
        ask(`${home}${file}`, { headers: { cookie: `a=b; ${cookie}` } }),
      ),
    );
    await end(cli);

    expect(none).toEqual(files.map(() => 401));
    expect(wrong).toEqual(files.map(() => 403));
    expect(wrongCookie).toEqual(files.map(() => 403));
    expect(known.map(({ status, headers }) => [status, headers["set-cookie"]])).toEqual([
      [200, undefined],
      [200, undefined],
      [200, undefined],
    ]);
  });

  test("shows the queues under its prefix, and releases only with --release", async () => {
    const lock = await new Mutex(cluster, "cli-ui/a").lock();
    const body = JSON.stringify({ name: lock.name, key: lock.key, revision: String(lock.revision) });
    const outcomes = [];
    for (const words of [["cli-ui/"], ["cli-ui/", "--release"]]) {
      const { cli, url, home } = await start(words);
      const cookie = (await ask(url)).headers["set-cookie"]?.[0]?.split(";")[0] ?? "";
      const events = new Listener(`${home}events`, { cookie });
      await events.until(({ data }) => JSON.stringify(data).includes('"holder":"web-1"'));
      const headers = { cookie, origin: home.slice(0, -1), "x-leasehold-release": "1" };
      const { status } = await ask(`${home}release`, { method: "POST", headers, body });
      outcomes.push([events.heard[0]?.data["release"], status]);
      events.close();
      await end(cli);
    }
    await lock.release().catch(() => {});

    expect(outcomes).toEqual([
      [false, 403],
      [true, 200],
    ]);
  });

  test("says in one line that its port is in use, and that etcd does not answer", async () => {
    const { cli, home } = await start([]);
    const [used, dead] = await Promise.all([
      runCli(["ui", "--port", new URL(home).port], { endpoints: endpoints() }),
      runCli(["ui"], { endpoints: "127.0.0.1:1" }),
    ]);
    await end(cli);

    expect([used.code, used.stderr]).toEqual([
      64,
      `leasehold: --port ${new URL(home).port} is in use; give another one, or none\n`,
    ]);
    expect([dead.code, dead.stdout]).toEqual([69, ""]);
    expect(dead.stderr).toMatch(/^leasehold: no etcd reached within .*\n$/);
  });
});
