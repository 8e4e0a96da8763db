import { setImmediate as tick } from "node:timers/promises";
import { afterAll, beforeAll, describe, expect, onTestFinished, test } from "vitest";
import { type Cluster, connect, LockLostError, type Lock, Mutex, Session } from "../../../src/index.js";
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
  await cluster.close();
  await etcd.stop();
});

const places = (name: string) => placesOf(etcd.member, name);

async function etcdctl(...args: string[]): Promise<void> {
  const { code, stderr } = await etcd.etcdctl(args);
  if (code !== 0) throw new Error(stderr);
}

type Work = (lock: Lock) => Promise<unknown>;
type Form = (mutex: Mutex, work: Work) => Promise<unknown>;

const withLock: Form = (mutex, work) => mutex.withLock(work);
const awaitUsing: Form = async (mutex, work) => {
  await using lock = await mutex.lock();
  return await work(lock);
};
const tryFinally: Form = async (mutex, work) => {
  const lock = await mutex.lock();
  try {
    return await work(lock);
  } finally {
    await lock.release();
  }
};
const FORMS = [
  ["withLock", withLock],
  ["await using", awaitUsing],
  ["try and finally", tryFinally],
] as const;

const FAILURE = new Error("the work failed");
const succeed: Work = () => Promise.resolve("done");
const fail: Work = () => Promise.reject(FAILURE);
/** The key is deleted before `work` continues. */
const losing =
  (work: Work): Work =>
  async (lock) => {
    await etcdctl("del", lock.key);
    return work(lock);
  };
const lostAs = (name: string) => ({ code: "LOCK_LOST", loss: "deleted", lockName: name });

describe.each(FORMS)("work in %s", (form, run) => {
  const name = (what: string) => `${form.replaceAll(" ", "-")}/${what}`;

  test("that ends well gives its value, and the key is gone", async () => {
    const mutex = new Mutex(session, name("well"));
    let during: unknown[] = [];

    const value = await run(mutex, async (lock) => {
      during = await places(mutex.name);
      return succeed(lock);
    });

    expect(value).toBe("done");
    expect(during).toHaveLength(1);
    expect(await places(mutex.name)).toEqual([]);
  });

  test("that fails rejects with that very error, and the key is gone", async () => {
    const mutex = new Mutex(session, name("fails"));

    await expect(run(mutex, fail)).rejects.toBe(FAILURE);

    expect(await places(mutex.name)).toEqual([]);
  });

  test("that ends well after the lock was lost rejects with the loss", async () => {
    const mutex = new Mutex(session, name("well-lost"));

    const error = await run(mutex, losing(succeed)).catch((reason: unknown) => reason);

    expect(error).toBeInstanceOf(LockLostError);
    expect(error).toMatchObject(lostAs(mutex.name));
  });

  test("keeps the lock from the next one until it has ended, well or not", async () => {
    const mutex = new Mutex(session, name("order"));
    const order: string[] = [];

    const first = run(mutex, async () => {
      await tick();
      order.push("first");
      throw FAILURE;
    }).catch(() => undefined);
    const second = run(mutex, () => Promise.resolve(order.push("second")));
    await Promise.all([first, second]);

    expect(order).toEqual(["first", "second"]);
  });
});

describe("work that fails after the lock was lost", () => {
  test("is told by its own error in withLock", async () => {
    await expect(withLock(new Mutex(session, "both/with-lock"), losing(fail))).rejects.toBe(FAILURE);
  });

  test("is told by a SuppressedError with both in await using", async () => {
    const error = await awaitUsing(new Mutex(session, "both/await-using"), losing(fail)).catch(
      (reason: unknown) => reason,
    );

    expect(error).toMatchObject({ name: "SuppressedError", error: lostAs("both/await-using") });
    expect((error as { suppressed: unknown }).suppressed).toBe(FAILURE);
  });

  test("is told by the loss in try and finally, as JavaScript does with an error in finally", async () => {
    await expect(tryFinally(new Mutex(session, "both/try-finally"), losing(fail))).rejects.toMatchObject(
      lostAs("both/try-finally"),
    );
  });
});

describe("release", () => {
  test("is done once, whoever calls it and how often", async () => {
    const mutex = new Mutex(session, "release/often");
    const lock = await mutex.lock();
    const before = await etcd.member.status();

    await Promise.all([lock.release(), lock.release(), lock[Symbol.asyncDispose]()]);
    await lock.release();

    expect(lock.signal.reason).toMatchObject({ code: "LOCK_RELEASED", lockName: mutex.name });
    expect((await etcd.member.status()).revision).toBe(before.revision + 1n);
  });

  test("that nobody awaits makes no unhandled rejection, though the lock was lost", async () => {
    const unhandled: unknown[] = [];
    const note = (reason: unknown) => void unhandled.push(reason);
    process.on("unhandledRejection", note);
    onTestFinished(() => void process.off("unhandledRejection", note));
    const lock = await new Mutex(session, "release/unawaited").lock();
    await etcdctl("del", lock.key);

    void lock.release();
    void lock[Symbol.asyncDispose]().catch(() => undefined);
    await expect(lock.release()).rejects.toBeInstanceOf(LockLostError);
    await tick();

    expect(unhandled).toEqual([]);
  });

  test("never deletes a key that somebody else has put in its place", async () => {
    const lock = await new Mutex(session, "release/guarded").lock();
    await etcdctl("del", lock.key);
    await etcdctl("put", lock.key, "somebody else's");

    await expect(lock.release()).rejects.toMatchObject(lostAs("release/guarded"));

    expect((await places("release/guarded")).map(({ key }) => key)).toEqual([lock.key]);
    await etcdctl("del", lock.key);
  });

  test("of work that released by itself is no error", async () => {
    const mutex = new Mutex(session, "release/early");

    const value = await mutex.withLock(async (lock) => {
      await lock.release();
      return "early";
    });

    expect(value).toBe("early");
  });
});
