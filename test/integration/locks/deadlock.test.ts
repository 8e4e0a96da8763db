import { once } from "node:events";
import { setImmediate as tick } from "node:timers/promises";
import { afterAll, beforeAll, describe, expect, test } from "vitest";
import {
  type Cluster,
  connect,
  DeadlockError,
  type Lock,
  Mutex,
  RwLock,
  Semaphore,
  Session,
} from "../../../src/index.js";
import { type EtcdCluster, startEtcd } from "../../support/etcd/etcd.js";
import { placesOf } from "../../support/clients/server-view.js";

let etcd: EtcdCluster;
let cluster: Cluster;
let session: Session;

beforeAll(async () => {
  etcd = await startEtcd();
  cluster = connect({ hosts: etcd.endpoints });
  session = await Session.open(cluster, { ttlSeconds: 10 });
}, 60_000);
afterAll(async () => {
  await cluster.close({ drainMs: 0 });
  await etcd.stop();
});

const places = (name: string) => placesOf(etcd.member, name);
const mutex = (name: string, source: Cluster | Session = session) => new Mutex(source, name);
const reasonOf = (promise: Promise<unknown>) =>
  promise.then(() => undefined).catch((reason: unknown) => reason);
/** A wait that ends within a test only if it is refused or granted. */
const LIMIT = { timeoutMs: 5000 };

describe("waiting for a name inside a withLock", () => {
  test.each([
    ["of the same name", "same", "same"],
    ["of a name under it", "under/child", "under"],
    ["of a name far under it", "far/a/b/c", "far"],
  ])("%s is refused at once, by lock and by withLock", async (_, held, wanted) => {
    await mutex(held).withLock(async () => {
      const before = await etcd.member.status();

      const reasons = [
        await reasonOf(mutex(wanted).lock(LIMIT)),
        await reasonOf(mutex(wanted).withLock(() => 1, LIMIT)),
      ];

      for (const reason of reasons) {
        expect(reason).toBeInstanceOf(DeadlockError);
        expect(reason).toMatchObject({ code: "DEADLOCK", lockName: wanted });
        expect((reason as Error).message).toContain(`"${held}"`);
        expect((reason as Error).message.includes("reentrant: true")).toBe(held === wanted);
      }
      expect((await etcd.member.status()).revision).toBe(before.revision);
    });
  });

  test("is refused whichever session of the cluster would wait, and through any number of awaits", async () => {
    const name = "sessions";

    await mutex(name, cluster).withLock(async () => {
      await tick();
      await Promise.all([
        mutex("another").withLock(async () => {
          expect(await reasonOf(mutex(name, session).lock(LIMIT))).toBeInstanceOf(DeadlockError);
          expect(await reasonOf(mutex(name, await Session.open(cluster)).lock(LIMIT))).toBeInstanceOf(
            DeadlockError,
          );
        }),
      ]);
    });
  });

  test.each([
    ["that it is under", "parent", "parent/child"],
    ["that only begins alike", "pre", "prefix"],
    ["that has nothing to do with it", "this", "that"],
  ])("%s is granted", async (_, held, wanted) => {
    const value = await mutex(held).withLock(() => mutex(wanted).withLock((lock) => lock.held, LIMIT));

    expect(value).toBe(true);
  });

  test("is refused without the advice to enter again where others may hold at the same time", async () => {
    const inside = () => reasonOf(mutex("beside").lock(LIMIT));

    const reasons = [
      await new RwLock(session, "beside").withReadLock(inside),
      await new Semaphore(session, "beside", 2).withPermit(inside),
    ];

    for (const reason of reasons) {
      expect(reason).toBeInstanceOf(DeadlockError);
      expect((reason as Error).message).not.toContain("reentrant");
    }
  });

  test("of the same name in another cluster is granted", async () => {
    await using other = connect({ hosts: etcd.endpoints });
    const name = "clusters";

    // In fact both are one etcd, so this is a plain wait, which ends with its time limit.
    const reason = await mutex(name).withLock(() => reasonOf(mutex(name, other).lock({ timeoutMs: 1000 })));

    expect(reason).toMatchObject({ code: "LOCK_TIMEOUT" });
  });

  test("is nothing that tryLock does: it gives undefined", async () => {
    const lock = await mutex("tried").withLock(() => mutex("tried").tryLock());

    expect(lock).toBeUndefined();
  });
});

describe("a context in which a name was held", () => {
  test("may wait for it again when the work has ended", async () => {
    const name = "ended";
    let later: Promise<Lock> | undefined;

    await mutex(name).withLock(() => {
      later = tick()
        .then(tick)
        .then(() => places(name))
        .then(() => mutex(name).lock(LIMIT));
    });
    const lock = await later!;

    expect(lock.held).toBe(true);
    await lock.release();
  });

  test("may wait for it again when the hold was lost", async () => {
    const name = "lost";

    const reason = await reasonOf(
      mutex(name).withLock(async (lock) => {
        await etcd.etcdctl(["del", lock.key]);
        await reasonOf(lock.release());
        const next = await mutex(name).lock(LIMIT);
        expect(next.fence).toBeGreaterThan(lock.fence);
        await next.release();
      }),
    );

    expect(reason).toMatchObject({ code: "LOCK_LOST", lockName: name });
  });

  test("is not tracked for a handle from lock(), which may be given away", async () => {
    const name = "by-hand";
    const lock = await mutex(name).lock();
    const waiting = mutex(name).lock(LIMIT);
    await expect.poll(() => places(name)).toHaveLength(2);

    await lock.release();

    await (await waiting).release();
  });

  test("does not extend to the caller's context", async () => {
    const name = "caller";

    const inside = mutex(name).withLock(() => tick());
    const lock = await mutex(name).lock(LIMIT);

    await Promise.all([inside, lock.release()]);
  });
});

describe("reentrant: true", () => {
  const AGAIN = { reentrant: true };

  test("does not enter with a reader's hold or a permit, which others have at the same time", async () => {
    const inside = () => reasonOf(mutex("shared").withLock(() => 1, AGAIN));

    expect(await new RwLock(session, "shared").withReadLock(inside)).toBeInstanceOf(DeadlockError);
    expect(await new Semaphore(session, "shared", 2).withPermit(inside)).toBeInstanceOf(DeadlockError);
    expect(await new RwLock(session, "shared").withWriteLock(inside)).toBeUndefined();
  });

  test("does not enter with a writer that has become a reader, beside which others read", async () => {
    const inside = () => reasonOf(mutex("downgraded").withLock(() => 1, AGAIN));

    const reason = await new RwLock(session, "downgraded").withWriteLock(async (writer) => {
      await writer.downgrade();
      return inside();
    });

    expect(reason).toBeInstanceOf(DeadlockError);
    expect((reason as Error).message).not.toContain("reentrant");
  });

  test("enters again with the very lock that is held, and writes nothing", async () => {
    const name = "again";

    const value = await mutex(name).withLock(async (outer) => {
      const before = await etcd.member.status();
      const deep = await mutex(name, cluster).withLock(
        (inner) => mutex(name).withLock((innermost) => [inner === outer, innermost === outer], AGAIN),
        AGAIN,
      );
      expect((await etcd.member.status()).revision).toBe(before.revision);
      return deep;
    });

    expect(value).toEqual([true, true]);
    expect(await places(name)).toEqual([]);
  });

  test("takes the lock when the context does not hold it, and is refused for a name under it", async () => {
    const name = "first";

    const value = await mutex(`${name}/child`).withLock(
      () => reasonOf(mutex(name).withLock(() => 1, AGAIN)),
      AGAIN,
    );

    expect(value).toBeInstanceOf(DeadlockError);
  });

  test("lets the branches of a Promise.all run together under one lock", async () => {
    const name = "branches";
    let inside = 0;
    let most = 0;
    const branch = () =>
      mutex(name).withLock(async () => {
        most = Math.max(most, ++inside);
        await tick();
        inside--;
      }, AGAIN);

    await mutex(name).withLock(() => Promise.all([branch(), branch(), branch()]));

    expect(most).toBe(3);
  });

  test("releases once, when the last work inside has ended", async () => {
    const name = "last";
    let end = () => {};
    let inner: Promise<unknown> | undefined;
    const outer = mutex(name).withLock((lock) => {
      inner = mutex(name).withLock(() => new Promise<void>((resolve) => (end = resolve)), AGAIN);
      return lock;
    });
    await expect.poll(() => places(name)).toHaveLength(1);
    const waiting = mutex(name).lock(LIMIT);
    await expect.poll(() => places(name)).toHaveLength(2);

    end();
    await inner;
    const lock = await outer;
    const next = await waiting;

    expect(lock.signal.reason).toMatchObject({ code: "LOCK_RELEASED" });
    expect(next.fence).toBeGreaterThan(lock.fence);
    await next.release();
  });

  test("tells each work its own error, and the loss to one that ended well", async () => {
    const name = "errors";
    const failure = new Error("inner");
    const reasons: unknown[] = [];

    const outer = await reasonOf(
      mutex(name).withLock(async (lock) => {
        reasons.push(await reasonOf(mutex(name).withLock(() => Promise.reject(failure), AGAIN)));
        const lost = mutex(name).withLock(async () => {
          await etcd.etcdctl(["del", lock.key]);
          await once(lock.signal, "abort");
        }, AGAIN);
        reasons.push(await reasonOf(lost));
      }),
    );

    expect(reasons).toEqual([failure, expect.objectContaining({ code: "LOCK_LOST" })]);
    expect(outer).toMatchObject({ code: "LOCK_LOST", loss: "deleted" });
  });

  test("is no error when the lock was released early inside", async () => {
    const value = await mutex("early").withLock(async (lock) => {
      return mutex("early").withLock(async () => {
        await lock.release();
        return "early";
      }, AGAIN);
    });

    expect(value).toBe("early");
  });
});
