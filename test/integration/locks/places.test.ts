import { describe, expect, test } from "vitest";
import { type Lock, Mutex, Session } from "../../../src/index.js";
import { observe } from "../../support/clients/observer.js";
import { reasonOf, twoSessions } from "../../support/fixtures/two-sessions.js";

const TTL_SECONDS = 4;

const two = twoSessions(TTL_SECONDS);
const { places, queued } = two;

describe("a waiter whose own key was deleted", () => {
  test("joins anew, behind those that came meanwhile, and is served", async () => {
    const name = "rejoin";
    using server = await observe(two.etcd.member.endpoint, `${name}/`);
    const lock = await new Mutex(two.holder, name).lock();
    const served: string[] = [];
    const victim = new Mutex(two.session, name).withLock((mine) => (served.push("victim"), mine.fence));
    await queued(name, 2);
    const [, place] = await places(name);
    const other = new Mutex(two.holder, name).withLock(() => void served.push("other"));
    await queued(name, 3);

    await two.etcd.etcdctl(["del", place!.key]);
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
    const own = await Session.open(two.cluster, { ttlSeconds: TTL_SECONDS });
    const lock = await new Mutex(two.holder, name).lock();
    const waiting = reasonOf(new Mutex(own, name).lock());
    await queued(name, 2);

    await two.etcd.etcdctl(["lease", "revoke", own.leaseId.toString(16)]);
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
    const mutex = new Mutex(two.session, name);
    const lock: Lock | undefined = await mutex.tryLock();
    const before = await two.etcd.member.status();

    expect(lock?.held).toBe(true);
    expect(await mutex.tryLock()).toBeUndefined();
    expect(await new Mutex(two.holder, name).tryLock()).toBeUndefined();

    expect((await two.etcd.member.status()).revision).toBe(before.revision);
    await lock!.release();
  });

  test("takes what this session has just given back, without waiting for the release", async () => {
    const mutex = new Mutex(two.session, "try/again");
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
    const id = two.session.leaseId.toString(16);
    await two.etcd.etcdctl(["put", `--lease=${id}`, `${name}/${id}`, "another process with this lease"]);
    let lock: Lock | undefined;
    const waiting = new Mutex(two.session, name).lock().then((granted) => (lock = granted));
    await queued(name, 2);

    expect(await new Mutex(two.session, name).tryLock()).toBeUndefined();
    expect(lock).toBeUndefined();
    await two.etcd.etcdctl(["del", `${name}/${id}`]);
    await waiting;

    expect(lock!.key).toBe(`${name}/${id}-2`);
    await lock!.release();
    expect(await places(name)).toEqual([]);
  });
});

describe("two mutexes of one session", () => {
  test("exclude each other, each hold with a key and a fence of its own", async () => {
    const name = "twins";
    const first = await new Mutex(two.session, name).lock();
    let second: Lock | undefined;
    const waiting = new Mutex(two.session, name).lock().then((lock) => (second = lock));

    await expect.poll(() => places(name)).toHaveLength(2);
    expect(second).toBeUndefined();
    expect(await new Mutex(two.session, name).tryLock()).toBeUndefined();
    await first.release();
    await waiting;

    const id = two.session.leaseId.toString(16);
    expect([first.key, second!.key]).toEqual([`${name}/${id}`, `${name}/${id}-2`]);
    expect(second!.fence).toBeGreaterThan(first.fence);
    await second!.release();
  });

  test("hand the lock on in the order of the calls", async () => {
    const served: number[] = [];
    const mutexes = [new Mutex(two.session, "order"), new Mutex(two.session, "order")];

    await Promise.all(
      Array.from({ length: 20 }, (_, i) => mutexes[i % 2]!.withLock(() => void served.push(i))),
    );

    expect(served).toEqual([...Array(20).keys()]);
    expect(await places("order")).toEqual([]);
  });
});
