import { getEventListeners } from "node:events";
import { setImmediate as tick } from "node:timers/promises";
import { describe, expect, test } from "vitest";
import { LockTimeoutError, Mutex, Session } from "../../../src/index.js";
import { reasonOf, twoSessions } from "../../support/fixtures/two-sessions.js";

const TTL_SECONDS = 4;

const two = twoSessions(TTL_SECONDS);
const { places, queued } = two;

describe("an aborted wait", () => {
  test("rejects with the caller's own reason, whatever that is", async () => {
    const lock = await new Mutex(two.holder, "abort/reason").lock();
    const caller = new AbortController();
    const waiting = reasonOf(new Mutex(two.session, "abort/reason").lock({ signal: caller.signal }));
    await queued("abort/reason", 2);

    caller.abort("enough");

    expect(await waiting).toBe("enough");
    await lock.release();
  });

  test("leaves no key, and the waiters behind it are served in their order", async () => {
    const name = "abort/middle";
    const mutex = new Mutex(two.session, name);
    const lock = await new Mutex(two.holder, name).lock();
    const caller = new AbortController();
    const served: string[] = [];
    const wait = (who: string, signal?: AbortSignal) =>
      mutex.withLock(() => void served.push(who), { signal }).catch(() => undefined);
    const all = [wait("first"), wait("aborted", caller.signal), wait("third"), wait("fourth")];
    await queued(name, 5);

    caller.abort();
    await queued(name, 4);
    await lock.release();
    await Promise.all(all);

    expect(served).toEqual(["first", "third", "fourth"]);
    expect(await places(name)).toEqual([]);
  });

  test("that was granted at the same moment gives the lock back", async () => {
    const name = "abort/granted";
    const lock = await new Mutex(two.holder, name).lock();
    for (let i = 0; i < 20; i++) {
      const caller = new AbortController();
      const waiting = reasonOf(new Mutex(two.session, name).lock({ signal: caller.signal }));
      await tick();
      caller.abort();
      await waiting;
    }

    await lock.release();

    await new Mutex(two.holder, name).withLock(() => undefined, { timeoutMs: TTL_SECONDS * 1000 });
    await queued(name, 0);
  });

  test("is over before it began when the signal was aborted already, though the lock is free", async () => {
    const name = "abort/already";
    const mutex = new Mutex(two.session, name);
    const signal = AbortSignal.abort(new Error("too late"));
    const before = await two.etcd.member.status();
    let worked = false;

    const reasons = await Promise.all(
      [
        mutex.lock({ signal }),
        mutex.tryLock({ signal }),
        mutex.withLock(() => void (worked = true), { signal }),
        two.cluster.session({ signal }),
        Session.open(two.cluster, { signal }),
        Session.adopt(two.cluster, 7n, { signal }),
      ].map(reasonOf),
    );

    expect(reasons).toEqual(Array(6).fill(signal.reason));
    expect(worked).toBe(false);
    expect((await two.etcd.member.status()).revision).toBe(before.revision);
  });

  test("does not end a lock that was granted: the signal is for the wait", async () => {
    const caller = new AbortController();
    const lock = await new Mutex(two.session, "abort/late").lock({ signal: caller.signal });

    caller.abort();
    await tick();

    expect([lock.held, lock.signal.aborted]).toEqual([true, false]);
    await lock.release();
  });
});

describe("the signal of many waits", () => {
  test("carries one listener of ours while they wait, and none afterwards", async () => {
    const name = "listeners";
    const { signal } = new AbortController();
    const lock = await new Mutex(two.holder, name).lock();
    const mutex = new Mutex(two.session, name);

    const all = Array.from({ length: 200 }, () =>
      mutex.withLock(() => undefined, { signal, timeoutMs: 60_000 }),
    );
    await queued(name, 101);
    const during = getEventListeners(signal, "abort").length;
    await lock.release();
    await Promise.all(all);

    expect(during).toBe(1);
    expect(getEventListeners(signal, "abort")).toEqual([]);
  });
});

describe("a wait with a time limit", () => {
  test("tells who held the lock and how many were ahead, and leaves no key", async () => {
    const name = "timeout/told";
    const lock = await new Mutex(two.holder, name).lock();
    const caller = new AbortController();
    const between = reasonOf(new Mutex(two.holder, name).lock({ signal: caller.signal }));
    await queued(name, 2);

    const error = await reasonOf(new Mutex(two.session, name).lock({ timeoutMs: 1000 }));

    expect(error).toBeInstanceOf(LockTimeoutError);
    expect(error).toMatchObject({
      code: "LOCK_TIMEOUT",
      lockName: name,
      timeoutMs: 1000,
      ahead: 2,
      holder: {
        key: lock.key,
        state: "holding",
        revision: lock.fence,
        leaseId: two.holder.leaseId,
        owner: "the holder",
      },
    });
    const { holder: place, message } = error as LockTimeoutError;
    expect(message).toBe(
      `Lock "${name}" not acquired within 1000 ms, held by the holder, 2 ahead in the queue`,
    );
    expect(place!.since!.getTime()).toBeLessThanOrEqual(Date.now());
    expect(place!.ttlRemainingMs).toBeGreaterThan(0);
    expect(place!.ttlRemainingMs).toBeLessThanOrEqual(TTL_SECONDS * 1000);
    expect(JSON.parse(JSON.stringify(error))).toMatchObject({ holder: { revision: String(lock.fence) } });
    await queued(name, 2);
    caller.abort();
    await between;
    await lock.release();
  });

  test("names the key of a holder that is no leasehold's", async () => {
    const name = "timeout/foreign";
    await two.etcd.etcdctl(["put", `${name}/1234`, ""]);

    const error = await reasonOf(new Mutex(two.session, name).lock({ timeoutMs: 1000 }));

    expect(error).toMatchObject({
      ahead: 1,
      holder: { key: `${name}/1234`, owner: undefined, since: undefined },
    });
    await two.etcd.etcdctl(["del", `${name}/1234`]);
  });

  test("is no limit for the hold", async () => {
    const lock = await new Mutex(two.session, "timeout/held").lock({ timeoutMs: 1000 });

    const beyond = 0.9 * TTL_SECONDS * 1000 - 1000;
    await expect.poll(() => lock.remainingMs(), { timeout: 3000, interval: 50 }).toBeLessThan(beyond);

    expect(lock.held).toBe(true);
    await lock.release();
  });
});
