import { afterAll, beforeAll, describe, expect, test } from "vitest";
import { type Cluster, connect, type Lock, Mutex, Session } from "../../src/index.js";
import { type EtcdCluster, startEtcd } from "../support/etcd.js";
import { observe } from "../support/observer.js";
import { placesOf } from "../support/server-view.js";

const TTL_SECONDS = 4;

let etcd: EtcdCluster;
let cluster: Cluster;
/** Two sessions, as of two processes. */
let holder: Session;
let session: Session;

beforeAll(async () => {
  etcd = await startEtcd();
  cluster = connect({ hosts: etcd.endpoints });
  const options = { ttlSeconds: TTL_SECONDS };
  [holder, session] = await Promise.all([
    Session.open(cluster, { ...options, owner: "the holder" }),
    Session.open(cluster, options),
  ]);
}, 60_000);
afterAll(async () => {
  await cluster.close();
  await etcd.stop();
});

const places = (name: string) => placesOf(etcd.member, name);
const reasonOf = (promise: Promise<unknown>) =>
  promise.then(() => undefined).catch((reason: unknown) => reason);

/** Waits until etcd has so many places under the name. */
const queued = (name: string, count: number) => expect.poll(() => places(name)).toHaveLength(count);

describe("a waiter whose own key was deleted", () => {
  test("joins anew, behind those that came meanwhile, and is served", async () => {
    const name = "rejoin";
    using server = await observe(etcd.member.endpoint, `${name}/`);
    const lock = await new Mutex(holder, name).lock();
    const served: string[] = [];
    const victim = new Mutex(session, name).withLock((mine) => (served.push("victim"), mine.fence));
    await queued(name, 2);
    const [, place] = await places(name);
    const other = new Mutex(holder, name).withLock(() => void served.push("other"));
    await queued(name, 3);

    await etcd.etcdctl(["del", place!.key]);
    await server.deleted(place!.key, place!.revision);
    const again = await server.first(
      ({ type, key, create }) => type === "PUT" && key === place!.key && create > place!.revision,
    );
    await lock.release();
    await Promise.all([victim, other]);

    expect(served).toEqual(["other", "victim"]);
    expect(await victim).toBe(again.create);
    expect(await places(name)).toEqual([]);
  });

  test("is told the session's end when it went with the lease", async () => {
    const name = "rejoin/revoked";
    const own = await Session.open(cluster, { ttlSeconds: TTL_SECONDS });
    const lock = await new Mutex(holder, name).lock();
    const waiting = reasonOf(new Mutex(own, name).lock());
    await queued(name, 2);

    await etcd.etcdctl(["lease", "revoke", own.leaseId.toString(16)]);
    const reason = await waiting;

    expect(reason).toBe(own.signal.reason);
    expect(own.signal.reason).toMatchObject({ code: "SESSION_LOST", loss: "revoked", leaseId: own.leaseId });
    await lock.release();
    await queued(name, 0);
  });
});

describe("tryLock", () => {
  test("gives the lock when nobody is there, and undefined, without a trace, when somebody is", async () => {
    const name = "try";
    const mutex = new Mutex(session, name);
    const lock: Lock | undefined = await mutex.tryLock();
    const before = await etcd.member.status();

    expect(lock?.held).toBe(true);
    expect(await mutex.tryLock()).toBeUndefined();
    expect(await new Mutex(holder, name).tryLock()).toBeUndefined();

    expect((await etcd.member.status()).revision).toBe(before.revision);
    await lock!.release();
  });

  test("takes what this session has just given back, without waiting for the release", async () => {
    const mutex = new Mutex(session, "try/again");
    for (let i = 0; i < 10; i++) {
      const lock = await mutex.tryLock();
      expect(lock?.held).toBe(true);
      void lock!.release();
    }
    await queued("try/again", 0);
  });
});

describe("a key that this session would use", () => {
  test("is somebody else's when it has another value, lease or not: the next number queues behind it", async () => {
    const name = "stranger";
    const id = session.leaseId.toString(16);
    await etcd.etcdctl(["put", `--lease=${id}`, `${name}/${id}`, "another process with this lease"]);
    let lock: Lock | undefined;
    const waiting = new Mutex(session, name).lock().then((granted) => (lock = granted));
    await queued(name, 2);

    expect(await new Mutex(session, name).tryLock()).toBeUndefined();
    expect(lock).toBeUndefined();
    await etcd.etcdctl(["del", `${name}/${id}`]);
    await waiting;

    expect(lock!.key).toBe(`${name}/${id}-2`);
    await lock!.release();
    expect(await places(name)).toEqual([]);
  });
});

describe("two mutexes of one session", () => {
  test("exclude each other, each hold with a key and a fence of its own", async () => {
    const name = "twins";
    const first = await new Mutex(session, name).lock();
    let second: Lock | undefined;
    const waiting = new Mutex(session, name).lock().then((lock) => (second = lock));

    await expect.poll(() => places(name)).toHaveLength(2);
    expect(second).toBeUndefined();
    expect(await new Mutex(session, name).tryLock()).toBeUndefined();
    await first.release();
    await waiting;

    const id = session.leaseId.toString(16);
    expect([first.key, second!.key]).toEqual([`${name}/${id}`, `${name}/${id}-2`]);
    expect(second!.fence).toBeGreaterThan(first.fence);
    await second!.release();
  });

  test("hand the lock on in the order of the calls", async () => {
    const served: number[] = [];
    const mutexes = [new Mutex(session, "order"), new Mutex(session, "order")];

    await Promise.all(
      Array.from({ length: 20 }, (_, i) => mutexes[i % 2]!.withLock(() => void served.push(i))),
    );

    expect(served).toEqual([...Array(20).keys()]);
    expect(await places("order")).toEqual([]);
  });
});
