import { afterAll, beforeAll, describe, test } from "vitest";
import {
  type Cluster,
  connect,
  inspect,
  Mutex,
  Session,
  SessionClosedError,
  SessionLostError,
} from "../../../src/index.js";
import { type EtcdCluster, startEtcd } from "../../support/etcd/etcd.js";
import { startGrpcProxy } from "../../support/proxies/grpc-proxy.js";
import { takesPlace } from "../../support/clients/request-shape.js";
import { observe } from "../../support/clients/observer.js";
import { leasesOf, placesOf } from "../../support/clients/server-view.js";

const TTL_SECONDS = 10;
/** For what takes one TTL. */
const SHORT_TTL_SECONDS = 2;

let etcd: EtcdCluster;
/** Like two processes: the second one adopts what the first one orphans. */
let first: Cluster;
let second: Cluster;

beforeAll(async () => {
  etcd = await startEtcd();
  first = connect({ hosts: etcd.endpoints });
  second = connect({ hosts: etcd.endpoints });
}, 60_000);
afterAll(async () => {
  await Promise.all([first.close({ drainMs: 0 }), second.close({ drainMs: 0 })]);
  await etcd.stop();
});

const places = (name: string) => placesOf(etcd.member, name);
const reasonOf = (promise: Promise<unknown>) =>
  promise.then(() => undefined).catch((reason: unknown) => reason);
const open = (cluster = first, ttlSeconds = TTL_SECONDS) => Session.open(cluster, { ttlSeconds });

describe.concurrent("an orphaned session", () => {
  test("ends its holds here, as closed, and leaves lease and keys for who adopts it", async ({ expect }) => {
    const session = await open();
    const lock = await new Mutex(session, "orphan/holds").lock();

    const leaseId = await session.orphan();

    expect(leaseId).toBe(session.leaseId);
    expect(lock.held).toBe(false);
    expect(lock.signal.reason).toMatchObject({ code: "LOCK_LOST", loss: "closed" });
    expect([session.state, session.signal.reason]).toEqual(["closed", expect.any(SessionClosedError)]);
    expect((await places("orphan/holds")).map(({ revision }) => revision)).toEqual([lock.fence]);
    expect((await leasesOf(etcd.member)).has(leaseId)).toBe(true);
  });

  test("is not revoked by a close() that comes later", async ({ expect }) => {
    const cluster = connect({ hosts: etcd.endpoints });
    const session = await open(cluster);
    await session.orphan();

    await session.close();
    await cluster.close();

    expect((await leasesOf(etcd.member)).has(session.leaseId)).toBe(true);
  });

  test("rejects what waits and takes its places out of the queue", async ({ expect }) => {
    const session = await open();
    const mutex = new Mutex(session, "orphan/waits");
    await mutex.lock();
    const waiting = [mutex.lock(), mutex.lock()].map(reasonOf);
    await expect.poll(() => places("orphan/waits")).toHaveLength(3);

    await session.orphan();

    for (const reason of await Promise.all(waiting)) expect(reason).toBeInstanceOf(SessionClosedError);
    expect(await places("orphan/waits")).toHaveLength(1);
  });

  test("takes out of the queue what was just joining", async ({ expect }) => {
    await using proxy = await startGrpcProxy({ port: etcd.member.clientPort });
    await using cluster = connect({ hosts: proxy.endpoint });
    const session = await open(cluster);
    const rival = await new Mutex(await open(second), "orphan/joins").lock();
    const join = proxy.rule({ path: "/etcdserverpb.KV/Txn", act: "hold", times: 1 });
    const waiting = reasonOf(new Mutex(session, "orphan/joins").lock());
    await join.hit();
    // The delete that follows arrives later than the last renewal.
    proxy.rule({ path: "/etcdserverpb.KV/Txn", act: "delay", ms: 300, times: 1 });

    const orphaned = session.orphan();
    join.release();
    await orphaned;

    expect(await waiting).toBeInstanceOf(SessionClosedError);
    expect((await places("orphan/joins")).map(({ revision }) => revision)).toEqual([rival.fence]);
    await rival.release();
  });

  test("is renewed once more: who adopts it has a whole TTL", async ({ expect }) => {
    const session = await open(first, SHORT_TTL_SECONDS);
    await expect.poll(() => session.remainingMs()).toBeLessThan(0.8 * SHORT_TTL_SECONDS * 1000);

    await session.orphan();

    const { TTL, grantedTTL } = (await etcd.member.gateway("/v3/lease/timetolive", {
      ID: session.leaseId.toString(),
    })) as { TTL: string; grantedTTL: string };
    expect(Number(TTL)).toBeGreaterThanOrEqual(Number(grantedTTL) - 1);
  });

  test("that is over already has nothing to leave", async ({ expect }) => {
    const session = await open();
    await session.close();

    await expect(session.orphan()).rejects.toBe(session.signal.reason);
  });
});

describe.concurrent("an adopted session", () => {
  test("takes over the lock: same key, same fence, and nobody came between", async ({ expect }) => {
    using server = await observe(etcd.member.endpoint, "adopt/same/");
    const session = await open();
    const before = await new Mutex(session, "adopt/same").lock();
    const rival = new Mutex(await open(second), "adopt/same").lock();
    await server.first(({ type, key }) => type === "PUT" && key !== before.key);
    const adopted = await Session.adopt(second, await session.orphan(), { owner: "the heir" });

    const lock = await new Mutex(adopted, "adopt/same").lock();

    expect([lock.key, lock.fence, lock.held]).toEqual([before.key, before.fence, true]);
    expect([adopted.leaseId, adopted.ttlSeconds, adopted.owner]).toEqual([
      session.leaseId,
      TTL_SECONDS,
      "the heir",
    ]);
    expect(server.seen.filter(({ type }) => type === "DELETE")).toEqual([]);
    await lock.release();
    const next = await rival;
    expect(next.fence).toBeGreaterThan(lock.fence);
    await next.release();
  });

  test("is found by the name of the lock: inspect shows the lease and the owner of the holder", async ({
    expect,
  }) => {
    const owner = "gateway-0";
    const session = await Session.open(first, { ttlSeconds: TTL_SECONDS, owner });
    const before = await new Mutex(session, "adopt/named").lock();
    await session.orphan();

    const { holders } = await inspect(second, "adopt/named");
    expect(holders).toMatchObject([{ owner, leaseId: session.leaseId, revision: before.fence }]);
    const adopted = await Session.adopt(second, holders[0]!.leaseId, { owner });
    const lock = await new Mutex(adopted, "adopt/named").lock();

    expect([lock.key, lock.fence, adopted.owner]).toEqual([before.key, before.fence, owner]);
    await lock.release();
    await adopted.close();
  });

  test("may be that of a process that has crashed: its lock goes on with the same fence", async ({
    expect,
  }) => {
    const { stdout } = await etcd.etcdctl(["lease", "grant", "60"]);
    const [, id = ""] = /lease 0*(\w+) granted/.exec(stdout) ?? [];
    const value = { owner: "gateway-0", since: new Date().toISOString(), id: "crashed" };
    await etcd.etcdctl(["put", `adopt/crashed/${id}`, JSON.stringify(value), `--lease=${id}`]);

    const [holder] = (await inspect(second, "adopt/crashed")).holders;
    const adopted = await Session.adopt(second, holder!.leaseId, { owner: holder!.owner });
    const lock = await new Mutex(adopted, "adopt/crashed").lock();

    expect([lock.fence, lock.held, adopted.owner]).toEqual([holder!.revision, true, "gateway-0"]);
    await lock.release();
    await adopted.close();
  });

  test("gives the inherited place to one caller: the next one waits", async ({ expect }) => {
    const session = await open();
    const before = await new Mutex(session, "adopt/once").lock();
    const adopted = await Session.adopt(second, await session.orphan());
    const mutex = new Mutex(adopted, "adopt/once");

    const lock = await mutex.lock();
    expect(await mutex.tryLock()).toBeUndefined();
    const waiting = mutex.lock();
    await expect.poll(() => places("adopt/once")).toHaveLength(2);
    await lock.release();
    const next = await waiting;

    expect(lock.fence).toBe(before.fence);
    expect(next.fence).toBeGreaterThan(lock.fence);
    await next.release();
  });

  test("keeps the inherited place when it sweeps up after a tryLock that was not answered", async ({
    expect,
  }) => {
    await using proxy = await startGrpcProxy({ port: etcd.member.clientPort });
    await using cluster = connect({ hosts: proxy.endpoint });
    const session = await Session.open(first, { ttlSeconds: 10 });
    const before = await new Mutex(session, "adopt/swept").lock();
    const adopted = await Session.adopt(cluster, await session.orphan());
    const mutex = new Mutex(adopted, "adopt/swept");
    const lost = proxy.rule({
      path: "/etcdserverpb.KV/Txn",
      when: takesPlace,
      act: "cut-answer",
      times: 1,
    });
    let reads = 0;
    proxy.rule({ path: "/etcdserverpb.KV/Range", when: () => ++reads < 0, act: "drop-answer" });

    expect(await mutex.tryLock()).toBeUndefined();
    await expect.poll(() => reads).toBeGreaterThan(0);
    // When other requests have been answered, the sweep has acted on what it has read.
    await (await new Mutex(adopted, "adopt/other").lock()).release();

    expect(lost.hits).toBe(1);
    const lock = await mutex.lock();
    expect(lock.fence).toBe(before.fence);
    await lock.release();
    await adopted.close();
  });

  test("renews beyond the TTL, and deletes within one TTL what nobody has claimed", async ({ expect }) => {
    using server = await observe(etcd.member.endpoint, "adopt/unclaimed/");
    const session = await open(first, SHORT_TTL_SECONDS);
    const before = await new Mutex(session, "adopt/unclaimed").lock();
    const adopted = await Session.adopt(second, await session.orphan());

    const deleted = await server.deleted(before.key, before.fence);

    expect(deleted.mod).toBeGreaterThan(before.fence);
    expect(adopted.state).toBe("live");
    expect((await leasesOf(etcd.member)).has(adopted.leaseId)).toBe(true);
    expect((await new Mutex(adopted, "adopt/unclaimed").lock()).fence).toBeGreaterThan(before.fence);
  });

  test("keeps the oldest of two places of a name, and deletes the other at once", async ({ expect }) => {
    using server = await observe(etcd.member.endpoint, "adopt/two/");
    const session = await open();
    const before = await new Mutex(session, "adopt/two").lock();
    const key = `${before.key}-2`;
    await etcd.etcdctl(["put", `--lease=${session.leaseId.toString(16)}`, key, "left by a crash"]);
    const extra = await server.put(key);
    const adopted = await Session.adopt(second, await session.orphan());

    await server.deleted(key, extra.create);
    const lock = await new Mutex(adopted, "adopt/two").lock();

    expect(lock.fence).toBe(before.fence);
    await lock.release();
  });

  test("deletes no key that only looks like a place", async ({ expect }) => {
    const session = await open();
    const lease = session.leaseId.toString(16);
    await etcd.etcdctl(["put", `--lease=${lease}`, `adopt/others/${lease}/deeper`, "data"]);
    await etcd.etcdctl(["put", `--lease=${lease}`, "adopt/others/data", "data"]);
    const adopted = await Session.adopt(second, await session.orphan());

    await new Mutex(adopted, "adopt/other").withLock(() => undefined);
    await expect.poll(() => adopted.remainingMs()).toBeGreaterThan(0);

    expect(await places("adopt/others")).toHaveLength(2);
    await adopted.close();
  });

  test.for([
    ["was never granted", () => Promise.resolve(0x7777_7777n)],
    [
      "was revoked",
      async () => {
        const session = await open();
        await session.close();
        return session.leaseId;
      },
    ],
  ] as const)("is refused as lost when its lease %s", async ([, leaseOf], { expect }) => {
    const leaseId = await leaseOf();

    const error = await reasonOf(Session.adopt(second, leaseId));

    expect(error).toBeInstanceOf(SessionLostError);
    expect(error).toMatchObject({ code: "SESSION_LOST", leaseId });
  });
});
