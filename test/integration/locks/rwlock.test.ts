import { describe, expect, test } from "vitest";
import { type Hold, Mutex, RwLock, type Session } from "../../../src/index.js";
import { settledYet } from "../../support/clients/session-client.js";
import { reasonOf, twoSessions } from "../../support/fixtures/two-sessions.js";

const two = twoSessions(60);
const { places, queued } = two;

/** Locks of the same name from both sessions. */
const locksOf = (name: string) => [new RwLock(two.holder, name), new RwLock(two.session, name)] as const;
const releaseAll = (holds: readonly Hold[]) => Promise.all(holds.map((hold) => hold.release()));

/** Records the order in which promises settle, by name. */
function recorder() {
  const order: string[] = [];
  const record = <T>(name: string, promise: Promise<T>): Promise<T> => {
    void promise.then(() => order.push(name)).catch(() => undefined);
    return promise;
  };
  return { order, record };
}

describe("readers", () => {
  test("hold at the same time, of one session and of several", async () => {
    const [a, b] = locksOf("share");

    const holds = await Promise.all([a.readLock(), b.readLock(), a.readLock()]);
    holds.push((await b.tryReadLock())!);

    expect(holds.map(({ held }) => held)).toEqual([true, true, true, true]);
    expect(await a.tryWriteLock()).toBeUndefined();
    const id = (session: Session) => session.leaseId.toString(16);
    expect((await places("share")).map(({ key }) => key).sort()).toEqual(
      [two.holder, two.session]
        .flatMap((session) => [`share/read/${id(session)}`, `share/read/${id(session)}-2`])
        .sort(),
    );
    await releaseAll(holds);
    expect(await places("share")).toEqual([]);
  });

  test("keep a writer out to the last of them, whichever ends first", async () => {
    const [a, b] = locksOf("last");
    const readers = await Promise.all([1, 2, 3].map(() => a.readLock()));
    const writing = b.writeLock();
    const turn = settledYet(writing);
    await queued("last", 4);

    // From the middle: neither the first nor the last key is deleted.
    for (const n of [1, 0]) {
      await readers[n]!.release();
      await new Mutex(two.session, "settled").withLock(() => undefined);
      expect(turn()).toBe(false);
    }
    await readers[2]!.release();

    await (await writing).release();
  });

  test("who come behind a waiting writer wait for it, so that it is not kept out", async () => {
    const [a, b] = locksOf("fair");
    const { order, record } = recorder();
    const first = await a.readLock();
    const writing = record("writer", b.writeLock());
    await queued("fair", 2);
    const late = [record("late", a.readLock()), record("later", b.readLock())];
    await queued("fair", 4);

    expect(order).toEqual([]);
    expect(await a.tryReadLock()).toBeUndefined();
    await first.release();
    const writer = await writing;
    expect(order).toEqual(["writer"]);
    await writer.release();

    await releaseAll(await Promise.all(late));
    expect(await places("fair")).toEqual([]);
  });

  test("of one session that wait for the same writer are all granted by its end, and no others", async () => {
    const name = "together";
    const [a, b] = locksOf(name);
    const writer = await a.writeLock();
    const waiting = Array.from({ length: 20 }, () => b.readLock());
    await queued(name, 21);
    const next = b.writeLock();
    await queued(name, 22);
    let nextHeld = false;
    void next.then(() => (nextHeld = true));

    await writer.release();
    const readers = await Promise.all(waiting);

    expect(readers.every(({ held }) => held)).toBe(true);
    expect(nextHeld).toBe(false);
    await releaseAll(readers.slice(1));
    expect(nextHeld).toBe(false);
    await readers[0]!.release();
    await (await next).release();
  });

  test("of the writer's own session are granted by its release", async () => {
    const name = "own";
    const [a, b] = locksOf(name);
    const writer = await a.writeLock();
    const before = Array.from({ length: 5 }, () => a.readLock());
    await queued(name, 6);
    const other = b.writeLock();
    await queued(name, 7);
    const behind = a.readLock();
    await queued(name, 8);
    let behindHeld = false;
    void behind.then(() => (behindHeld = true));

    await writer.release();
    const readers = await Promise.all(before);
    expect(behindHeld).toBe(false);
    await releaseAll(readers);
    await (await other).release();

    await (await behind).release();
    expect(await places(name)).toEqual([]);
  });

  test("of one session with another one's writer between them have their turns before and after it", async () => {
    const name = "between";
    const [a, b] = locksOf(name);
    const first = await a.writeLock();
    const { order, record } = recorder();
    const early = record("early", b.readLock());
    await queued(name, 2);
    const writing = record("writer", a.writeLock());
    await queued(name, 3);
    const late = record("late", b.readLock());
    await queued(name, 4);

    await first.release();
    const reader = await early;
    await reader.release();
    const writer = await writing;
    expect(order).toEqual(["early", "writer"]);
    await writer.release();

    await (await late).release();
  });

  test("go on waiting together when the one of them that asks for all gives up", async () => {
    const name = "leader-leaves";
    const [a, b] = locksOf(name);
    const writer = await a.writeLock();
    const caller = new AbortController();
    const first = reasonOf(b.readLock({ signal: caller.signal }));
    await queued(name, 2);
    const others = Array.from({ length: 3 }, () => b.readLock());
    await queued(name, 5);

    caller.abort("enough");
    expect(await first).toBe("enough");
    await queued(name, 4);
    await writer.release();

    await releaseAll(await Promise.all(others));
  });

  test("whose key is deleted while they wait beside another one join anew, or are told that they lost it", async () => {
    const name = "beside-deleted";
    const [a, b] = locksOf(name);
    const writer = await a.writeLock();
    const readers = [b.readLock(), b.readLock()];
    await queued(name, 3);
    const [, , beside] = await places(name);

    await two.etcd.etcdctl(["del", beside!.key]);
    await writer.release();
    const [first, second] = await Promise.all(readers);

    expect(first!.held).toBe(true);
    if (second!.revision === beside!.revision) {
      await expect.poll(() => second!.signal.reason as unknown).toMatchObject({ loss: "deleted" });
    }
    await Promise.allSettled([first!.release(), second!.release()]);
    await queued(name, 0);
  });
});

describe("writers", () => {
  test("are alone, and served in order with the readers", async () => {
    const name = "order";
    const [a, b] = locksOf(name);
    const { order, record } = recorder();
    const use = async (what: string, hold: Promise<Hold>) => {
      const held = await record(what, hold);
      await held.release();
    };
    const first = await a.writeLock();
    const uses: Promise<void>[] = [];
    const calls = [
      ["w1", () => b.writeLock()],
      ["r1", () => a.readLock()],
      ["r2", () => b.readLock()],
      ["w2", () => a.writeLock()],
      ["r3", () => b.readLock()],
    ] as const;
    for (const [what, call] of calls) {
      uses.push(use(what, call()));
      await queued(name, uses.length + 1);
    }

    await first.release();
    await Promise.all(uses);

    expect([order[0], order[3], order[4]]).toEqual(["w1", "w2", "r3"]);
    expect(order.slice(1, 3).sort()).toEqual(["r1", "r2"]);
  });
});

describe("withReadLock and withWriteLock", () => {
  test.each([
    ["read", "write"],
    ["write", "read"],
  ] as const)("refuse, inside a %s lock, to wait for a %s lock of the same name", async (outer, inner) => {
    const [a, b] = locksOf(`with/${outer}/${inner}`);
    const take = (lock: RwLock) => (inner === "read" ? lock.readLock() : lock.writeLock());
    const work = async () => [await reasonOf(take(a)), await reasonOf(take(b))];

    const reasons = await (outer === "read" ? a.withReadLock(work) : a.withWriteLock(work));

    for (const reason of reasons) expect(reason).toMatchObject({ code: "DEADLOCK", lockName: a.name });
  });
});
