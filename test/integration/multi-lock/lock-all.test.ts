import { describe, expect, test } from "vitest";
import { lockAll, Mutex, Session } from "../../../src/index.js";
import { askGateway } from "../../support/clients/etcd-http.js";
import { meter } from "../../support/fixtures/spent.js";
import { twoSessions } from "../../support/fixtures/two-sessions.js";

const two = twoSessions(60);
const { places, queued } = two;

const named = (prefix: string, count: number) => Array.from({ length: count }, (_, n) => `${prefix}/${n}`);

describe("lockAll", () => {
  test("takes all names with one create revision, which is the fence under each of them", async () => {
    const names = named("all", 30);

    const lock = await lockAll(two.session, names);
    const keys = await places("all");

    expect(lock.held).toBe(true);
    expect(lock.names).toEqual(names);
    expect(lock.keys).toEqual(names.map((name) => `${name}/${two.session.leaseId.toString(16)}`));
    expect(new Set(keys.map(({ revision }) => revision))).toEqual(new Set([lock.fence]));
    expect(keys).toHaveLength(30);
    await lock.release();
    expect(await places("all")).toEqual([]);
  });

  test("costs one request when nobody is there, and one to give back", async () => {
    const session = await Session.open(two.cluster, { ttlSeconds: 3600 });
    const counted = await meter(two.etcd.member);

    const lock = await lockAll(session, named("cost", 30));
    expect(await counted.lap({ Txn: 1 })).toEqual({ Txn: 1, revisions: 1 });
    await lock.release();

    expect(await counted.lap({ Txn: 1 })).toEqual({ Txn: 1, revisions: 1 });
    await session.close();
  });

  test("waits until the last of its names is free, and holds none of them before", async () => {
    const [a, b] = named("wait", 2) as [string, string];
    const held = await new Mutex(two.holder, b).lock();
    let taken = false;
    const waiting = lockAll(two.session, [a, b]).then((lock) => ((taken = true), lock));
    await queued(b, 2);

    const behind = new Mutex(two.holder, a).lock();
    await queued(a, 2);
    expect(taken).toBe(false);
    await held.release();
    const lock = await waiting;

    expect(lock.held).toBe(true);
    await lock.release();
    await (await behind).release();
  });

  test("never waits in a circle, whatever the order of the names", async () => {
    const [a, b, c] = named("circle", 3) as [string, string, string];
    const orders = [
      [a, b, c],
      [c, b, a],
      [b, c, a],
      [b, a],
      [a, c],
    ];
    const sessions = [two.holder, two.session];
    let inside = new Set<string>();
    let served = 0;

    await Promise.all(
      Array.from({ length: 60 }, async (_, n) => {
        const names = orders[n % orders.length] as string[];
        await using lock = await lockAll(sessions[n % 2] as Session, names);
        expect(names.filter((name) => inside.has(name))).toEqual([]);
        inside = new Set([...inside, ...names]);
        await new Promise(setImmediate);
        inside = new Set([...inside].filter((name) => !names.includes(name)));
        expect(lock.held).toBe(true);
        served++;
      }),
    );

    expect(served).toBe(60);
    expect(await places("circle")).toEqual([]);
  });

  test("follows a place of its own session under one of the names", async () => {
    const [a, b] = named("own", 2) as [string, string];
    const own = await new Mutex(two.session, a).lock();
    const waiting = lockAll(two.session, [b, a]);
    await queued(a, 2);

    const last = new Mutex(two.session, a).lock();
    await queued(a, 3);
    await own.release();
    const lock = await waiting;
    await lock.release();

    await (await last).release();
  });
});

describe("a lost place of lockAll", () => {
  test("is joined anew while the others are waited for, together with them", async () => {
    const [a, b] = named("rejoin", 2) as [string, string];
    const held = await new Mutex(two.holder, b).lock();
    const waiting = lockAll(two.session, [a, b]);
    await queued(b, 2);
    const [, before] = await places(b);
    const [first] = await places(a);

    await two.etcd.etcdctl(["del", first!.key]);
    await expect.poll(async () => (await places(b)).at(-1)?.revision).toBeGreaterThan(before!.revision);
    await queued(b, 2);
    await held.release();
    const lock = await waiting;

    expect(lock.revision).toBeGreaterThan(before!.revision);
    const revisions = [...(await places(a)), ...(await places(b))].map(({ revision }) => revision);
    expect(revisions).toEqual([lock.revision, lock.revision]);
    await lock.release();
  });
});

describe("a lost place of lockAll whose watches have begun", () => {
  // etcd tells a watch that begins late of the past, after it has told the other watches of the present.
  const own = twoSessions(60);
  const watches = async () => (await own.etcd.member.metrics()).get("etcd_debugging_mvcc_watcher_total");

  test("is noticed at once: the call does not resolve with it when the others are granted right after", async () => {
    const [a, b] = named("noticed", 2) as [string, string];
    const held = await new Mutex(own.holder, b).lock();
    expect(await watches()).toBe(0);
    const waiting = lockAll(own.session, [a, b]);
    await expect.poll(watches).toBeGreaterThanOrEqual(2);
    const [first] = await own.places(a);

    await own.etcd.etcdctl(["del", first!.key]);
    await held.release();
    const lock = await waiting;

    expect(lock.revision).toBeGreaterThan(first!.revision);
    expect(await own.places(a)).toMatchObject([{ revision: lock.revision }]);
    await lock.release();
  });

  test("is never among the names that the call resolves with: the last wait ended in the revision that deleted it", async () => {
    for (let round = 0; round < 20; round++) {
      const [a, b] = named(`both/${round}`, 2) as [string, string];
      const rivals = await new Mutex(own.holder, b).lock();
      expect(rivals.signal.aborted).toBe(false);
      const waiting = lockAll(own.session, [a, b]);
      await own.queued(b, 2);
      const [first] = await own.places(a);

      const deletes = [first!.key, rivals.key].map((key) => ({
        request_delete_range: { key: Buffer.from(key).toString("base64") },
      }));
      await askGateway(own.etcd.member, "/v3/kv/txn", { success: deletes });
      const lock = await waiting;

      expect(lock.held).toBe(true);
      expect(await own.places(a)).toMatchObject([{ key: lock.keys[0], revision: lock.revision }]);
      expect(await own.places(b)).toMatchObject([{ key: lock.keys[1], revision: lock.revision }]);
      await lock.release();
    }
  });
});
