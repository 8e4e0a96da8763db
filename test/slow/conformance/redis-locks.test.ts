// The requirements of the tests of redis-semaphore, node-redlock and python-redis-lock.
import { setTimeout as delay } from "node:timers/promises";
import { describe, test } from "vitest";
import { type Lock, Mutex } from "../../../src/index.js";
import { observe } from "../../support/clients/observer.js";
import { startTcpProxy } from "../../support/proxies/tcp-proxy.js";
import { reasonOf, twoSessions } from "../../support/fixtures/two-sessions.js";
import { abortOf, deadlineOf, openClient } from "../../support/clients/session-client.js";
import { revoke } from "../../support/clients/lease-calls.js";

const TTL_SECONDS = 2;
const TTL_MS = TTL_SECONDS * 1000;

const two = twoSessions(20);
const { places } = two;

describe.concurrent("a lock", () => {
  test("is kept from a rival for longer than its TTL, until it is released", async ({ expect }) => {
    const name = "beyond-ttl";
    await using client = await openClient(two.etcd.endpoints, TTL_SECONDS);
    const lock = await client.mutex(name).lock();
    const rival = new Mutex(two.session, name);

    const late = await reasonOf(rival.lock({ timeoutMs: 1.6 * TTL_MS }));
    const tried = await rival.tryLock();
    const held = lock.held;
    await lock.release();
    const next = await rival.tryLock();

    expect(late).toMatchObject({ code: "LOCK_TIMEOUT", holder: { key: lock.key, revision: lock.fence } });
    expect([tried, held, next?.held]).toEqual([undefined, true, true]);
    await next!.release();
  });

  test("of an orphaned session that nobody adopts is free for the next one when its lease has run out", async ({
    expect,
  }) => {
    const name = "orphan";
    using server = await observe(two.etcd.member.endpoint, `${name}/`);
    await using client = await openClient(two.etcd.endpoints, TTL_SECONDS);
    const lock = await client.mutex(name).lock();
    const waiting = new Mutex(two.session, name).lock();
    await server.first(({ type, key }) => type === "PUT" && key !== lock.key);

    await client.session.orphan();
    const next = await waiting;
    await server.deleted(lock.key, lock.fence);

    expect(next.fence).toBeGreaterThan(lock.fence);
    expect(lock.held).toBe(false);
    await next.release();
  });

  test("is told to be lost once, with `held` false by then, and to nobody who did not ask", async ({
    expect,
    onTestFinished,
  }) => {
    const unhandled: unknown[] = [];
    const note = (reason: unknown) => void unhandled.push(reason);
    process.on("unhandledRejection", note);
    onTestFinished(() => void process.off("unhandledRejection", note));
    const locks = [
      await new Mutex(two.session, "lost/asked").lock(),
      await new Mutex(two.session, "lost/unasked").lock(),
    ] as const;
    const told: unknown[] = [];
    locks[0].signal.addEventListener("abort", () => told.push([locks[0].signal.reason, locks[0].held]));

    for (const { key } of locks) {
      await two.etcd.etcdctl(["del", key]);
      await two.etcd.etcdctl(["put", key, "another instance"]);
    }
    const reasons = await Promise.all(locks.map((lock) => abortOf(lock.signal)));
    await delay(0);

    expect(reasons[0]).toMatchObject({ code: "LOCK_LOST", loss: "deleted" });
    expect(told).toEqual([[reasons[0], false]]);
    expect(locks[1].held).toBe(false);
    expect(unhandled).toEqual([]);
    for (const { key } of locks) await two.etcd.etcdctl(["del", key]);
  });
});

describe.concurrent("a release", () => {
  test.for(["grant", "refuse"])(
    "is no loss when a renewal is in flight that etcd will %s",
    async (what, { expect, onTestFinished }) => {
      const refused = what === "refuse";
      const ttlSeconds = 6;
      const name = `in-flight/${what}`;
      const unhandled: unknown[] = [];
      const note = (reason: unknown) => void unhandled.push(reason);
      process.on("unhandledRejection", note);
      onTestFinished(() => void process.off("unhandledRejection", note));
      await using proxy = await startTcpProxy({ port: two.etcd.member.clientPort });
      await using client = await openClient(proxy.endpoint, ttlSeconds);
      const lock = await client.mutex(name).lock();
      const deadline = deadlineOf(client.session);

      await proxy.mode("pause");
      // The renewal that is due after a third of the TTL has been sent.
      const due = 1000 * ttlSeconds * (0.9 - 1 / 3);
      await expect
        .poll(() => client.session.remainingMs(), { timeout: 5000, interval: 5 })
        .toBeLessThan(due - 20);
      const released = reasonOf(lock.release());
      if (refused) await revoke(two.etcd.member, client.session.leaseId);
      await proxy.mode("pass");
      const failure = await released;

      expect(lock.signal.reason).toMatchObject({ code: "LOCK_RELEASED" });
      if (refused) expect(await abortOf(client.session.signal)).toMatchObject({ loss: "revoked" });
      else {
        expect(failure).toBe(undefined);
        await expect
          .poll(() => deadlineOf(client.session), { timeout: 1000 * ttlSeconds })
          .toBeGreaterThan(deadline + 50);
        expect(client.states).not.toContain("lost");
      }
      expect(await places(name)).toEqual([]);
      expect(unhandled).toEqual([]);
    },
  );
});

describe.concurrent("a mutex", () => {
  test("can be locked again and again: each life has its key, a higher fence, and nothing in between", async ({
    expect,
  }) => {
    const mutex = new Mutex(two.session, "lives");
    const lives: Lock[] = [];

    for (let life = 0; life < 3; life++) {
      const lock = await mutex.lock();
      expect(await places(mutex.name)).toHaveLength(1);
      await lock.release();
      expect(await places(mutex.name)).toEqual([]);
      lives.push(lock);
    }

    expect(lives.map(({ held }) => held)).toEqual([false, false, false]);
    expect(lives[0]!.fence < lives[1]!.fence && lives[1]!.fence < lives[2]!.fence).toBe(true);
  });

  test("does not wait for the holder of another name", async ({ expect }) => {
    const held = await Promise.all(
      ["one", "two", "three"].map((it) => new Mutex(two.holder, `names/${it}`).lock()),
    );

    const other = await new Mutex(two.session, "names/four").tryLock();
    await held[1]!.release();
    const next = await new Mutex(two.session, "names/two").tryLock();

    expect([other?.held, next?.held, held[0]!.held, held[2]!.held]).toEqual([true, true, true, true]);
    for (const lock of [other!, next!, held[0]!, held[2]!]) await lock.release();
  });
});
