// lockPage() on a server, with a real etcd: what it shows, what it lets through, what it changes.
import http, { type Server } from "node:http";
import { afterAll, afterEach, beforeAll, describe, expect, onTestFinished, test } from "vitest";
import {
  connect,
  inspect,
  LockLostError,
  Mutex,
  once,
  Semaphore,
  Session,
  type Cluster,
} from "../../../src/index.js";
import { lockPage, type LockPage, type LockPageOptions } from "../../../src/tools/ui/lock-page.js";
import { startEtcd, type EtcdCluster } from "../../support/etcd/etcd.js";
import { ask, Listener } from "../../support/ui/client.js";
import { listen } from "../../support/ui/scene.js";

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

const open: { page: LockPage; server: Server }[] = [];
const listeners: Listener[] = [];
afterEach(() => {
  for (const listener of listeners.splice(0)) listener.close();
  for (const { page, server } of open.splice(0)) {
    page.close();
    server.closeAllConnections();
    server.close();
  }
});

async function serve(options?: LockPageOptions, of = cluster): Promise<string> {
  const page = lockPage(of, options);
  const server = http.createServer(page);
  open.push({ page, server });
  return `http://127.0.0.1:${await listen(server)}`;
}

function listenTo(url: string): Listener {
  const listener = new Listener(url);
  listeners.push(listener);
  return listener;
}

type Row = Record<string, unknown>;
const rowIn = (data: Row, name: string): Row | undefined =>
  (data["rows"] as Row[] | undefined)?.find((row) => row["name"] === name);

/** What the page itself sends. */
const ofThePage = (url: string): Record<string, string> => ({
  ...{ origin: url, "sec-fetch-site": "same-origin", "x-leasehold-release": "1" },
});

describe("the events", () => {
  test("begin with all queues of the prefix, and follow who holds and who waits", async () => {
    const lock = await new Mutex(cluster, "live/a").lock();
    await using other = await Session.open(cluster, { owner: "web-2" });
    const url = await serve({ prefix: "live/" });
    const events = listenTo(`${url}/events`);
    await events.until(({ data }) => rowIn(data, "live/a")?.["holder"] === "web-1");

    const waiting = new Mutex(other, "live/a").lock();
    await events.until(({ data }) => rowIn(data, "live/a")?.["waiters"] === 1);
    await lock.release();
    const next = await waiting;
    const { data } = await events.until(({ data }) => rowIn(data, "live/a")?.["holder"] === "web-2");
    await next.release();
    await events.until(({ data }) => rowIn(data, "live/a")?.["holder"] === null);

    expect(rowIn(data, "live/a")).toMatchObject({ kind: "mutex", holders: 1, waiters: 0 });
    expect(events.heard[0]).toMatchObject({ event: "full", data: { prefix: "live/", release: false } });
  });

  test("of a queue have its holder with its lease, its waiters and its hand-overs", async () => {
    await using dying = await Session.open(cluster, { owner: "dying", ttlSeconds: 2 });
    await using other = await Session.open(cluster, { owner: "web-2" });
    const url = await serve({ prefix: "detail/" });
    const overview = listenTo(`${url}/events`);
    await overview.until(
      ({ event, data }) => (event === "full" && data["problem"] === null) || event === "change",
    );
    await new Mutex(dying, "detail/a").lock();
    await overview.until(({ data }) => rowIn(data, "detail/a")?.["holder"] === "dying");
    const events = listenTo(`${url}/events?queue=detail%2Fa`);
    const { data: first } = await events.until(({ data }) => (data["holders"] as Row[]).length === 1);
    const waiting = new Mutex(other, "detail/a").lock();
    await dying.orphan();
    const next = await waiting;
    const { data: last } = await events.until(({ data }) =>
      (data["history"] as Row[]).some(({ end }) => end === "lease ended"),
    );
    await overview.until(({ data }) => rowIn(data, "detail/a")?.["losses"] === 1);
    await next.release();

    expect(first["holders"]).toMatchObject([{ owner: "dying", ttlMs: expect.any(Number) as number }]);
    expect(last["history"]).toMatchObject([
      { holder: "dying", end: "lease ended", fromIsJoin: false },
      { holder: "web-2" },
    ]);
  });

  test("count the runs of once of a queue that is shown, and nothing where there are none", async () => {
    const name = "runs/a";
    let end = (): void => {};
    const held = new Promise<void>((resolve) => (end = resolve));
    for (const slot of [1, 2]) await once(cluster, name, slot, () => undefined);
    await once(cluster, name, 3, () => Promise.reject(new Error("wrong"))).catch(() => undefined);
    await once(cluster, name, 4, (lock) => lock.release()).catch(() => undefined);
    const running = once(cluster, name, 5, () => held);
    await expect.poll(async () => (await once.history(cluster, name)).length).toBe(5);

    const url = await serve({ prefix: "runs/" });
    const others = listenTo(`${url}/events?queue=runs%2Fnone`);
    const { data: shown } = await listenTo(`${url}/events?queue=runs%2Fa`).until(
      ({ data }) => data["runs"] !== null,
    );
    let messages = 0;
    const { data: none } = await others.until(() => ++messages === 2);
    end();
    await running;

    expect(shown["runs"]).toEqual({ running: 1, done: 2, failed: 1, lost: 1, missed: 0 });
    expect(none["runs"]).toBeNull();
  });

  test("say of a sticky lock that its key may be kept", async () => {
    const mutex = new Mutex(cluster, "sticky/a", { sticky: true });
    const events = listenTo(`${await serve({ prefix: "sticky/" })}/events`);
    await (await mutex.lock()).release();
    await (await mutex.lock()).release();

    await events.until(({ data }) => rowIn(data, "sticky/a")?.["sticky"] === true);
  });

  test("tell a key that a process keeps from one that a caller has, on a page of that process alone", async () => {
    const own = connect({ hosts: etcd.endpoints });
    onTestFinished(() => own.close());
    const ofOthers = listenTo(`${await serve()}/events?queue=idle%2Fa`);
    const ofOwn = listenTo(`${await serve(undefined, own)}/events?queue=idle%2Fa`);
    const mutex = new Mutex(own, "idle/a", { sticky: true });
    await (await mutex.lock()).release();
    const shows = (listener: Listener, idle: boolean) =>
      listener.until(({ data }) => {
        const [holder] = data["holders"] as Row[];
        return holder?.["sticky"] === true && holder["idle"] === idle;
      });

    const lock = await mutex.lock();
    await Promise.all([shows(ofOwn, false), shows(ofOthers, false)]);
    await lock.release();
    await shows(ofOwn, true);
    await shows(listenTo(`${await serve()}/events?queue=idle%2Fa`), false);
  });

  test("of a queue have the reasons of its holder and its waiters, cut, and null of those that have none", async () => {
    const lock = await new Mutex(cluster, "why/a").lock({ reason: "<b>deploy" });
    const hostile = "\u001b[2J\u202e".repeat(2000);
    for (const [key, reason] of Object.entries({
      "1a2b": hostile,
      "1a2c": undefined,
      "1a2d": hostile.repeat(20),
    })) {
      const [at, value] = [`why/a/${key}`, JSON.stringify({ owner: "evil", reason })].map((text) =>
        Buffer.from(text).toString("base64"),
      );
      await etcd.member.gateway("/v3/kv/put", { key: at, value });
    }
    const events = listenTo(`${await serve({ prefix: "why/" })}/events?queue=why%2Fa`);
    const { data } = await events.until(({ data }) => (data["waiters"] as Row[]).length === 3);
    await lock.release();

    expect(data["holders"]).toMatchObject([{ owner: "web-1", reason: "<b>deploy" }]);
    const reasons = (data["waiters"] as { reason: string | null }[]).map(({ reason }) => reason);
    expect([hostile.startsWith(reasons[0]!), ...reasons.slice(1)]).toEqual([true, null, null]);
    expect(Buffer.byteLength(reasons[0]!)).toBeLessThanOrEqual(256);
  });

  test("of a queue have what each entry takes of a weighted semaphore, and null of any other", async () => {
    const semaphore = new Semaphore(cluster, "weights/a", 10, { weighted: true });
    const hold = await semaphore.acquire({ weight: 7 });
    const waiting = semaphore.acquire({ weight: 4 });
    const lock = await new Mutex(cluster, "weights/b").lock();
    const url = await serve({ prefix: "weights/" });

    const events = listenTo(`${url}/events?queue=weights%2Fa`);
    const { data } = await events.until(({ data }) => (data["waiters"] as Row[]).length === 1);
    const others = listenTo(`${url}/events?queue=weights%2Fb`);
    const other = await others.until(({ data }) => (data["holders"] as Row[]).length === 1);

    expect(data["holders"]).toMatchObject([{ weighted: { weight: 7, permits: 10 } }]);
    expect(data["waiters"]).toMatchObject([{ weighted: { weight: 4, permits: 10 } }]);
    expect(other.data["holders"]).toMatchObject([{ weighted: null }]);
    await Promise.all([hold.release(), lock.release()]);
    await (await waiting).release();
  });

  test("show a holder that has died as that while its releaseDelayMs runs, and for how long", async () => {
    await using dying = await Session.open(cluster, { owner: "dying", releaseDelayMs: 60_000 });
    const url = await serve({ prefix: "delay/" });
    const overview = listenTo(`${url}/events`);
    await overview.until(({ data }) => data["problem"] === null);
    await new Mutex(dying, "delay/a").lock();
    await overview.until(({ data }) => rowIn(data, "delay/a")?.["holder"] === "dying");

    await etcd.member.gateway("/v3/lease/revoke", { ID: dying.leaseId.toString() });

    const { data } = await overview.until(({ data }) => rowIn(data, "delay/a")?.["isDelay"] === true);
    await overview.until(({ data }) => rowIn(data, "delay/a")?.["losses"] === 1);
    const { data: detail } = await listenTo(`${url}/events?queue=delay%2Fa`).until(() => true);
    expect(rowIn(data, "delay/a")).toMatchObject({ holder: "dying", holders: 1 });
    const [holder] = detail["holders"] as { isDelay: boolean; ttlMs: number }[];
    expect(holder!.isDelay).toBe(true);
    expect(holder!.ttlMs).toBeGreaterThan(0);
    expect(holder!.ttlMs).toBeLessThanOrEqual(80_000);
    expect(detail["history"]).toMatchObject([{ holder: "dying", end: "lease ended" }]);
  });

  test("say when etcd has answered last, and since when they count", async () => {
    const before = Date.now();
    const url = await serve({ prefix: "age/" });
    const events = listenTo(`${url}/events`);
    const { data: first } = await events.until(({ data }) => data["problem"] === null);
    etcd.member.pause();
    try {
      const { data } = await events.until(({ data }) =>
        String(data["problem"]).startsWith("etcd does not answer"),
      );

      // An unanswered question has had its two seconds.
      expect(Number(data["now"]) - Number(data["answeredAt"])).toBeGreaterThanOrEqual(1900);
      // By two clocks, each rounded to a millisecond, and at two moments.
      expect(Number(data["answeredAt"])).toBeGreaterThanOrEqual(Number(first["answeredAt"]) - 2);
      expect(data["countedSince"]).toBe(first["countedSince"]);
      expect(Number(first["countedSince"])).toBeGreaterThanOrEqual(before);
    } finally {
      etcd.member.resume();
    }
    const said = events.heard.length;
    await events.until((heard) => events.heard.indexOf(heard) >= said && heard.data["problem"] === null);
  });

  test("show no queue outside the prefix", async () => {
    const url = await serve({ prefix: "mine/" });

    expect((await ask(`${url}/events?queue=other`)).status).toBe(404);
    expect((await ask(`${url}/events?queue=mine%2F%2Fa`)).status).toBe(404);
  });

  test("are not begun for viewers that have left while authorize ran, and leave room for others", async () => {
    const gate = { asked: 0, closed: 0, open: () => {} };
    const opened = new Promise<boolean>((resolve) => (gate.open = () => resolve(false)));
    const url = await serve({ authorize: () => (gate.asked++, opened) });
    open.at(-1)?.server.on("request", (_, response) => response.on("close", () => gate.closed++));
    const left = Array.from({ length: 70 }, (_, n) => listenTo(`${url}/events${n % 2 ? "?queue=left" : ""}`));
    await expect.poll(() => gate.asked).toBe(70);
    for (const listener of left) listener.close();
    await expect.poll(() => gate.closed).toBe(70);

    gate.open();
    const viewers = Array.from({ length: 64 }, () => listenTo(`${url}/events`));

    const first = viewers.map((each) =>
      Promise.race([each.until(({ event }) => event === "full"), each.untilEnd()]),
    );
    await Promise.all(first);
    expect(viewers.map(({ status }) => status)).toEqual(Array(64).fill(200));
  });

  test("end with close(), and no more than 64 streams are open at a time", async () => {
    const url = await serve();
    const events = Array.from({ length: 64 }, () => listenTo(`${url}/events`));
    await Promise.all(events.map((each) => each.until(({ event }) => event === "full")));
    const one = await ask(`${url}/events`);
    events[0]?.close();
    await expect
      .poll(async () => {
        const again = listenTo(`${url}/events`);
        await Promise.race([again.until(({ event }) => event === "full"), again.untilEnd()]);
        return again.status;
      })
      .toBe(200);
    open[0]?.page.close();
    await Promise.all(events.map((each) => each.untilEnd()));

    expect(one.status).toBe(503);
  });
});

describe("every response", () => {
  test.each(["/", "/page.css", "/page.js", "/nothing", "/events?queue=%2F"])(
    "of %s forbids foreign sources, frames, sniffing, referrers and caches",
    async (file) => {
      const { headers } = await ask(`${await serve()}${file}`);

      expect(headers["content-security-policy"]).toMatch(
        /^default-src 'none'; script-src 'self'; style-src 'self';/,
      );
      expect(headers["content-security-policy"]).not.toContain("unsafe");
      expect(headers["content-security-policy"]).toContain("frame-ancestors 'none'");
      expect(headers).toMatchObject({
        "x-content-type-options": "nosniff",
        "referrer-policy": "no-referrer",
        "cache-control": "no-store",
      });
    },
  );

  test("to a host name that is not ours is 421, whatever is asked for", async () => {
    const url = await serve();
    const foreign = ["/", "/events", "/release"].map((file) =>
      ask(`${url}${file}`, { headers: { host: "evil.example:80" } }),
    );

    expect((await Promise.all(foreign)).map(({ status }) => status)).toEqual([421, 421, 421]);
    expect((await ask(`${url}/`, { headers: { host: "localhost:1" } })).status).toBe(200);
    const named = await serve({ hosts: ["Locks.example"] });
    expect((await ask(`${named}/`, { headers: { host: "locks.example:8443" } })).status).toBe(200);
    expect((await ask(`${named}/`)).status).toBe(421);
  });

  test("is under the base path, with and without a slash at its end", async () => {
    const url = await serve({ basePath: "/ops/locks" });
    const answers = await Promise.all(
      ["/ops/locks/", "/ops/locks", "/", "/ops/locksmith", "//evil.example/ops/locks"].map((file) =>
        ask(url + file),
      ),
    );

    expect(answers.map(({ status }) => status)).toEqual([200, 308, 404, 404, 404]);
    expect(answers[1]?.headers.location).toBe("/ops/locks/");
  });

  test("to another method is 405", async () => {
    const url = await serve();
    const answers = [
      ask(`${url}/`, { method: "POST" }),
      ask(`${url}/events`, { method: "POST" }),
      ask(`${url}/release`),
      ask(`${url}/events`, { method: "HEAD" }),
    ];

    expect((await Promise.all(answers)).map(({ status }) => status)).toEqual([405, 405, 405, 405]);
  });
});

describe("a release", () => {
  /** A holder, and the request that releases it. */
  async function held(name: string) {
    const lock = await new Mutex(cluster, name).lock();
    const body = JSON.stringify({ name, key: lock.key, revision: String(lock.revision) });
    return { lock, body };
  }

  test("of a viewer with the right deletes the key, once", async () => {
    const { lock, body } = await held("release/a");
    const url = await serve({ authorize: () => Promise.resolve(true) });
    const post = { method: "POST", headers: ofThePage(url), body };
    const [first, second] = [await ask(`${url}/release`, post), await ask(`${url}/release`, post)];
    const { holders } = await inspect(cluster, "release/a");

    expect([first.status, second.status]).toEqual([200, 409]);
    expect(holders).toEqual([]);
    await expect(lock.release()).rejects.toThrow(LockLostError);
  });

  test.each<[string, LockPageOptions]>([
    ["without authorize", {}],
    ["that authorize denies", { authorize: () => false }],
    ["for which authorize throws", { authorize: () => Promise.reject(new Error("no")) }],
    ["outside the prefix", { authorize: () => true, prefix: "elsewhere/" }],
  ])("%s is 403, and changes nothing", async (title, options) => {
    const name = `release/denied/${title.replaceAll(" ", "-")}`;
    const { lock, body } = await held(name);
    const url = await serve(options);
    const { status } = await ask(`${url}/release`, { method: "POST", headers: ofThePage(url), body });

    expect(status).toBe(403);
    expect((await inspect(cluster, name)).holders).toHaveLength(1);
    await lock.release();
  });

  test("of another site is 403: by its header, its origin or what the browser says of it", async () => {
    const { lock, body } = await held("release/forged");
    const url = await serve({ authorize: () => true });
    const good = ofThePage(url);
    const without = (name: string) =>
      Object.fromEntries(Object.entries(good).filter(([each]) => each !== name));
    const forged = [
      without("origin"),
      without("x-leasehold-release"),
      { ...good, origin: "http://evil.example" },
      { ...good, origin: "null" },
      { ...good, "sec-fetch-site": "cross-site" },
      { ...good, "sec-fetch-site": "same-site" },
    ].map((headers) => ask(`${url}/release`, { method: "POST", headers, body }));

    expect((await Promise.all(forged)).map(({ status }) => status)).toEqual([403, 403, 403, 403, 403, 403]);
    expect((await inspect(cluster, "release/forged")).holders).toHaveLength(1);
    await lock.release();
  });

  test.each([
    "",
    "null",
    "[]",
    "{",
    '{"name":"a","key":1,"revision":"1"}',
    '{"name":"/","key":"","revision":""}',
  ])("of %j is 400", async (body) => {
    const url = await serve({ authorize: () => true });

    expect((await ask(`${url}/release`, { method: "POST", headers: ofThePage(url), body })).status).toBe(400);
  });
});

describe("lockPage()", () => {
  test.each<[unknown, RegExp]>([
    [{ prefx: "" }, /Unknown option prefx .* did you mean prefix/],
    [{ prefix: 1 }, /Expected prefix to be a string/],
    [{ authorize: true }, /Expected authorize to be a function/],
    [{ basePath: "locks" }, /Expected basePath to be a path/],
    [{ hosts: [] }, /Expected hosts to be an array of one or more/],
    [{ hosts: ["http://a"] }, /Expected hosts to be free of schemes/],
  ])("rejects %j at once", (options, message) => {
    expect(() => lockPage(cluster, options as LockPageOptions)).toThrow(message);
  });

  test("rejects what is no cluster", () => {
    expect(() => lockPage({} as Cluster)).toThrow(/Expected cluster to be a Cluster, made by connect\(\)/);
  });
});
