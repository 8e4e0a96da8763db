// connect({ prefix }): every kind of lock, beside a cluster without a prefix on the same etcd.
import { afterAll, afterEach, beforeAll, beforeEach, describe, expect, test } from "vitest";
import {
  type Cluster,
  ClusterLockManager,
  connect,
  DeadlockError,
  Election,
  forceRelease,
  inspect,
  Mutex,
  Session,
  whileHeld,
} from "../../../src/index.js";
import { EtcdctlLock } from "../../support/clients/etcdctl-lock.js";
import { encode } from "../../support/clients/gateway-text.js";
import { type KeysAt, keysAt } from "../../support/clients/keys-at.js";
import { type EtcdCluster, startEtcd } from "../../support/etcd/etcd.js";
import { keyOf, slug, type Subject, SUBJECTS, titled } from "../../support/fixtures/subjects.js";
import { reasonOf } from "../../support/fixtures/two-sessions.js";

const PREFIX = "prod/";
const LIMIT = { timeoutMs: 20_000 };

let etcd: EtcdCluster;
let keys: KeysAt;
/** With the prefix. */
let prod: Cluster;
/** Another one with it, as of another process. */
let peer: Cluster;
/** Without a prefix. */
let plain: Cluster;
beforeAll(async () => {
  etcd = await startEtcd();
  keys = keysAt(etcd.member);
}, 60_000);
afterAll(() => etcd.stop());
beforeEach(() => {
  const session = { ttlSeconds: 10 };
  prod = connect({ hosts: etcd.endpoints, prefix: PREFIX, session });
  peer = connect({ hosts: etcd.endpoints, prefix: PREFIX, session });
  plain = connect({ hosts: etcd.endpoints, session });
});
afterEach(async () => {
  await Promise.all([prod, peer, plain].map((cluster) => cluster.close({ drainMs: 0 })));
  expect(await keys("")).toEqual([]);
});

const KEYS_IN: Partial<Record<Subject["kind"], string>> = { writer: "write/", reader: "read/" };

describe("with connect({ prefix })", () => {
  test.each(titled(SUBJECTS))(
    "%s waits, holds and is lost under complete keys, and excludes no cluster without the prefix",
    async (_, subject) => {
      const { kind, names, take, tryTake, block, release } = subject;
      const name = `suite/${slug(subject.what)}`;
      const other = await take(plain, name);
      const others = await keys("");
      const blocker = await block(peer, name);

      expect(await tryTake?.(prod, name)).toBeUndefined();
      const late = await reasonOf(take(prod, name, { timeoutMs: 2000 }));
      const contender = { name, key: keyOf(blocker), revision: blocker.revision };
      expect(late).toMatchObject({ code: "LOCK_TIMEOUT", lockName: name, ahead: 1, holder: contender });
      // Its key is deleted in the background.
      await expect.poll(() => keys(`${PREFIX}${name}/`)).toHaveLength(1);
      const waiting = take(prod, name, LIMIT);
      await expect.poll(() => keys(`${PREFIX}${name}/`)).toHaveLength(2);
      await blocker.release();
      const hold = await waiting;

      const own = (await keys("")).filter((key) => !others.includes(key));
      const lease = (await prod.session()).leaseId.toString(16);
      expect(own.map((key) => key.replace(/(?<=[0-9a-f])-\d+$/, ""))).toEqual(
        names(name).map((each) => `${PREFIX}${each}/${KEYS_IN[kind] ?? ""}${lease}`),
      );
      expect(hold).toMatchObject(kind === "all" ? { names: names(name), keys: own } : { name, key: own[0] });
      await etcd.member.gateway("/v3/kv/deleterange", { key: encode(keyOf(hold)) });
      const loss = { code: "LOCK_LOST", lockName: name, key: keyOf(hold), loss: "deleted" };
      await expect(release(hold)).rejects.toMatchObject(loss);
      await expect.poll(() => keys("")).toEqual(others);
      await release(other);
    },
  );

  test("a leader proclaims under its own key, and observers of the prefix see it", async () => {
    const election = new Election(prod, "proclaim");
    const leadership = await election.campaign("one");
    const seen: (string | undefined)[] = [];
    const observing = (async () => {
      for await (const leader of new Election(peer, "proclaim").observe()) {
        seen.push(leader && `${leader.key} ${leader.value}`);
        if (leader === undefined) return;
        if (leader.value === "one") await leadership.proclaim("two");
        else await leadership.resign();
      }
    })();
    await observing;

    expect(seen).toEqual([`${leadership.key} one`, `${leadership.key} two`, undefined]);
    expect(await new Election(plain, "proclaim").leader()).toBeUndefined();
  });

  test("an exclusive web lock is stolen under the same prefix only", async () => {
    const mine = new ClusterLockManager(prod);
    const theirs = new ClusterLockManager(plain);
    const until = (manager: ClusterLockManager) => {
      let done = () => {};
      const granted = new Promise<Promise<unknown>>((resolve) => {
        const ended = manager.request("stolen", () => {
          resolve({ ended } as never);
          return new Promise<void>((end) => (done = end));
        });
        ended.catch(() => undefined);
      });
      return { granted: granted as unknown as Promise<{ ended: Promise<unknown> }>, done: () => done() };
    };
    const [robbed, spared] = [until(mine), until(theirs)];
    const [{ ended }] = await Promise.all([robbed.granted, spared.granted]);

    await new ClusterLockManager(peer).request("stolen", { steal: true }, async () => {
      expect(await reasonOf(ended)).toMatchObject({ name: "AbortError" });
      expect((await theirs.query()).held).toHaveLength(1);
      expect((await mine.query()).held).toHaveLength(1);
    });

    spared.done();
    await Promise.all([mine.close(), theirs.close()]);
  });

  test("a hold guards a transaction of the user by whileHeld()", async () => {
    const lock = await new Mutex(prod, "guard").lock();
    const write = async () => {
      const [key, target, , revision] = whileHeld(lock);
      const compare = [
        { key: encode(key), target: target.toUpperCase(), result: "EQUAL", create_revision: revision },
      ];
      const request_put = { key: encode(lock.key), value: encode("written"), ignore_lease: true };
      const { succeeded = false } = (await etcd.member.gateway("/v3/kv/txn", {
        compare,
        success: [{ request_put }],
      })) as { succeeded?: boolean };
      return succeeded;
    };

    expect(await write()).toBe(true);
    await lock.release();
    expect(await write()).toBe(false);
  });

  test("a session is adopted with its entry, key and fence", async () => {
    const session = await Session.open(prod, { ttlSeconds: 4 });
    const lock = await new Mutex(session, "adopted").lock();
    const leaseId = await session.orphan();

    const adopted = await Session.adopt(peer, leaseId);
    const again = await new Mutex(adopted, "adopted").lock(LIMIT);

    expect(again).toMatchObject({ name: "adopted", key: lock.key, fence: lock.fence });
    await again.release();
    await adopted.close();
  });

  test("the sweep of late keys deletes those under the prefix, and spares the rest of the lease", async () => {
    const session = await Session.open(prod, { ttlSeconds: 4 });
    const lease = session.leaseId;
    const value = encode(JSON.stringify({ owner: "late", since: new Date().toISOString(), id: "late" }));
    const hex = lease.toString(16);
    const put = (key: string) =>
      etcd.member.gateway("/v3/kv/put", { key: encode(key), value, lease: lease.toString() });
    await put(`${PREFIX}stray/${hex}`);
    await put(`stray/${hex}`);

    // After a release, the session lists the keys of its lease.
    await new Mutex(session, "swept").withLock(() => undefined);

    await expect.poll(() => keys("")).toEqual([`stray/${hex}`]);
    await session.close();
  });

  test("an adopted lease keeps its entry of the name that is the prefix without the slash", async () => {
    const session = await Session.open(plain, { ttlSeconds: 4 });
    const { key } = await new Mutex(session, "prod").lock();
    const unclaimed = await new Mutex(session, "prod/unclaimed").lock();

    await using adopted = await Session.adopt(prod, await session.orphan());

    // What no call has claimed within a TTL is deleted, the oldest entry first.
    await expect.poll(() => keys(unclaimed.key), { timeout: 10_000 }).toEqual([]);
    expect(await keys("")).toEqual([key]);
    expect(adopted.state).toBe("live");
  });

  test("forceRelease() deletes a key that is no text, with the prefix and without", async () => {
    for (const cluster of [prod, plain]) {
      const prefix = cluster === prod ? PREFIX : "";
      const key = Buffer.from(`${prefix}binary/\xff`, "latin1").toString("base64");
      await etcd.member.gateway("/v3/kv/put", { key });

      const [contender] = (await inspect(cluster, "binary")).holders;

      expect(contender).toMatchObject({ name: "binary", key: `${prefix}binary/\ufffd` });
      expect(await forceRelease(cluster, contender!)).toBe(contender);
      expect(await keys("")).toEqual([]);
    }
  });

  test("reentrance, deadlock and tryLock see the locks of their own cluster only", async () => {
    const [mine, theirs] = [new Mutex(prod, "re"), new Mutex(plain, "re")];

    await mine.withLock(async () => {
      await theirs.withLock(() => undefined, LIMIT);
      await mine.withLock(() => undefined, { ...LIMIT, reentrant: true });
      expect(await reasonOf(mine.lock(LIMIT))).toBeInstanceOf(DeadlockError);
      expect(await new Mutex(peer, "re").tryLock()).toBeUndefined();
    });
  });

  test("a prefix that begins with another one has its queues among the other's names", async () => {
    await using inner = connect({ hosts: etcd.endpoints, prefix: "prod/eu/" });
    const lock = await new Mutex(inner, "jobs").lock();

    expect(await new Mutex(prod, "eu/jobs").tryLock()).toBeUndefined();
    expect(await new Mutex(plain, "prod/eu/jobs").tryLock()).toBeUndefined();
    await lock.release();
  });

  test.each(["/", "/service/locks/", "é 💥/"])("the prefix %j works", async (prefix) => {
    await using cluster = connect({ hosts: etcd.endpoints, prefix });

    await new Mutex(cluster, "jobs").withLock(async ({ key, name }) => {
      expect(name).toBe("jobs");
      expect(key.startsWith(`${prefix}jobs/`)).toBe(true);
      expect(await keys("")).toEqual([key]);
    });
  });
});

describe("`etcdctl lock prod/jobs` shares the queue of `jobs` behind the prefix prod/:", () => {
  test("leasehold waits for etcdctl", async () => {
    await using etcdctl = new EtcdctlLock(etcd, "prod/jobs");
    const theirs = await etcdctl.held;
    const mutex = new Mutex(prod, "jobs");

    expect(await mutex.tryLock()).toBeUndefined();
    const waiting = mutex.lock(LIMIT);
    await expect.poll(() => keys("prod/jobs/")).toHaveLength(2);
    await new Mutex(plain, "jobs").withLock(() => undefined, LIMIT);
    await etcdctl.release();

    const lock = await waiting;
    expect(theirs).toMatch(/^prod\/jobs\//);
    expect(lock.name).toBe("jobs");
    await lock.release();
  });

  test("etcdctl waits for leasehold", async () => {
    const lock = await new Mutex(prod, "jobs").lock();
    await using etcdctl = new EtcdctlLock(etcd, "prod/jobs");
    await expect.poll(() => keys("prod/jobs/")).toHaveLength(2);
    expect(etcdctl.holds).toBe(false);

    await lock.release();

    expect(await etcdctl.held).toMatch(/^prod\/jobs\//);
    await etcdctl.release();
  });
});
