import { once } from "node:events";
import { describe, test } from "vitest";
import { connect, Mutex, Session, SessionLostError } from "../../../src/index.js";
import { type EtcdMember, startEtcd } from "../../support/etcd/etcd.js";

const TTL_SECONDS = 2;
const TTL_MS = TTL_SECONDS * 1000;

const outages: [string, (member: EtcdMember) => unknown, (member: EtcdMember) => unknown][] = [
  ["stands still", (member) => member.pause(), (member) => member.resume()],
  ["is killed and started again", (member) => member.kill(), (member) => member.restart()],
];

describe.concurrent("an outage longer than the TTL", { timeout: 40_000 }, () => {
  test.for(outages)(
    "is outlived by a mutex made with a cluster when etcd %s",
    async ([, begin, end], { expect }) => {
      await using etcd = await startEtcd();
      await using cluster = connect({ hosts: etcd.endpoints, session: { ttlSeconds: TTL_SECONDS } });
      const mutex = new Mutex(cluster, "nightly");
      const lock = await mutex.lock();
      const session = await cluster.session();

      await begin(etcd.member);
      await once(lock.signal, "abort");
      const during = mutex.lock();
      await end(etcd.member);
      const next = await during;

      expect(lock.signal.reason).toMatchObject({ code: "LOCK_LOST", loss: "expired" });
      expect(lock.held).toBe(false);
      expect(session.state).toBe("lost");
      expect((await cluster.session()).leaseId).not.toBe(session.leaseId);
      expect(next.held).toBe(true);
      expect(next.fence).toBeGreaterThan(lock.fence);
      await next.release();
      const last = await mutex.lock();
      expect(last.fence).toBeGreaterThan(next.fence);
      await last.release();
    },
  );

  test.for(outages)(
    "is final for a mutex made with a session when etcd %s",
    async ([, begin, end], { expect }) => {
      await using etcd = await startEtcd();
      await using cluster = connect({ hosts: etcd.endpoints });
      const session = await Session.open(cluster, { ttlSeconds: TTL_SECONDS });
      const mutex = new Mutex(session, "nightly");
      const lock = await mutex.lock();
      const rival = new Mutex(await Session.open(cluster, { ttlSeconds: 10 * TTL_SECONDS }), "nightly");
      const waiting = mutex.lock();
      waiting.catch(() => {});

      await begin(etcd.member);
      await once(lock.signal, "abort");
      await end(etcd.member);
      const next = await rival.lock();

      expect(session.state).toBe("lost");
      expect(session.signal.reason).toBeInstanceOf(SessionLostError);
      expect(lock.signal.reason).toMatchObject({ code: "LOCK_LOST", cause: session.signal.reason as Error });
      await expect(waiting).rejects.toBe(session.signal.reason);
      await expect(mutex.lock()).rejects.toMatchObject({ code: "SESSION_LOST", leaseId: session.leaseId });
      await expect(mutex.tryLock()).rejects.toMatchObject({ code: "SESSION_LOST" });
      await expect(lock.release()).rejects.toBe(lock.signal.reason);
      await next.release();
      await session.close();
    },
  );
});

describe.concurrent("an outage", { timeout: 40_000 }, () => {
  test("shorter than the deadline is jeopardy and then nothing", async ({ expect }) => {
    await using etcd = await startEtcd();
    await using cluster = connect({ hosts: etcd.endpoints });
    const session = await Session.open(cluster, { ttlSeconds: 3 * TTL_SECONDS });
    const lock = await new Mutex(session, "short").lock();
    const states: string[] = [];
    session.addEventListener("statechange", ({ state, previous }) => states.push(`${previous} ${state}`));

    etcd.member.pause();
    await once(session, "statechange");
    const heldInJeopardy = lock.held;
    etcd.member.resume();
    await once(session, "statechange");

    expect(states).toEqual(["live jeopardy", "jeopardy live"]);
    expect(heldInJeopardy).toBe(true);
    expect(lock.held).toBe(true);
    await lock.release();
    expect(lock.signal.reason).toMatchObject({ code: "LOCK_RELEASED" });
  });

  test("does not keep `close` from resolving", async ({ expect }) => {
    await using etcd = await startEtcd();
    const cluster = connect({ hosts: etcd.endpoints, session: { ttlSeconds: TTL_SECONDS } });
    const lock = await new Mutex(cluster, "closing").lock();

    etcd.member.pause();
    const start = performance.now();
    await cluster.close({ drainMs: 0 });

    expect(performance.now() - start).toBeLessThan(2 * TTL_MS);
    expect(lock.held).toBe(false);
    expect(lock.signal.reason).toMatchObject({ code: "LOCK_LOST", loss: "closed" });
  });

  test("that outlives one caller's time for a session leaves a more patient caller its own", async ({
    expect,
  }) => {
    await using etcd = await startEtcd();
    await using cluster = connect({ hosts: etcd.endpoints });
    etcd.member.pause();
    const patient = cluster.session({ timeoutMs: 39_000 });
    const hasty = cluster.session({ timeoutMs: 1000 });

    await expect(hasty).rejects.toMatchObject({ code: "ETCD_UNAVAILABLE" });
    etcd.member.resume();

    expect((await patient).state).toBe("live");
  });

  test("ends a waiting `tryLock` after its time-out, with an error that names every member asked", async ({
    expect,
  }) => {
    await using etcd = await startEtcd();
    await using cluster = connect({ hosts: etcd.endpoints });
    const session = await Session.open(cluster, { ttlSeconds: 10 * TTL_SECONDS });

    etcd.member.pause();
    const attempt = new Mutex(session, "try").tryLock({ timeoutMs: TTL_MS });

    await expect(attempt).rejects.toMatchObject({ code: "ETCD_UNAVAILABLE" });
    const error: unknown = await attempt.catch((reason: unknown) => reason);
    expect([...(error as { members: Map<string, Error> }).members.keys()]).toEqual(etcd.endpoints);
    etcd.member.resume();
    await session.close();
  });
});
