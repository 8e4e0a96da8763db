// What a rejection does to each call, as the docstring of EtcdRefusedError says, on a real etcd behind a proxy that sends it.
import { afterAll, beforeAll, describe, expect, test } from "vitest";
import { connect, Election, Mutex, Session } from "../../../src/index.js";
import { type EtcdCluster, startEtcd } from "../../support/etcd/etcd.js";
import { startGrpcProxy } from "../../support/proxies/grpc-proxy.js";
import { givesBack, takesPlace } from "../../support/clients/request-shape.js";
import { leasesOf, placesOf } from "../../support/clients/server-view.js";

/** Longer than a process stands still on a busy machine. */
const TTL_SECONDS = 10;
const GRANT = "/etcdserverpb.Lease/LeaseGrant";
const RANGE = "/etcdserverpb.KV/Range";
const TXN = "/etcdserverpb.KV/Txn";

const said = (code: number, text: string) => ({ code, details: `etcdserver: ${text}` });
const PERMISSION = said(7, "permission denied");
const CREDENTIALS = said(3, "authentication failed, invalid user ID or password");
const REQUEST = said(3, "request is too large");
const QUOTA = said(8, "mvcc: database space exceeded");
const LEASE = said(5, "requested lease not found");
/** Rejections that another attempt may resolve: of a busy member, of a change of the leader, and of proxies. */
const OTHERS = [
  said(8, "too many requests"),
  said(14, "leader changed"),
  { code: 12, details: "unknown service etcdserverpb.KV" },
  { code: 7, details: "RBAC: access denied" },
];
const REJECTIONS = [
  [PERMISSION, "permission"],
  [CREDENTIALS, "unauthenticated"],
  [REQUEST, "other"],
] as const;

let etcd: EtcdCluster;
beforeAll(async () => void (etcd = await startEtcd()), 60_000);
afterAll(() => etcd?.stop());

let stages = 0;
/** A session behind a proxy, and another one that holds the name. */
async function stage(ttlSeconds = TTL_SECONDS) {
  const name = `callers/${stages++}`;
  const proxy = await startGrpcProxy({ port: etcd.member.clientPort });
  const cluster = connect({ hosts: proxy.endpoint });
  const rivals = connect({ hosts: etcd.member.endpoint, session: { ttlSeconds } });
  const session = await Session.open(cluster, { ttlSeconds });
  const stop = async () => {
    await Promise.all([cluster.close({ drainMs: 0 }), rivals.close({ drainMs: 0 })]);
    await proxy.stop();
  };
  const places = () => placesOf(etcd.member, name);
  return { name, proxy, cluster, session, rivals, places, [Symbol.asyncDispose]: stop };
}

describe.concurrent("lock() that joins", () => {
  test.for([...REJECTIONS, [QUOTA, "quota"] as const])(
    "rejects on %j",
    async ([status, reason], { expect }) => {
      await using it = await stage();
      const rule = it.proxy.rule({ path: TXN, act: "refuse", when: takesPlace, status });

      await expect(new Mutex(it.session, it.name).lock()).rejects.toMatchObject({
        code: "ETCD_REFUSED",
        reason,
      });
      it.proxy.remove(rule);

      const lock = await new Mutex(it.session, it.name).lock();
      expect(await it.places()).toHaveLength(1);
      await lock.release();
    },
  );

  test("ends with its session where etcd has no such lease", async ({ expect }) => {
    await using it = await stage();
    it.proxy.rule({ path: TXN, act: "refuse", when: takesPlace, times: 1, status: LEASE });

    const locking = new Mutex(it.session, it.name).lock();

    await expect(locking).rejects.toMatchObject({ code: "SESSION_LOST", loss: "revoked" });
  });

  test.for(OTHERS)("goes on after %j", async (status, { expect }) => {
    await using it = await stage();
    const rule = it.proxy.rule({ path: TXN, act: "refuse", when: takesPlace, times: 2, status });

    const lock = await new Mutex(it.session, it.name).lock();

    expect([rule.hits, lock.held]).toEqual([2, true]);
    await lock.release();
    expect(await it.places()).toEqual([]);
  });
});

describe.concurrent("a waiter that reads its queue", () => {
  /** Waits behind a rival; its first read is answered by `status`. */
  async function waiting(it: Awaited<ReturnType<typeof stage>>, status: typeof PERMISSION, times: number) {
    const held = await new Mutex(it.rivals, it.name).lock();
    const rule = it.proxy.rule({ path: RANGE, act: "refuse", times, status });
    const late = new Mutex(it.session, it.name).lock();
    late.catch(() => undefined);
    await rule.hit(times);
    return { held, late };
  }

  test.for(REJECTIONS)("rejects on %j, and leaves no key", async ([status, reason], { expect }) => {
    await using it = await stage();
    // The first read is serializable, which a member answers alone: a linearizable one follows.
    const { held, late } = await waiting(it, status, 2);

    await expect(late).rejects.toMatchObject({ code: "ETCD_REFUSED", reason });
    await expect.poll(it.places).toHaveLength(1);
    await held.release();
  });

  test.for(OTHERS)("goes on after %j", async (status, { expect }) => {
    await using it = await stage();
    const { held, late } = await waiting(it, status, 2);

    await held.release();

    await (await late).release();
    expect(await it.places()).toEqual([]);
  });
});

describe.concurrent("release()", () => {
  test.for([PERMISSION, CREDENTIALS, REQUEST, QUOTA, ...OTHERS])(
    "is repeated after %j until the key is gone",
    async (status, { expect }) => {
      await using it = await stage();
      const lock = await new Mutex(it.session, it.name).lock();
      const rule = it.proxy.rule({ path: TXN, act: "refuse", when: givesBack, times: 2, status });

      await lock.release();

      expect(rule.hits).toBe(2);
      expect(await it.places()).toEqual([]);
    },
  );

  test("resolves within one TTL where etcd goes on rejecting it", async ({ expect }) => {
    await using it = await stage(3);
    const lock = await new Mutex(it.session, it.name).lock();
    const rule = it.proxy.rule({ path: TXN, act: "refuse", when: givesBack, status: PERMISSION });

    await lock.release();

    expect(it.session.state).toBe("live");
    expect(rule.hits).toBeGreaterThan(1);
    it.proxy.remove(rule);
    await expect.poll(it.places).toEqual([]);
  });
});

describe.concurrent("observe()", () => {
  test.for(REJECTIONS)("throws on %j", async ([status, reason], { expect }) => {
    await using it = await stage();
    it.proxy.rule({ path: RANGE, act: "refuse", times: 1, status });

    const next = new Election(it.cluster, it.name).observe().next();

    await expect(next).rejects.toMatchObject({ code: "ETCD_REFUSED", reason });
  });

  test.for(OTHERS)("goes on after %j", async (status, { expect }) => {
    await using it = await stage();
    const rule = it.proxy.rule({ path: RANGE, act: "refuse", times: 2, status });
    const leaders = new Election(it.cluster, it.name).observe();

    expect(await leaders.next()).toEqual({ done: false, value: undefined });
    expect(rule.hits).toBe(2);
    await leaders.return?.();
  });
});

describe("Session.open()", () => {
  test.each([...REJECTIONS, [QUOTA, "quota"] as const])(
    "rejects on %j, and revokes what etcd has granted all the same",
    async (status, reason) => {
      await using it = await stage();
      const before = await leasesOf(etcd.member);
      it.proxy.rule({ path: GRANT, act: "overrule", times: 1, status });

      await expect(Session.open(it.cluster)).rejects.toMatchObject({ code: "ETCD_REFUSED", reason });

      const added = async () => [...(await leasesOf(etcd.member))].filter((id) => !before.has(id));
      await expect.poll(added).toEqual([]);
    },
  );

  test.each(OTHERS)("goes on after %j", async (status) => {
    await using it = await stage();
    const rule = it.proxy.rule({ path: GRANT, act: "refuse", times: 2, status });

    const session = await Session.open(it.cluster);

    expect([rule.hits, session.state]).toEqual([2, "live"]);
  });
});
