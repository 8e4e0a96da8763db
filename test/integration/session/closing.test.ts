import { setTimeout as delay } from "node:timers/promises";
import { afterAll, beforeAll, describe, test } from "vitest";
import { type CloseOptions, connect, Mutex, Session, SessionClosedError } from "../../../src/index.js";
import { type EtcdCluster, startEtcd } from "../../support/etcd/etcd.js";
import { leasesOf, placesOf } from "../../support/clients/server-view.js";
import { startGrpcProxy } from "../../support/proxies/grpc-proxy.js";
import { startTcpProxy } from "../../support/proxies/tcp-proxy.js";

/** Longer than a process stands still on a busy machine. */
const TTL_SECONDS = 10;
/** For what takes one TTL. */
const SHORT = { ttlSeconds: 2 };
const SHORT_MS = 2000;

let etcd: EtcdCluster;

beforeAll(async () => void (etcd = await startEtcd()), 60_000);
afterAll(() => etcd.stop());

const places = (name: string) => placesOf(etcd.member, name);
const reasonOf = (promise: Promise<unknown>) =>
  promise.then(() => undefined).catch((reason: unknown) => reason);

/** A lock, held in a session about which nothing else is known. */
async function holding(name: string, { hosts = etcd.endpoints, ttlSeconds = TTL_SECONDS } = {}) {
  const cluster = connect({ hosts, session: { ttlSeconds } });
  const session = await cluster.session();
  const mutex = new Mutex(session, name);
  return { cluster, session, mutex, lock: await mutex.lock() };
}

type Held = Awaited<ReturnType<typeof holding>>;
const CLOSING: readonly (readonly [string, (held: Held, options?: CloseOptions) => Promise<void>])[] = [
  ["a session", ({ session }, options) => session.close(options)],
  ["a cluster", ({ cluster }, options) => cluster.close(options)],
];

describe.concurrent.each(CLOSING)("closing %s", (what, close) => {
  const name = (test: string) => `${what.replace(" ", "-")}/${test}`;

  test("lets running work end, renewed beyond the TTL, and then frees the lock", async ({ expect }) => {
    const held = await holding(name("idle"), SHORT);
    await held.lock.release();
    const mutex = new Mutex(held.session, name("drain"));
    const order: string[] = [];
    let running: Promise<string> | undefined;
    await new Promise<void>((begun) => {
      running = mutex.withLock(async (lock) => {
        begun();
        // The claim is that nothing happens during this time.
        await delay(1.5 * SHORT_MS);
        order.push(lock.held ? "held" : "lost", `${(await places(mutex.name)).length} key`);
        return "done";
      });
    });

    await close(held).then(() => order.push("closed"));

    expect(order).toEqual(["held", "1 key", "closed"]);
    await expect(running).resolves.toBe("done");
    expect(await places(mutex.name)).toEqual([]);
    expect((await leasesOf(etcd.member)).has(held.session.leaseId)).toBe(false);
    await held.cluster.close();
  });

  test("refuses what is new and rejects what waits at once, while what is held goes on", async ({
    expect,
  }) => {
    const held = await holding(name("waiting"));
    const { session, mutex, lock } = held;
    const waiting = [reasonOf(mutex.lock()), reasonOf(mutex.withLock(() => undefined))];
    await expect.poll(() => places(mutex.name)).toHaveLength(3);

    const closed = close(held);
    const calls = [mutex.lock(), mutex.tryLock(), mutex.withLock(() => undefined)].map(reasonOf);
    const reasons = await Promise.all([...waiting, ...calls]);

    for (const reason of reasons) expect(reason).toBeInstanceOf(SessionClosedError);
    expect([lock.held, session.state]).toEqual([true, "live"]);
    await expect.poll(() => places(mutex.name)).toHaveLength(1);
    await lock.release();
    await closed;
    expect([session.state, session.signal.reason]).toEqual(["closed", expect.any(SessionClosedError)]);
    await held.cluster.close();
  });

  test.for([0, 1])(
    "with a drain of %i ms ends what is held with loss closed",
    async (drainMs, { expect }) => {
      const held = await holding(name(`at-once-${drainMs}`));
      const { lock, mutex, session } = held;
      const states: string[] = [];
      session.addEventListener("statechange", ({ state, previous }) => states.push(`${previous} ${state}`));

      await close(held, { drainMs });

      expect(lock.signal.reason).toMatchObject({
        code: "LOCK_LOST",
        loss: "closed",
        cause: { code: "SESSION_CLOSED", leaseId: session.leaseId },
      });
      expect([lock.held, lock.remainingMs(), session.remainingMs()]).toEqual([false, 0, 0]);
      expect(states).toEqual(["live closed"]);
      await expect(lock.release()).rejects.toBe(lock.signal.reason);
      expect(await places(mutex.name)).toEqual([]);
      await held.cluster.close();
    },
  );

  test("again is nothing more, but for a shorter drain, which counts", async ({ expect }) => {
    const held = await holding(name("twice"));

    const first = close(held, { drainMs: 60_000 });
    await close(held, { drainMs: 0 });
    await first;
    await close(held);

    expect(held.lock.signal.reason).toMatchObject({ loss: "closed" });
    await held.cluster.close();
  });

  test.for([{}, { drainMs: 0 }])(
    "resolves within the TTL when etcd is down (%o)",
    async (options, { expect }) => {
      await using own = await startEtcd();
      const held = await holding("down", { hosts: own.endpoints, ...SHORT });
      await own.member.kill();
      const start = performance.now();

      await close(held, options);

      expect(performance.now() - start).toBeLessThan(1.5 * SHORT_MS);
      expect(held.lock.signal.reason).toMatchObject({
        code: "LOCK_LOST",
        loss: options.drainMs === 0 ? "closed" : "expired",
      });
      await held.cluster.close();
    },
  );
});

describe.concurrent("after close()", () => {
  test.for(CLOSING)(
    "%s, and its cluster when a lock is lost by that, resolves both times only when the lease is gone",
    async ([what, close], { expect }) => {
      await using slow = await startTcpProxy({ port: etcd.member.clientPort });
      const held = await holding(`close-at-loss/${what}`, { hosts: [slow.endpoint] });
      const atLoss = new Promise<void>((resolve) => {
        held.lock.signal.addEventListener("abort", () => resolve(held.cluster.close()));
      });

      slow.delay(300, "requests");
      const closed = close(held, { drainMs: 1 });
      await atLoss;

      expect((await leasesOf(etcd.member)).has(held.session.leaseId)).toBe(false);
      await closed;
    },
  );

  test("a cluster opens no session, and its mutexes give no lock", async ({ expect }) => {
    const { cluster } = await holding("after/cluster");
    const mutex = new Mutex(cluster, "after/cluster");
    await cluster.close({ drainMs: 0 });

    const calls = [
      cluster.session(),
      Session.open(cluster),
      Session.adopt(cluster, 7n),
      mutex.lock(),
      mutex.tryLock(),
      mutex.withLock(() => undefined),
    ];

    for (const reason of await Promise.all(calls.map(reasonOf)))
      expect(reason).toBeInstanceOf(SessionClosedError);
  });

  test("a session is over for its mutexes; the cluster opens a new one", async ({ expect }) => {
    const { cluster, session } = await holding("after/session");
    await session.close({ drainMs: 0 });

    await expect(new Mutex(session, "after/session").lock()).rejects.toBe(session.signal.reason);
    const lock = await new Mutex(cluster, "after/session").lock();

    expect((await cluster.session()).leaseId).not.toBe(session.leaseId);
    expect(lock.held).toBe(true);
    await lock.release();
    await cluster.close();
  });

  test.for([
    ["was aborted", undefined],
    ["came to its time limit", 300],
  ] as const)(
    "a session that %s while its grant was on the way leaves no lease",
    async ([, timeoutMs], { expect }) => {
      await using own = await startEtcd();
      await using proxy = await startGrpcProxy({ port: own.member.clientPort });
      // As in a busy etcd, the grant may be executed after all that is sent later.
      const grant = proxy.rule({ path: "/etcdserverpb.Lease/LeaseGrant", act: "hold" });
      const cluster = connect({ hosts: [proxy.endpoint] });
      const abort = new AbortController();
      const opening = reasonOf(Session.open(cluster, { signal: abort.signal, timeoutMs }));
      await grant.hit();
      if (timeoutMs === undefined) abort.abort(new Error("enough"));
      const said = timeoutMs === undefined ? { message: "enough" } : { code: "ETCD_UNAVAILABLE" };
      expect(await opening).toMatchObject(said);

      const closed = cluster.close();
      // It waits for the answer. A revocation without it would be executed by now.
      await Promise.race([closed, delay(200)]);
      grant.release();
      await Promise.all([closed, grant.answered()]);

      expect(await leasesOf(own.member)).toEqual(new Set());
    },
  );

  test("by await using, nothing is left in etcd", async ({ expect }) => {
    const leases: bigint[] = [];
    {
      await using cluster = connect({ hosts: etcd.endpoints });
      await using session = await Session.open(cluster);
      await using lock = await new Mutex(session, "after/using").lock();
      leases.push(session.leaseId, (await cluster.session()).leaseId);
      expect(lock.held).toBe(true);
    }

    const left = await leasesOf(etcd.member);
    expect(leases.filter((leaseId) => left.has(leaseId))).toEqual([]);
    expect(await places("after/using")).toEqual([]);
  });
});
