// The requirements of the tests of etcd's Go client for sessions and leases.
import { afterAll, beforeAll, describe, expect, test } from "vitest";
import { type Cluster, connect, Mutex, Session } from "../../../src/index.js";
import { type EtcdCluster, startEtcd } from "../../support/etcd/etcd.js";
import { startGrpcProxy } from "../../support/proxies/grpc-proxy.js";
import { grantedId } from "../../support/clients/request-shape.js";
import { leasesOf, placesOf } from "../../support/clients/server-view.js";
import { meter } from "../../support/fixtures/spent.js";
import { reasonOf } from "../../support/fixtures/two-sessions.js";
import { abortOf, deadlineOf, openClient } from "../../support/clients/session-client.js";
import { revoke, timeToLive } from "../../support/clients/lease-calls.js";

/** So long that no renewal falls into a test unless it waits for one. */
const LONG_SECONDS = 90;

let etcd: EtcdCluster;
let cluster: Cluster;

beforeAll(async () => {
  etcd = await startEtcd();
  cluster = connect({ hosts: etcd.endpoints });
}, 60_000);
afterAll(async () => {
  await cluster.close({ drainMs: 0 });
  await etcd.stop();
});

const places = (name: string) => placesOf(etcd.member, name);

describe("a session's lease", () => {
  test.each([
    ["the TTL that was asked for", { ttlSeconds: LONG_SECONDS }, LONG_SECONDS],
    ["a TTL of 15 seconds when none was asked for", {}, 15],
  ])("has %s, here and in etcd", async (_, options, ttlSeconds) => {
    const session = await Session.open(cluster, options);

    const { granted, left } = await timeToLive(etcd.member, session.leaseId);

    expect([session.ttlSeconds, granted]).toEqual([ttlSeconds, ttlSeconds]);
    expect(left).toBeLessThan(ttlSeconds + 1);
    expect(left).toBeGreaterThan(0.75 * ttlSeconds);
    await session.close();
  });

  test("carries the keys of its locks while they are held, and none afterwards", async () => {
    const session = await Session.open(cluster, { ttlSeconds: LONG_SECONDS });
    const locks = [
      await new Mutex(session, "carries/a").lock(),
      await new Mutex(session, "carries/b").lock(),
    ];

    const during = await timeToLive(etcd.member, session.leaseId);
    for (const lock of locks) await lock.release();
    const after = await timeToLive(etcd.member, session.leaseId);

    expect(during.keys.sort()).toEqual(locks.map(({ key }) => key));
    expect(after.keys).toEqual([]);
    await session.close();
  });

  test("is its own, also among sessions opened together, and gone with the cluster", async () => {
    const own = connect({ hosts: etcd.endpoints });
    const sessions = await Promise.all(Array.from({ length: 5 }, () => Session.open(own)));
    const ids = sessions.map(({ leaseId }) => leaseId);
    const live = await leasesOf(etcd.member);

    await own.close();
    const left = await leasesOf(etcd.member);

    expect(new Set(ids).size).toBe(5);
    expect(ids.filter((id) => live.has(id))).toEqual(ids);
    expect(ids.filter((id) => left.has(id))).toEqual([]);
  });

  test("keeps the ID that was chosen for it when the grant's answer is lost, and its deadline counts from a renewal", async () => {
    await using proxy = await startGrpcProxy({ port: etcd.member.clientPort });
    await using own = connect({ hosts: proxy.endpoint, requestTimeoutMs: 300 });
    const asked: bigint[] = [];
    const path = "/etcdserverpb.Lease/LeaseGrant";
    const first = (request: Buffer) => asked.push(grantedId(request)) === 1;
    proxy.rule({ path, act: "drop-answer", when: first });
    const before = await leasesOf(etcd.member);

    const session = await Session.open(own, { ttlSeconds: LONG_SECONDS });
    const granted = [...(await leasesOf(etcd.member))].filter((id) => !before.has(id));

    expect(asked).toEqual([session.leaseId, session.leaseId]);
    expect(granted).toEqual([session.leaseId]);
    // Both connections to the host were probed, before the grant and before its repetition.
    expect(proxy.count("/etcdserverpb.Lease/LeaseKeepAlive")).toBe(3);
    expect(session.remainingMs()).toBeLessThanOrEqual(900 * LONG_SECONDS);
  });

  test("is renewed three times per TTL and no more, however busy its session is", async () => {
    const ttlMs = 2000;
    await using own = await startEtcd();
    await using client = await openClient(own.endpoints, ttlMs / 1000);
    const start = performance.now();
    const count = await meter(own.member);
    let renewals = 0;

    while (renewals < 4) {
      await client.mutex("busy").withLock(() => undefined);
      renewals = (await count.read())["LeaseKeepAlive"] ?? 0;
    }

    // The first one may have been due up to a third of the TTL before, and late: the next ones were due in their turn.
    expect(performance.now() - start).toBeGreaterThan((renewals - 2) * (ttlMs / 3));
    expect(client.states).toEqual([]);
  });
});

describe("what hangs on a session's signal", () => {
  test("is cancelled when the session is orphaned, and told the session's end", async () => {
    const session = await Session.open(cluster, { ttlSeconds: 5 });
    const work = AbortSignal.any([session.signal, new AbortController().signal]);

    await session.orphan();

    expect(work.aborted).toBe(true);
    expect(work.reason).toMatchObject({ code: "SESSION_CLOSED", leaseId: session.leaseId });
  });
});

describe("a lease that was revoked", () => {
  test("ends its own session only: others on the same stream are renewed", async () => {
    const sessions = await Promise.all([0, 1, 2].map(() => Session.open(cluster, { ttlSeconds: 3 })));
    const [first, victim, last] = sessions as [Session, Session, Session];

    await revoke(etcd.member, victim.leaseId);
    const reason = await abortOf(victim.signal);
    const deadlines = [first, last].map(deadlineOf);

    expect(reason).toMatchObject({ code: "SESSION_LOST", loss: "revoked", leaseId: victim.leaseId });
    for (const [index, session] of [first, last].entries()) {
      await expect
        .poll(() => deadlineOf(session), { timeout: 3000 })
        .toBeGreaterThan(deadlines[index]! + 500);
      expect(session.state).toBe("live");
    }
    await Promise.all(sessions.map((session) => session.close()));
  });

  test.each(["lock", "tryLock"] as const)(
    "is told by the next %s, long before a renewal would, and no key is left",
    async (take) => {
      const name = `revoked/${take}`;
      const session = await Session.open(cluster, { ttlSeconds: LONG_SECONDS });
      await revoke(etcd.member, session.leaseId);

      const reason = await reasonOf(new Mutex(session, name)[take]());

      expect(reason).toMatchObject({ code: "SESSION_LOST", loss: "revoked", leaseId: session.leaseId });
      expect([session.state, session.signal.reason]).toEqual(["lost", reason]);
      expect(await places(name)).toEqual([]);
    },
  );

  test("costs a mutex made with a cluster no call at all: the one that finds out uses the next session", async () => {
    await using own = connect({ hosts: etcd.endpoints, session: { ttlSeconds: LONG_SECONDS } });
    const mutex = new Mutex(own, "revoked/cluster");
    const { leaseId } = await own.session();
    await revoke(etcd.member, leaseId);

    const lock = await mutex.lock();

    expect(lock.held).toBe(true);
    expect((await own.session()).leaseId).not.toBe(leaseId);
    await lock.release();
  });
});
