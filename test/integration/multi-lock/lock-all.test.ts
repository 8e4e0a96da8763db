import { setImmediate as tick } from "node:timers/promises";
import { describe, expect, test } from "vitest";
import { connect, lockAll, Mutex, Session } from "../../../src/index.js";
import { observe } from "../../support/clients/observer.js";
import { meter } from "../../support/fixtures/spent.js";
import { reasonOf, twoSessions } from "../../support/fixtures/two-sessions.js";

const TTL_SECONDS = 4;

const two = twoSessions(TTL_SECONDS);
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

  test("costs one request when nobody is there, and two to give back", async () => {
    const session = await Session.open(two.cluster, { ttlSeconds: 3600 });
    const counted = await meter(two.etcd.member);

    const lock = await lockAll(session, named("cost", 30));
    expect(await counted.lap({ Txn: 1 })).toEqual({ Txn: 1, revisions: 1 });
    await lock.release();

    // The first deletion is sent at once, the others share a request.
    expect(await counted.lap({ Txn: 2 })).toEqual({ Txn: 2, revisions: 2 });
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

  test("is refused by a lock behind it, and refuses one, like any other holder", async () => {
    const names = named("try", 3);
    const lock = await lockAll(two.session, names);

    for (const name of names) expect(await new Mutex(two.holder, name).tryLock()).toBeUndefined();

    await lock.release();
    for (const name of names) await (await new Mutex(two.holder, name).tryLock())?.release();
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
  test("ends the whole while it is held: with that name's loss, and the others are given back", async () => {
    const names = named("lost", 3);
    using server = await observe(two.etcd.member.endpoint, "lost/");
    const lock = await lockAll(two.session, names);
    const ended = new Promise((resolve) => lock.signal.addEventListener("abort", resolve));

    await two.etcd.etcdctl(["del", lock.keys[1]!]);
    await ended;

    expect(lock.held).toBe(false);
    expect(lock.remainingMs()).toBe(0);
    expect(lock.signal.reason).toMatchObject({ code: "LOCK_LOST", loss: "deleted", lockName: names[1] });
    expect(() => lock.assertHeld()).toThrow(lock.signal.reason as Error);
    await expect(lock.release()).rejects.toBe(lock.signal.reason);
    for (const key of lock.keys) await server.deleted(key, lock.revision);
  });

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

  test("goes with the session: every wait is told its end, every hold that it was closed", async () => {
    const [a, b] = named("closed", 2) as [string, string];
    const own = await Session.open(two.cluster, { ttlSeconds: TTL_SECONDS });
    const lock = await lockAll(own, [a, b]);
    const waiting = reasonOf(lockAll(own, [a, `${b}/other`]));
    await queued(a, 2);

    await own.close({ drainMs: 0 });

    expect(await waiting).toMatchObject({ code: "SESSION_CLOSED", leaseId: own.leaseId });
    expect(lock.signal.reason).toMatchObject({ code: "LOCK_LOST", loss: "closed" });
    expect(await places("closed")).toEqual([]);
  });
});

describe("a caller of lockAll that leaves", () => {
  test("is rejected at once with its own reason, and no place of it stays", async () => {
    const [a, b] = named("abort", 2) as [string, string];
    const held = await new Mutex(two.holder, b).lock();
    const controller = new AbortController();
    const waiting = reasonOf(lockAll(two.session, [a, b], { signal: controller.signal }));
    await queued(b, 2);
    const reason = new Error("enough");

    controller.abort(reason);

    expect(await waiting).toBe(reason);
    await queued(a, 0);
    await queued(b, 1);
    await held.release();
  });

  test("leaves no place when it left before its join was answered", async () => {
    const names = named("early", 3);
    const controller = new AbortController();
    const waiting = reasonOf(lockAll(two.session, names, { signal: controller.signal }));

    controller.abort(new Error("at once"));

    expect(await waiting).toMatchObject({ message: "at once" });
    // Joins again behind any earlier join, so that no earlier request is still in flight.
    await (await lockAll(two.session, names)).release();
    expect(await places("early")).toEqual([]);
  });

  test("after its time limit learns which lock it still waited for, and who holds it", async () => {
    const [a, b] = named("late", 2) as [string, string];
    const held = await new Mutex(two.holder, b).lock();

    const error = await reasonOf(lockAll(two.session, [a, b], { timeoutMs: 1000 }));

    expect(error).toMatchObject({ code: "LOCK_TIMEOUT", lockName: b, ahead: 1 });
    expect((error as { holder: { owner: string } }).holder.owner).toBe("the holder");
    await queued(a, 0);
    await held.release();
  });

  test("that already holds one of the names, in the same async context, is told of the deadlock", async () => {
    const [a, b] = named("deadlock", 2) as [string, string];

    const error = await new Mutex(two.session, b).withLock(() => reasonOf(lockAll(two.holder, [a, b])));

    expect(error).toMatchObject({ code: "DEADLOCK", lockName: b });
    expect(await places("deadlock")).toEqual([]);
  });
});

describe("lockAll on a cluster", () => {
  test("uses its standing session, and the next one after a loss", async () => {
    const names = named("standing", 2);
    const cluster = connect({ hosts: two.etcd.endpoints, session: { ttlSeconds: TTL_SECONDS } });
    const first = await lockAll(cluster, names);
    const ended = new Promise((resolve) => first.signal.addEventListener("abort", resolve));
    const { leaseId } = await cluster.session();

    await two.etcd.etcdctl(["lease", "revoke", leaseId.toString(16)]);
    await ended;
    const second = await lockAll(cluster, names);

    expect(first.signal.reason).toMatchObject({ code: "LOCK_LOST", loss: "revoked" });
    expect(second.fence).toBeGreaterThan(first.fence);
    await second.release();
    await cluster.close();
  });

  test("leaves nothing to who adopts a session that is orphaned while it joins", async () => {
    const session = await Session.open(two.cluster, { ttlSeconds: TTL_SECONDS });
    const waiting = reasonOf(lockAll(session, named("orphan", 2)));
    await tick();

    await session.orphan();

    expect(await waiting).toMatchObject({ code: "SESSION_CLOSED" });
    expect(await places("orphan")).toEqual([]);
  });

  test("gives back what a session that is being closed has joined meanwhile, without waiting for its other holds", async () => {
    const session = await Session.open(two.cluster, { ttlSeconds: TTL_SECONDS });
    const kept = await new Mutex(session, "kept").lock();
    const waiting = reasonOf(lockAll(session, named("closed", 2)));
    await tick();

    const closing = session.close({ drainMs: 60_000 });

    expect(await waiting).toMatchObject({ code: "SESSION_CLOSED" });
    await expect.poll(() => places("closed")).toEqual([]);
    expect(kept.held).toBe(true);
    await kept.release();
    await closing;
  });
});
