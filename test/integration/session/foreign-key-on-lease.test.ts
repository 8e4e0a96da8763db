// etcd 3.6 rejects each put with a lease that has a key which the user may not write, whoever has put it there.
import { setTimeout as delay } from "node:timers/promises";
import { afterAll, beforeAll, describe, test } from "vitest";
import {
  ClusterLockManager,
  connect,
  lockAll,
  Mutex,
  RwLock,
  Session,
  type SessionLostError,
} from "../../../src/index.js";
import { reasonOf } from "../../support/fixtures/two-sessions.js";
import { startWithUsers, type UserEtcd, WORKER } from "../../support/fixtures/users.js";

const REFUSED = { code: "ETCD_REFUSED", reason: "permission" };

let etcd: UserEtcd;
beforeAll(async () => void (etcd = await startWithUsers()), 60_000);
afterAll(() => etcd.stop());

/** Whether this version does not renew such a lease. */
const refuses = (): boolean => Number(etcd.etcd.version.split(".")[1]) >= 6;

let spoils = 0;
/** A worker that holds a lock, and on whose standing session another user puts a key. */
async function spoiled(ttlSeconds = 10) {
  const id = spoils++;
  const key = `other/${id}`;
  const cluster = connect({ hosts: etcd.endpoints, auth: WORKER, session: { ttlSeconds } });
  const lock = await new Mutex(cluster, `jobs/${id}/before`).lock();
  const session = await cluster.session();
  const spoil = ({ leaseId }: Session) => etcd.root("put", key, "", `--lease=${leaseId.toString(16)}`);
  await spoil(session);
  return { key, cluster, lock, session, spoil, [Symbol.asyncDispose]: () => cluster.close({ drainMs: 0 }) };
}

describe.concurrent("another user's key on the lease", () => {
  test("of the standing session ends no hold, and keeps nobody from joining", async ({ expect }) => {
    await using it = await spoiled();
    const { cluster, lock, session } = it;

    const locks = [
      await new Mutex(cluster, "jobs/lock").lock(),
      await new Mutex(cluster, "jobs/try").tryLock(),
      await lockAll(cluster, ["jobs/all-1", "jobs/all-2"]),
      await new RwLock(cluster, "jobs/read").readLock(),
    ];
    const web = new ClusterLockManager(cluster, { prefix: "jobs/web" });
    expect(await web.request("web", () => "granted")).toBe("granted");

    expect([lock.held, session.state, ...locks.map((each) => each?.held)]).toEqual([
      true,
      "live",
      ...locks.map(() => true),
    ]);
    for (const each of locks) await each?.release();
    await lock.release();
  });

  test("ends the session on it at most, as 3.6 renews it no more, and no other one", async ({ expect }) => {
    await using it = await spoiled(2);
    const { cluster, session } = it;
    const others = [await Session.open(cluster, { ttlSeconds: 2 })];
    const lock = await new Mutex(cluster, "jobs/after").lock();
    others.push(await cluster.session(), await Session.open(cluster, { ttlSeconds: 2 }));

    // The claim is that nothing happens to the others during this time.
    await delay(4000);

    const living = others.filter((other) => other !== session);
    expect(living.map(({ state }) => state)).toEqual(living.map(() => "live"));
    expect(lock.held).toBe(true);
    expect(session.state).toBe(refuses() ? "lost" : "live");
    if (!refuses()) return;
    const { cause, message } = session.signal.reason as SessionLostError;
    expect(cause).toMatchObject(REFUSED);
    expect(message).not.toContain("did not answer");
    expect(it.lock.signal.reason).toMatchObject({ loss: "expired", cause: session.signal.reason as Error });
  });

  test("makes adopt() and orphan() say so at once, where etcd does not renew the lease", async ({
    expect,
  }) => {
    await using it = await spoiled();
    const own = await Session.open(it.cluster, { ttlSeconds: 60 });
    const leaseId = await (await Session.open(it.cluster, { ttlSeconds: 60 })).orphan();
    await it.spoil(own);
    await etcd.root("put", `${it.key}/orphan`, "", `--lease=${leaseId.toString(16)}`);

    // Nothing but the answer of etcd ends them within the time limit of this test.
    const wait = { timeoutMs: 60_000 };
    const reasons = [await reasonOf(Session.adopt(it.cluster, leaseId, wait)), await reasonOf(own.orphan())];

    const expected: unknown = refuses() ? expect.objectContaining(REFUSED) : undefined;
    expect(reasons).toEqual([expected, expected]);
    if (!refuses()) return;
    expect(own.state).toBe("live");
    // It has not begun to end: with the key, the reason is gone.
    await etcd.root("del", it.key, `${it.key}/z`);
    expect(await own.orphan()).toBe(own.leaseId);
  });

  test("is no reason for a new session when it is the name that is forbidden", async ({ expect }) => {
    const fresh = connect({ hosts: etcd.endpoints, auth: WORKER });
    const { leaseId } = await fresh.session();

    expect(await reasonOf(new Mutex(fresh, "forbidden").lock())).toMatchObject(REFUSED);
    expect(await reasonOf(new Mutex(fresh, "forbidden").tryLock())).toMatchObject(REFUSED);
    expect(await reasonOf(lockAll(fresh, ["jobs/a", "forbidden"]))).toMatchObject(REFUSED);

    expect((await fresh.session()).leaseId).toBe(leaseId);
    expect(await etcd.keysUnder("forbidden")).toEqual([]);
    await fresh.close({ drainMs: 0 });
  });

  test("of a session of one's own goes on being refused, until the key is gone", async ({ expect }) => {
    await using it = await spoiled();
    const session = await Session.open(it.cluster);
    await it.spoil(session);

    const first = await reasonOf(new Mutex(session, "jobs/own").lock().then((lock) => lock.release()));
    await etcd.root("del", it.key);
    const lock = await new Mutex(session, "jobs/own").lock();

    if (first !== undefined) expect(first).toMatchObject(REFUSED);
    expect([lock.held, session.state]).toEqual([true, "live"]);
    await lock.release();
  });
});
