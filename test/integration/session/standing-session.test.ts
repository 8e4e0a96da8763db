// A cluster's standing session that ends without any notification, or that its user closes.
import { afterAll, beforeAll, describe, test } from "vitest";
import {
  type Cluster,
  ClusterLockManager,
  connect,
  Election,
  lockAll,
  Mutex,
  RwLock,
  Semaphore,
  Session,
  SessionClosedError,
  type SessionSource,
} from "../../../src/index.js";
import { type EtcdCluster, startEtcd } from "../../support/etcd/etcd.js";
import { placesOf } from "../../support/clients/server-view.js";
import { reasonOf } from "../../support/fixtures/two-sessions.js";

/** No renewal falls into a test: only a call can detect a revoked lease. */
const TTL_SECONDS = 600;

let etcd: EtcdCluster;

beforeAll(async () => void (etcd = await startEtcd()), 60_000);
afterAll(() => etcd.stop());

const open = () => connect({ hosts: etcd.endpoints, session: { ttlSeconds: TTL_SECONDS } });

async function revoke({ leaseId }: Session): Promise<void> {
  const { code, stderr } = await etcd.etcdctl(["lease", "revoke", leaseId.toString(16)]);
  if (code !== 0) throw new Error(stderr);
}

interface Released {
  readonly held: boolean;
  release(): Promise<void>;
}

const CALLS: readonly (readonly [string, (source: SessionSource, name: string) => Promise<unknown>])[] = [
  ["lock", (source, name) => new Mutex(source, name).lock()],
  ["tryLock", (source, name) => new Mutex(source, name).tryLock()],
  ["lockAll", (source, name) => lockAll(source, [`${name}-1`, `${name}-2`])],
  ["readLock", (source, name) => new RwLock(source, name).readLock()],
  ["tryWriteLock", (source, name) => new RwLock(source, name).tryWriteLock()],
  ["acquire", (source, name) => new Semaphore(source, name, 2).acquire()],
  ["tryAcquire", (source, name) => new Semaphore(source, name, 2).tryAcquire()],
  ["campaign", (source, name) => new Election(source, name).campaign("me")],
];

describe.concurrent.each(CALLS)("%s, after the lease was revoked unnoticed,", (what, call) => {
  test("is done with the next standing session", async ({ expect }) => {
    await using cluster = open();
    const session = await cluster.session();
    await revoke(session);

    const hold = (await call(cluster, `revoked/${what}`)) as Released;

    expect(hold.held).toBe(true);
    expect(session.signal.reason).toMatchObject({ code: "SESSION_LOST", loss: "revoked" });
    expect((await cluster.session()).leaseId).not.toBe(session.leaseId);
    await hold.release();
  });

  test("rejects with the end of a session of one's own", async ({ expect }) => {
    await using cluster = open();
    const session = await Session.open(cluster, { ttlSeconds: TTL_SECONDS });
    await revoke(session);

    expect(await reasonOf(call(session, `own/${what}`))).toBe(session.signal.reason);
  });
});

describe.concurrent("a standing session that is revoked", () => {
  test("under a waiter that had a place in the queue ends that wait", async ({ expect }) => {
    await using cluster = open();
    await using rivals = open();
    const name = "revoked/waiting";
    const lock = await new Mutex(rivals, name).lock();
    const waiting = reasonOf(new Mutex(cluster, name).lock());
    await expect.poll(() => placesOf(etcd.member, name)).toHaveLength(2);
    const session = await cluster.session();

    await revoke(session);

    expect(await waiting).toMatchObject({ code: "SESSION_LOST", leaseId: session.leaseId });
    expect(await placesOf(etcd.member, name)).toHaveLength(1);
    await lock.release();
  });

  test("is replaced once for all who call at that moment", async ({ expect }) => {
    await using cluster = open();
    const session = await cluster.session();
    await revoke(session);

    const names = Array.from({ length: 20 }, (_, i) => `revoked/many-${i}`);
    const locks = await Promise.all(names.map((name) => new Mutex(cluster, name).lock()));

    const { leaseId } = await cluster.session();
    for (const { key } of locks) expect(key).toContain(leaseId.toString(16));
    await Promise.all(locks.map((lock) => lock.release()));
  });
});

/** A standing session that its user closes, and that a held lock still keeps open. */
async function draining(cluster: Cluster, name: string) {
  const lock = await new Mutex(cluster, name).lock();
  const session = await cluster.session();
  const closed = session.close({ drainMs: 600_000 });
  return { lock, session, closed };
}

describe.concurrent("a standing session that its user closes", () => {
  test.for(CALLS)("is not used for %s while it drains", async ([what, call], { expect }) => {
    await using cluster = open();
    const { lock, session, closed } = await draining(cluster, `draining/held-by-${what}`);

    const hold = (await call(cluster, `draining/${what}`)) as Released;

    expect([lock.held, hold.held, session.state]).toEqual([true, true, "live"]);
    expect((await cluster.session()).leaseId).not.toBe(session.leaseId);
    await Promise.all([lock.release(), hold.release()]);
    await closed;
    expect(session.state).toBe("closed");
  });

  test("in the same moment as a call is the call's no more", async ({ expect }) => {
    await using cluster = open();
    const session = await cluster.session();

    const locking = new Mutex(cluster, "closed/at-once").lock();
    void session.close();
    const lock = await locking;

    expect(lock.held).toBe(true);
    expect((await cluster.session()).leaseId).not.toBe(session.leaseId);
    await lock.release();
  });

  test("lets web-lock requests join anew, in their order", async ({ expect }) => {
    await using cluster = open();
    await using rivals = open();
    const name = "closed";
    const other = new ClusterLockManager(rivals, { prefix: "closed-anew" });
    const locks = new ClusterLockManager(cluster, { prefix: "closed-anew" });
    let end = (): void => {};
    let begun = (): void => {};
    const granted = new Promise<void>((resolve) => (begun = resolve));
    const held = other.request(name, () => {
      begun();
      return new Promise<void>((resolve) => (end = resolve));
    });
    await granted;
    const order: number[] = [];
    const waiting = [1, 2].map((n) => locks.request(name, () => order.push(n)));
    await expect.poll(async () => (await locks.query()).pending).toHaveLength(2);

    await (await cluster.session()).close();
    const later = locks.request(name, () => order.push(3));
    await expect.poll(async () => (await locks.query()).pending).toHaveLength(3);
    end();
    await Promise.all([held, ...waiting, later]);

    expect(order).toEqual([1, 2, 3]);
  });

  test("refuses nothing to later web-lock requests while it drains", async ({ expect }) => {
    await using cluster = open();
    const locks = new ClusterLockManager(cluster, { prefix: "closed-free" });
    const { lock, closed } = await draining(cluster, "draining/web-locks");

    expect(await locks.request("free", () => "granted")).toBe("granted");
    expect(await locks.request("free", { ifAvailable: true }, (granted) => granted !== null)).toBe(true);

    await lock.release();
    await closed;
  });

  test("with its cluster ends web-lock requests as closed, and locks with SessionClosedError", async ({
    expect,
  }) => {
    const cluster = open();
    const locks = new ClusterLockManager(cluster, { prefix: "closed-cluster" });
    const { lock, closed } = await draining(cluster, "closed/cluster");
    let end = (): void => {};
    const held = locks.request("held", () => new Promise<void>((resolve) => (end = resolve)));
    const waiting = reasonOf(locks.request("held", () => undefined));
    const blocked = reasonOf(new Mutex(cluster, "closed/cluster").lock());
    await expect.poll(async () => (await locks.query()).pending).toHaveLength(1);

    const ended = cluster.close();

    expect(await waiting).toMatchObject({ name: "InvalidStateError" });
    expect(await blocked).toBeInstanceOf(SessionClosedError);
    end();
    await Promise.all([held, lock.release(), closed, ended]);
  });
});

describe("a standing session that its user orphans", () => {
  test("stays orphaned while other calls open the next one", async ({ expect }) => {
    await using cluster = open();
    const standing = await cluster.session();
    const waiting = new Mutex(standing, "orphaned").lock();
    const held = await waiting;
    const late = new Mutex(standing, "orphaned").lock();
    late.catch(() => undefined);
    await expect.poll(() => placesOf(etcd.member, "orphaned")).toHaveLength(2);

    const [leaseId, next] = await Promise.all([standing.orphan(), cluster.session()]);

    expect(leaseId).toBe(standing.leaseId);
    expect(next.leaseId).not.toBe(leaseId);
    // Orphaned, not revoked: the holder's key still exists.
    expect(await placesOf(etcd.member, "orphaned")).toMatchObject([{ key: held.key, leaseId }]);
    await revoke(standing);
  });
});
