// The requests of readers, writers and permits, as etcd itself counts them. etcd counts a read of several ranges as a
// transaction.
import { describe, expect, test } from "vitest";
import { connect, type Hold, RwLock, Semaphore, Session } from "../../../src/index.js";
import { metered, times } from "../../support/fixtures/metered.js";
import { meter, type Spent } from "../../support/fixtures/spent.js";

const ROUNDS = 50;

const at = metered();

const session = () => at.session();

describe("with nobody in the way it costs one transaction to take, and one to give back:", () => {
  test.each([
    ["a read lock", (source: Session, name: string) => new RwLock(source, name).readLock()],
    ["a write lock", (source: Session, name: string) => new RwLock(source, name).writeLock()],
    ["a permit", (source: Session, name: string) => new Semaphore(source, name, 3).acquire()],
  ])("%s", async (what, take) => {
    const own = await session();
    await (await take(own, what)).release();

    const spent = await meter(at.etcd.member);
    for (let n = 0; n < ROUNDS; n++) await (await take(own, what)).release();

    expect(await spent.read()).toEqual(times(ROUNDS, { Txn: 2, revisions: 2 }));
  });

  test("a read lock beside other readers, and a permit beside others, of the same session too", async () => {
    const [own, other] = [await session(), await session()];
    const sharing = [own, other].flatMap((source) => [
      () => new RwLock(source, "beside/readers").readLock(),
      () => new Semaphore(source, "beside/permits", 8).acquire(),
    ]);
    const held: Hold[] = [];
    for (const take of sharing) held.push(await take());

    const spent = await meter(at.etcd.member);
    for (const take of sharing) await (await take()).release();

    expect(await spent.read()).toEqual(times(sharing.length, { Txn: 2, revisions: 2 }));
    await Promise.all(held.map((hold) => hold.release()));
  });
});

describe("to be refused writes nothing, and costs one request:", () => {
  test.each([
    ["tryReadLock", { Txn: 1 }, (source: Session, name: string) => new RwLock(source, name).tryReadLock()],
    ["tryWriteLock", { Txn: 1 }, (source: Session, name: string) => new RwLock(source, name).tryWriteLock()],
    [
      "tryAcquire",
      { Range: 1 },
      (source: Session, name: string) => new Semaphore(source, name, 3).tryAcquire(),
    ],
  ])("%s", async (name, cost, attempt) => {
    const own = await session();
    // Another client's place without a limit: one of this session's locks would start to watch its key after a second.
    await at.etcd.etcdctl(["put", `${name}/1`, "held"]);

    const spent = await meter(at.etcd.member);
    for (let n = 0; n < ROUNDS; n++) expect(await attempt(own, name)).toBeUndefined();

    expect(await spent.read()).toEqual(times(ROUNDS, cost));
  });
});

describe("a crowd of readers of one session behind a writer of another one", () => {
  test("costs one transaction and one revision each, and two watches and two reads for all of them", async () => {
    // Watches that it keeps for reuse would be cancelled while a later test counts.
    await using cluster = connect({ hosts: at.etcd.endpoints });
    const [own, other] = [await at.session(cluster), await session()];
    const before = await meter(at.etcd.member);
    const writer = await new RwLock(other, "crowd").writeLock();
    // A hold watches its key after a second, and then reads it.
    await before.lap({ Txn: 1, Watch: 1, Range: 1, revisions: 1 });
    const readers = new RwLock(own, "crowd");

    const spent = await meter(at.etcd.member);
    const waiting = Array.from({ length: 20 }, () => readers.readLock());
    // 20 joins, a watch of their keys and the writer's, one of the puts of the writer's, which may become a reader, and a read of the queue.
    const joined = await spent.lap({ Txn: 21, Watch: 2, revisions: 20 });
    expect(joined).toMatchObject({ Watch: 2, revisions: 20 });

    await writer.release();
    const held = await Promise.all(waiting);
    // The release, and one read of all 20 keys, which shows that the release was all that was deleted.
    const granted = await spent.lap({ Txn: 1, Range: 1, revisions: 1 });
    expect(granted).toMatchObject({ Range: 1, revisions: 1 });
    // The others' joins arrive while the first one reads: it reads again, four times at most.
    expect((joined["Txn"] ?? 0) + (granted["Txn"] ?? 0)).toBeOneOf([22, 23, 24, 25, 26]);
    await Promise.all(held.map((hold) => hold.release()));
  });

  test("of the writer's own session is granted by the release alone", async () => {
    const own = new RwLock(await session(), "crowd/own");
    const writer = await own.writeLock();
    const spent = await meter(at.etcd.member);
    const waiting = Array.from({ length: 20 }, () => own.readLock());
    expect(await spent.lap({ Txn: 20, revisions: 20 })).toEqual({ Txn: 20, revisions: 20 });

    await writer.release();
    const held = await Promise.all(waiting);

    expect(await spent.read()).toEqual({ Txn: 1, revisions: 1 });
    await Promise.all(held.map((hold) => hold.release()));
  });
});

describe("a semaphore in use", () => {
  test("costs a hand-over two transactions and a few reads, however many wait", async () => {
    const [permits, waiters, rounds] = [4, 24, 6];
    const sessions = await Promise.all(Array.from({ length: permits + waiters }, session));
    const semaphores = sessions.map((source) => new Semaphore(source, "hand-over", permits));
    const joins = await meter(at.etcd.member);
    const held = await Promise.all(semaphores.slice(0, permits).map((each) => each.acquire()));
    // A hold watches its key after a second, and then reads it.
    const watched = await joins.lap({ Watch: permits, Range: permits });
    expect(watched).toMatchObject({ Watch: permits, Range: permits });
    const waiting: Promise<Hold>[] = [];
    const costs: [expected: Spent, spent: Spent][] = [];
    for (const each of semaphores.slice(permits)) {
      waiting.push(each.acquire());
      // The join, a watch on its own key and one on the predecessor, and a read. The last holder's key is watched already.
      const expected = { Txn: 1, Watch: waiting.length === 1 ? 1 : 2, revisions: 1 };
      costs.push([expected, await joins.lap({ ...expected, Range: 1 })]);
    }

    const spent = await meter(at.etcd.member);
    for (let n = 0; n < rounds; n++) {
      await held.shift()!.release();
      held.push(await waiting.shift()!);
      // Delete and put, after which the next waiter reads the current holders.
      const cost = await spent.lap({ Txn: 2, Range: 1, revisions: 2 });
      costs.push([{ Txn: 2, revisions: 2 }, cost]);
    }
    const rest = Promise.allSettled(waiting);
    await Promise.all(sessions.map((each) => each.close({ drainMs: 0 })));
    await rest;

    for (const [expected, cost] of costs) {
      expect(cost).toMatchObject(expected);
      // After a write at the moment of its watch's creation, the next waiter reads again up to four times.
      expect(cost["Range"]).toBeLessThan((waiters - rounds) / 2);
    }
  });
});
