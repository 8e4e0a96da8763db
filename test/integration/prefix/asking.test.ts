// connect({ prefix }): what asks etcd and what reports, by a user whose role allows the prefix only.
import http from "node:http";
import { afterAll, beforeAll, describe, expect, onTestFinished, test } from "vitest";
import { Board } from "../../../src/observe/board.js";
import { CHANNELS } from "../../../src/base/telemetry/channels.js";
import type { AcquireMessage, HoldEndMessage } from "../../../src/base/telemetry/messages.js";
import {
  type Cluster,
  ClusterLockManager,
  connect,
  type Contender,
  Election,
  forceRelease,
  inspect,
  lead,
  list,
  lockAll,
  type LockLostError,
  Mutex,
  type QueueState,
  RwLock,
  Semaphore,
  Session,
  watchQueue,
} from "../../../src/index.js";
import { lockPage } from "../../../src/tools/ui/lock-page.js";
import { Messages } from "../../support/fixtures/messages.js";
import { MemorySdk } from "../../support/fixtures/otel.js";
import { keyOf, slug, SUBJECTS, titled } from "../../support/fixtures/subjects.js";
import { reasonOf } from "../../support/fixtures/two-sessions.js";
import { ROOT, startWithUsers, type UserEtcd } from "../../support/fixtures/users.js";
import { ask, Listener } from "../../support/ui/client.js";
import { listen } from "../../support/ui/scene.js";

const PREFIX = "prod/";
const PROD = { username: "prod", password: "prod-secret" };
const LIMIT = { timeoutMs: 20_000 };

let etcd: UserEtcd;
const lines: string[] = [];
/** With the prefix, and the right to nothing else. */
let prod: Cluster;
/** Without a prefix. */
let plain: Cluster;
beforeAll(async () => {
  etcd = await startWithUsers();
  await etcd.addUser(PROD, PREFIX);
  const add = (line: string) => lines.push(line);
  const log = { debug: add, info: add, warn: add, error: add };
  const session = { ttlSeconds: 10, owner: "the holder" };
  prod = connect({ hosts: etcd.endpoints, auth: PROD, prefix: PREFIX, session, log });
  plain = connect({ hosts: etcd.endpoints, auth: ROOT, session });
}, 60_000);
afterAll(async () => {
  await Promise.all([prod, plain].map((cluster) => cluster?.close({ drainMs: 0 })));
  await etcd?.stop();
});

/** The same lock on both clusters, held, with a waiter of the prefix. */
async function queueOf(name: string) {
  const lock = await new Mutex(prod, name).lock(LIMIT);
  const other = await new Mutex(plain, name).lock(LIMIT);
  const session = await Session.open(prod, { owner: "the waiter" });
  const waiting = new Mutex(session, name).lock(LIMIT);
  await expect.poll(() => etcd.keysIn(`${PREFIX}${name}`)).toHaveLength(2);
  const waiter = `${PREFIX}${name}/${session.leaseId.toString(16)}`;
  const release = async () => {
    await Promise.all([lock, other].map((each) => each.release().catch(() => undefined)));
    await (await waiting).release();
    await session.close();
  };
  return { lock, other, waiter, release };
}

describe("with connect({ prefix }) and a role for the prefix", () => {
  test("inspect() shows the queue by its name, with the complete keys", async () => {
    const { lock, waiter, release } = await queueOf("jobs/inspected");

    const state = await inspect(prod, "jobs/inspected");

    expect(state).toMatchObject({
      name: "jobs/inspected",
      kind: "mutex",
      holders: [{ name: "jobs/inspected", key: lock.key, owner: "the holder", revision: lock.fence }],
      waiters: [{ name: "jobs/inspected", key: waiter, owner: "the waiter" }],
    });
    expect(await etcd.keysIn("prod/jobs/inspected")).toContain(lock.key);
    expect((await inspect(plain, "prod/jobs/inspected")).holders).toMatchObject([{ key: lock.key }]);
    await release();
  });

  test("list() has the names of the prefix, page by page, and each can be passed back", async () => {
    const holds = [
      await new Mutex(prod, "listed/a").lock(LIMIT),
      await new Semaphore(prod, "listed/b", 2).acquire(LIMIT),
      await new RwLock(prod, "listed/c").readLock(LIMIT),
      await new Election(prod, "unlisted").campaign("x", LIMIT),
    ];
    const foreign = await new Mutex(plain, "listed/z").lock(LIMIT);

    const first = await list(prod, "listed/", { limit: 2 });
    const second = await list(prod, "listed/", { limit: 2, cursor: first.cursor });
    const all = await list(prod, "");

    const names = ["listed/a", "listed/b", "listed/c"];
    const locks = [...first.locks, ...second.locks];
    expect(locks.map(({ name }) => name)).toEqual(names);
    expect(locks.map(({ holder }) => [holder?.name, holder?.key])).toEqual(
      names.map((name, n) => [name, holds[n]!.key]),
    );
    expect(second.cursor).toBeUndefined();
    expect(all.locks.map(({ name }) => name)).toEqual([...names, "unlisted"]);
    for (const { name, holder } of all.locks)
      expect((await inspect(prod, name)).holders[0]?.key).toBe(holder?.key);
    await Promise.all([...holds, foreign].map((hold) => hold.release()));
  });

  test("watchQueue() yields the states of its own queue", async () => {
    const states: QueueState[] = [];
    let lock = await new Mutex(prod, "watched").lock(LIMIT);
    const { key } = lock;
    for await (const state of watchQueue(prod, "watched")) {
      states.push(state);
      if (state.holders.length === 0) break;
      await new Mutex(plain, "watched").withLock(() => undefined, LIMIT);
      await lock.release();
    }
    lock = await new Mutex(prod, "watched").lock(LIMIT);

    expect(states.map(({ name, holders }) => [name, holders.map((each) => each.key)])).toEqual([
      ["watched", [key]],
      ["watched", []],
    ]);
    await lock.release();
  });

  test("forceRelease() deletes the key that inspect(), list() or a timeout has reported, and no other", async () => {
    const { lock, other, release } = await queueOf("forced");
    const [reported] = (await inspect(prod, "forced")).holders;

    await expect(forceRelease(plain, reported!)).rejects.toThrow(/contender.key to be a key under forced\//);
    const foreign = { ...reported!, key: reported!.key.slice(PREFIX.length) } as Contender;
    await expect(forceRelease(prod, foreign)).rejects.toThrow(
      /contender.key to be a key under prod\/forced\//,
    );
    expect(await forceRelease(prod, reported!)).toBe(reported);

    const error = (await reasonOf(lock.release())) as LockLostError;
    expect(error).toMatchObject({ code: "LOCK_LOST", lockName: "forced", key: lock.key, loss: "deleted" });
    expect(error.message).toContain(`(key ${lock.key})`);
    expect(other.held).toBe(true);
    await release();
  });

  test.each(titled(SUBJECTS))("%s waits, gives up, and is granted", async (_, subject) => {
    const { take, tryTake, block, release } = subject;
    const name = `jobs/${slug(subject.what)}`;
    const sessions = [await Session.open(prod), await Session.open(prod)] as const;
    const blocker = await block(sessions[0], name);

    expect(await tryTake?.(sessions[1], name)).toBeUndefined();
    expect(await reasonOf(take(sessions[1], name, { timeoutMs: 1000 }))).toMatchObject({
      code: "LOCK_TIMEOUT",
      holder: { name, key: keyOf(blocker) },
    });
    const waiting = take(sessions[1], name, LIMIT);
    await expect.poll(() => etcd.keysIn(`${PREFIX}${name}`)).not.toHaveLength(1);
    await blocker.release();

    await release(await waiting);
    await Promise.all(sessions.map((session) => session.close()));
  });

  test("an orphaned session is adopted, and an exclusive web lock is stolen", async () => {
    const session = await Session.open(prod, { ttlSeconds: 10 });
    const lock = await new RwLock(session, "jobs/adopted").writeLock();
    const heir = await Session.adopt(prod, await session.orphan());
    const again = await new RwLock(heir, "jobs/adopted").writeLock(LIMIT);
    expect(again).toMatchObject({ key: lock.key, fence: lock.fence });
    await again.release();
    await heir.close();

    const manager = new ClusterLockManager(prod);
    const robbed = await new Promise<{ readonly ended: Promise<unknown> }>((granted) => {
      const ended = manager.request("stolen", () => {
        granted({ ended });
        return new Promise(() => {});
      });
      ended.catch(() => undefined);
    });
    await new ClusterLockManager(prod).request("stolen", { steal: true }, () => undefined);
    expect(await reasonOf(robbed.ended)).toMatchObject({ name: "AbortError" });
    await manager.close();
  });

  test("a lock of another kind is named without the prefix, and its key with it", async () => {
    const lock = await new RwLock(prod, "jobs/kinds").writeLock();

    const error = await reasonOf(new Semaphore(prod, "jobs/kinds", 2).acquire(LIMIT));
    const late = await Session.open(prod);
    const other = await reasonOf(new Semaphore(late, "jobs/kinds", 2).acquire(LIMIT));

    for (const each of [error, other]) {
      expect(each).toMatchObject({ code: "KIND_MISMATCH", lockName: "jobs/kinds", foundName: "jobs/kinds" });
      expect(String(each)).toContain(lock.key);
    }
    await late.close();
    await lock.release();
  });

  test("leads, and holds web locks", async () => {
    const stop = new AbortController();
    const terms: string[] = [];
    const manager = new ClusterLockManager(prod);

    await lead(
      prod,
      "leading",
      (leadership) => {
        terms.push(leadership.key);
        stop.abort();
        return Promise.resolve();
      },
      { signal: stop.signal, onLeader: () => undefined },
    );
    const key = await manager.request("web", (lock) => lock!.key);
    await manager.close();

    expect(terms).toEqual([expect.stringMatching(/^prod\/leading\//)]);
    expect(key).toMatch(/^prod\/web-locks\//);
    await expect.poll(() => etcd.keysUnder(PREFIX)).toEqual([]);
  });

  test("leader() and observe() have the complete key", async () => {
    const leadership = await new Election(prod, "led").campaign("me", LIMIT);

    expect(await new Election(prod, "led").leader()).toMatchObject({ key: leadership.key, value: "me" });
    expect(leadership.key).toMatch(/^prod\/led\//);
    await leadership.resign();
  });

  test("snapshot(), toJSON() and console.log have names without the prefix and keys with it", async () => {
    const { lock, waiter, release } = await queueOf("snapped");
    const both = await lockAll(prod, ["snapped-b", "snapped-a"], LIMIT);

    const { holds, waits } = prod.snapshot();

    const keyOf = new Map(holds.map(({ name, key }) => [name, key]));
    expect(both.names.map((name) => keyOf.get(name))).toEqual(both.keys);
    expect(keyOf.get("snapped")).toBe(lock.key);
    expect(waits).toMatchObject([{ name: "snapped", names: ["snapped"], key: waiter }]);
    expect(both.keys.every((key) => key.startsWith("prod/snapped-"))).toBe(true);
    expect(lock.toJSON()).toMatchObject({ name: "snapped", key: lock.key });
    expect(prod.health()).toMatchObject({ ok: true, state: "live" });
    await both.release();
    await release();
  });

  test("events, spans and log lines have names without the prefix and keys with it", async () => {
    using acquired = new Messages<AcquireMessage>(`tracing:${CHANNELS.acquire}:asyncEnd`);
    using ended = new Messages<HoldEndMessage>(CHANNELS.holdEnd);
    const sdk = new MemorySdk();
    const instrumentation = sdk.instrument();
    onTestFinished(() => {
      instrumentation.disable();
      return sdk.shutdown();
    });

    const lock = await new Mutex(prod, "told", { warnHoldMs: 1, label: "told" }).lock(LIMIT);
    await expect.poll(() => lines.join("\n")).toMatch(/told/);
    const { key } = lock;
    await lock.release();

    expect(ended.all).toMatchObject([{ name: "told", names: ["told"], key }]);
    expect(acquired.all).toMatchObject([{ name: "told", names: ["told"], key }]);
    expect(lines.filter((line) => line.includes("told")).join("\n")).not.toContain("prod/told");
    expect(sdk.spans("leasehold.hold").map(({ attributes }) => attributes["leasehold.fence"])).toEqual([
      String(lock.fence),
    ]);
  });

  test("a board has the queues of the prefix, with the keys of inspect()", async () => {
    const { lock, waiter, release } = await queueOf("boarded");
    const board = await new Promise<Board>((resolve, reject) => {
      const opened = Board.open(prod, "board", { changed: () => resolve(opened), failed: reject });
    });

    expect([...board.names()]).toEqual(["boarded"]);
    expect(board.queue("boarded")).toMatchObject({
      name: "boarded",
      holders: [{ key: lock.key }],
      waiters: [{ key: waiter }],
    });
    board.stop();
    await release();
  });

  test("the page shows the names of the prefix, and releases the key that it shows", async () => {
    const { lock, other, release } = await queueOf("paged");
    const page = lockPage(prod, { authorize: () => true });
    const server = http.createServer(page);
    const url = `http://127.0.0.1:${await listen(server)}`;
    const events = new Listener(`${url}/events`);
    type Row = Readonly<Record<string, unknown>>;
    const rows = () => events.heard.flatMap(({ data }) => (data["rows"] as Row[] | undefined) ?? []);
    await expect.poll(() => rows().some(({ name }) => name === "paged")).toBe(true);

    const answer = await ask(`${url}/release`, {
      method: "POST",
      headers: { origin: url, "sec-fetch-site": "same-origin", "x-leasehold-release": "1" },
      body: JSON.stringify({ name: "paged", key: lock.key, revision: String(lock.fence) }),
    });

    expect([answer.status, answer.text]).toEqual([200, expect.any(String)]);
    expect(rows().every(({ name }) => !String(name).startsWith("prod/"))).toBe(true);
    expect(await reasonOf(lock.release())).toMatchObject({ loss: "deleted" });
    expect(other.held).toBe(true);
    events.close();
    page.close();
    server.closeAllConnections();
    server.close();
    await release();
  });
});
