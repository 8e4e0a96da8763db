// The requirements of kazoo's tests of its lock and semaphore recipes, and of Curator's tests of rotating leaders.
import { describe, expect, test } from "vitest";
import { connect, type Lock, Mutex } from "../../../src/index.js";
import { reasonOf, twoSessions } from "../../support/fixtures/two-sessions.js";
import { openClient, queued } from "../../support/clients/session-client.js";
import { revoke } from "../../support/clients/lease-calls.js";

const TTL_SECONDS = 20;

const two = twoSessions(TTL_SECONDS);
const { places } = two;

describe("a waiter whose session is lost", () => {
  test("is told so, leaves the queue, and is served in a new session when it asks again", async () => {
    const name = "session-loss";
    await using cluster = connect({ hosts: two.etcd.endpoints, session: { ttlSeconds: TTL_SECONDS } });
    const mutex = new Mutex(cluster, name);
    const lock = await new Mutex(two.holder, name).lock();
    const waiting = reasonOf(mutex.lock());
    await two.queued(name, 2);
    const { leaseId } = await cluster.session();

    await revoke(two.etcd.member, leaseId);
    expect(await waiting).toMatchObject({ code: "SESSION_LOST", loss: "revoked", leaseId });
    const again = mutex.lock();
    await two.queued(name, 2);
    expect(lock.held).toBe(true);
    await lock.release();

    const next = await again;
    expect(next.fence).toBeGreaterThan(lock.fence);
    expect((await places(name)).map((place) => place.leaseId)).toEqual([(await cluster.session()).leaseId]);
    expect((await cluster.session()).leaseId).not.toBe(leaseId);
    await next.release();
  });
});

describe("a mutex that is locked", () => {
  test("stays so when a second lock() of the same mutex, or of its session, gives up", async () => {
    const name = "second-call";
    const mutex = new Mutex(two.session, name);
    const lock = await mutex.lock();

    const reasons = [
      await reasonOf(mutex.lock({ timeoutMs: 50 })),
      await reasonOf(new Mutex(two.session, name).lock({ timeoutMs: 50 })),
    ];
    await two.queued(name, 1);

    for (const reason of reasons) expect(reason).toMatchObject({ code: "LOCK_TIMEOUT", lockName: name });
    expect([lock.held, lock.signal.aborted]).toEqual([true, false]);
    expect((await places(name)).map(({ revision }) => revision)).toEqual([lock.fence]);
    await lock.release();
  });
});

describe("twenty tryLocks at once", () => {
  test.each([
    ["of one mutex", (mutex: Mutex) => mutex],
    ["of twenty mutexes of one session", ({ name }: Mutex) => new Mutex(two.session, name)],
  ])("%s give one lock", async (what, mutexOf) => {
    const mutex = new Mutex(two.session, `crowd/${what}`);

    const locks = await Promise.all(Array.from({ length: 20 }, () => mutexOf(mutex).tryLock()));

    const held = locks.filter((lock): lock is Lock => lock !== undefined);
    expect(held.map((lock) => lock.held)).toEqual([true]);
    expect(await places(mutex.name)).toHaveLength(1);
    await held[0]!.release();
  });
});

describe("contenders that lock again and again", () => {
  test("take turns: nobody holds twice while another one waits", async () => {
    const name = "turns";
    const rounds = 3;
    const clients = await Promise.all(
      Array.from({ length: 5 }, () => openClient(two.etcd.endpoints, TTL_SECONDS)),
    );
    const served: number[] = [];
    const contend = async (mutex: Mutex, index: number) => {
      for (let round = 1; round <= rounds; round++) {
        const lock = await mutex.lock();
        served.push(index);
        // The previous holder is back in the queue by now.
        if (round < rounds) await queued(two.etcd.member, name, 5);
        await lock.release();
      }
    };
    const first = await new Mutex(two.holder, name).lock();

    const all = clients.map((client, index) => contend(client.mutex(name), index));
    await two.queued(name, 6);
    await first.release();
    await Promise.all(all);

    for (let round = 0; round < rounds; round++)
      expect(served.slice(5 * round, 5 * round + 5).sort()).toEqual([0, 1, 2, 3, 4]);
    await Promise.all(clients.map((client) => client[Symbol.asyncDispose]()));
  });
});
