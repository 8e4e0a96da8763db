// Sessions that end while etcd refuses to delete their keys, or after these were changed by hand.
import { afterAll, beforeAll, describe, test } from "vitest";
import { connect, Mutex, Session, SessionClosedError } from "../../../src/index.js";
import { type EtcdCluster, startEtcd } from "../../support/etcd/etcd.js";
import { startGrpcProxy } from "../../support/proxies/grpc-proxy.js";
import { leasesOf, placesOf } from "../../support/clients/server-view.js";
import { reasonOf } from "../../support/fixtures/two-sessions.js";
import { ROOT, startWithUsers, WORKER, type UserEtcd } from "../../support/fixtures/users.js";

const TTL_SECONDS = 4;
const TTL_MS = TTL_SECONDS * 1000;
/** A lease that is renewed does not end during a test. */
const LONG_SECONDS = 600;

let etcd: EtcdCluster;
beforeAll(async () => void (etcd = await startEtcd()));
afterAll(() => etcd.stop());

/** The worker may read the keys of its jobs, but no longer write them. */
async function forbidWrites(etcd: UserEtcd): Promise<void> {
  await etcd.root("role", "grant-permission", WORKER.username, "--prefix=true", "read", "jobs/");
}

describe.concurrent("orphan(), when deletes are refused", { timeout: 60_000 }, () => {
  test("leaves behind what cannot be deleted within one TTL, and resolves", async ({ expect }) => {
    const users = await startWithUsers();
    const [workers, rivals] = [WORKER, ROOT].map((auth) => connect({ hosts: users.endpoints, auth }));
    const lock = await new Mutex(rivals!, "jobs/a").lock();
    const session = await Session.open(workers!, { ttlSeconds: TTL_SECONDS });
    const waiting = reasonOf(new Mutex(session, "jobs/a").lock());
    await expect.poll(() => users.keysIn("jobs/a")).toHaveLength(2);
    await forbidWrites(users);

    const start = performance.now();
    const reason = await reasonOf(session.orphan());

    expect(performance.now() - start).toBeLessThan(3 * TTL_MS);
    expect(await waiting).toBeInstanceOf(SessionClosedError);
    // etcd 3.6 does not renew the lease of a key that may not be written: the lease is lost then.
    if (reason !== undefined) expect(reason).toMatchObject({ code: "SESSION_LOST" });
    expect(session.state).toBe(reason === undefined ? "closed" : "lost");
    // No longer renewed: the place is deleted with its lease.
    await expect.poll(() => users.keysIn("jobs/a"), { timeout: 20_000 }).toEqual([lock.key]);
    await Promise.all([rivals!.close({ drainMs: 0 }), workers!.close({ drainMs: 0 })]);
    await users.stop();
  });

  test.for(["session", "cluster"])(
    "is ended by close() of its %s, which revokes",
    async (what, { expect }) => {
      await using proxy = await startGrpcProxy({ port: etcd.member.clientPort });
      const cluster = connect({ hosts: proxy.endpoint });
      const session = await Session.open(cluster, { ttlSeconds: LONG_SECONDS });
      const join = proxy.rule({ path: "/etcdserverpb.KV/Txn", act: "hold", times: 1 });
      const waiting = reasonOf(new Mutex(session, `closed/${what}`).lock());
      await join.hit();

      const orphaned = reasonOf(session.orphan());
      await (what === "session" ? session : cluster).close({ drainMs: 0 });

      expect(await orphaned).toBeInstanceOf(SessionClosedError);
      expect(await waiting).toBeInstanceOf(SessionClosedError);
      expect(await leasesOf(etcd.member)).not.toContain(session.leaseId);
      join.release();
      await cluster.close();
    },
  );
});

describe.concurrent("close({ drainMs: 0 })", { timeout: 60_000 }, () => {
  test("deletes the keys that somebody has put without the lease", async ({ expect }) => {
    await using cluster = connect({ hosts: etcd.endpoints });
    const [first, second] = await Promise.all(
      [1, 2].map(() => Session.open(cluster, { ttlSeconds: LONG_SECONDS })),
    );
    const lock = await new Mutex(first!, "detached").lock();
    const waiting = reasonOf(new Mutex(second!, "detached").lock());
    await expect.poll(() => placesOf(etcd.member, "detached")).toHaveLength(2);
    for (const { key } of await placesOf(etcd.member, "detached")) await etcd.etcdctl(["put", key, "mine"]);
    expect(lock.held).toBe(true);

    await Promise.all([first, second].map((session) => session!.close({ drainMs: 0 })));

    expect(await placesOf(etcd.member, "detached")).toEqual([]);
    expect(await waiting).toBeInstanceOf(SessionClosedError);
  });

  test("never deletes a later key of the same name", async ({ expect }) => {
    await using cluster = connect({ hosts: etcd.endpoints });
    const session = await Session.open(cluster, { ttlSeconds: LONG_SECONDS });
    const lock = await new Mutex(session, "replaced").lock();
    // In one transaction: the session has received no event of it when it closes.
    const put = { requestPut: { key: Buffer.from(lock.key).toString("base64"), value: "" } };
    await etcd.member.gateway("/v3/kv/deleterange", { key: put.requestPut.key });
    await etcd.member.gateway("/v3/kv/put", put.requestPut);

    await session.close({ drainMs: 0 });

    expect((await placesOf(etcd.member, "replaced")).map(({ key }) => key)).toEqual([lock.key]);
  });

  test("frees what may still be deleted when etcd refuses to revoke the lease", async ({ expect }) => {
    const users = await startWithUsers();
    await users.root("role", "grant-permission", WORKER.username, "--prefix=true", "readwrite", "tasks/");
    const cluster = connect({ hosts: users.endpoints, auth: WORKER });
    const session = await Session.open(cluster, { ttlSeconds: TTL_SECONDS });
    const names = ["jobs/a", "tasks/a", "tasks/b"];
    await Promise.all(names.map((name) => new Mutex(session, name).lock()));
    await forbidWrites(users);

    await session.close({ drainMs: 0 });

    expect(await users.keysUnder("tasks/")).toEqual([]);
    expect(await users.keysUnder("jobs/")).toHaveLength(1);
    await expect.poll(() => users.keysUnder("jobs/"), { timeout: 4 * TTL_MS }).toEqual([]);
    await cluster.close({ drainMs: 0 });
    await users.stop();
  });

  test("frees all names at once though another user's key is on the lease", async ({ expect }) => {
    const users = await startWithUsers();
    const cluster = connect({ hosts: users.endpoints, auth: WORKER });
    const session = await Session.open(cluster, { ttlSeconds: LONG_SECONDS });
    await Promise.all(["jobs/a", "jobs/b"].map((name) => new Mutex(session, name).lock()));
    await users.root("put", "other/x", "", `--lease=${session.leaseId.toString(16)}`);

    await session.close({ drainMs: 0 });

    expect(await users.keysUnder("jobs/")).toEqual([]);
    await cluster.close({ drainMs: 0 });
    await users.stop();
  });
});
