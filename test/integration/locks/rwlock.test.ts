import { describe, expect, test } from "vitest";
import { type Hold, LockTimeoutError, Mutex, RwLock, Session } from "../../../src/index.js";
import { observe } from "../../support/clients/observer.js";
import { reasonOf, twoSessions } from "../../support/fixtures/two-sessions.js";

const TTL_SECONDS = 4;

const two = twoSessions(TTL_SECONDS);
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

    const holds = await Promise.all([a.readLock(), b.readLock(), a.readLock(), b.readLock()]);

    expect(holds.map(({ held }) => held)).toEqual([true, true, true, true]);
    const id = (session: Session) => session.leaseId.toString(16);
    expect((await places("share")).map(({ key }) => key).sort()).toEqual(
      [two.holder, two.session]
        .flatMap((session) => [`share/read/${id(session)}`, `share/read/${id(session)}-2`])
        .sort(),
    );
    await releaseAll(holds);
    expect(await places("share")).toEqual([]);
  });

  test("have no fence, not even at run time; writers have", async () => {
    const [a] = locksOf("fence");

    const reading = await a.readLock();
    expect("fence" in reading).toBe(false);
    await reading.release();
    const writing = await a.writeLock();
    expect(writing.fence).toBe(writing.revision);
    expect(writing.key).toBe(`fence/write/${two.holder.leaseId.toString(16)}`);
    await writing.release();
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

  test("and readers exclude a Mutex of the same name, and wait for it", async () => {
    const name = "with-mutex";
    const [a] = locksOf(name);
    const mutex = new Mutex(two.session, name);

    const reading = await a.readLock();
    expect(await mutex.tryLock()).toBeUndefined();
    const locking = mutex.lock();
    await queued(name, 2);
    expect(await a.tryReadLock()).toBeUndefined();
    const late = a.readLock();
    await queued(name, 3);
    await reading.release();
    const lock = await locking;
    expect(await a.tryWriteLock()).toBeUndefined();
    await lock.release();

    await (await late).release();
  });
});

describe("tryReadLock and tryWriteLock", () => {
  test("are refused, without a trace, exactly where they would have to wait", async () => {
    const name = "try";
    const [a, b] = locksOf(name);

    const reading = await a.tryReadLock();
    const second = await b.tryReadLock();
    expect([reading?.held, second?.held]).toEqual([true, true]);
    const before = (await two.etcd.member.status()).revision;
    expect(await b.tryWriteLock()).toBeUndefined();
    expect((await two.etcd.member.status()).revision).toBe(before);
    await releaseAll([reading!, second!]);

    const writing = await a.tryWriteLock();
    expect(writing?.fence).toBe(writing?.revision);
    expect(await b.tryReadLock()).toBeUndefined();
    expect(await b.tryWriteLock()).toBeUndefined();
    await writing!.release();
    await queued(name, 0);
  });
});

describe("a wait to read or to write", () => {
  test.each([
    ["read", (lock: RwLock) => lock.readLock({ timeoutMs: 1000 })],
    ["write", (lock: RwLock) => lock.writeLock({ timeoutMs: 1000 })],
  ])(
    "to %s that takes too long tells the holder and how many are ahead, and leaves no key",
    async (_, call) => {
      const name = `timeout/${_}`;
      const [a, b] = locksOf(name);
      const writer = await a.writeLock();
      const reading = a.readLock();
      await queued(name, 2);

      const reason = await reasonOf(call(b));

      expect(reason).toBeInstanceOf(LockTimeoutError);
      expect(reason).toMatchObject({
        lockName: name,
        ahead: 2,
        holder: { key: writer.key, owner: "the holder" },
      });
      await queued(name, 2);
      await writer.release();
      await (await reading).release();
    },
  );

  test("joins anew, at the end, when somebody deletes its key", async () => {
    const name = "rejoin";
    using server = await observe(two.etcd.member.endpoint, `${name}/`);
    const [a, b] = locksOf(name);
    const writer = await a.writeLock();
    const reading = b.readLock();
    await queued(name, 2);
    const [, place] = await places(name);

    await two.etcd.etcdctl(["del", place!.key]);
    await server.first(
      ({ type, key, create }) => type === "PUT" && key === place!.key && create > place!.revision,
    );
    await writer.release();

    const reader = await reading;
    expect(reader.revision).toBeGreaterThan(place!.revision);
    await reader.release();
  });

  test("ends with the session's error when its lease is lost", async () => {
    const name = "lost";
    const own = await Session.open(two.cluster, { ttlSeconds: TTL_SECONDS });
    const writer = await new RwLock(two.holder, name).writeLock();
    const waiting = [
      new RwLock(own, name).readLock(),
      new RwLock(own, name).readLock(),
      new RwLock(own, name).writeLock(),
    ];
    const reasons = Promise.all(waiting.map(reasonOf));
    await queued(name, 4);

    await two.etcd.etcdctl(["lease", "revoke", own.leaseId.toString(16)]);

    for (const reason of await reasons) expect(reason).toBe(own.signal.reason);
    await writer.release();
  });
});

describe("what is held", () => {
  test("is told as lost when its key is deleted, to readers and to writers", async () => {
    for (const call of ["readLock", "writeLock"] as const) {
      const [a] = locksOf(`deleted/${call}`);
      const hold = await a[call]();
      const lost = new Promise((resolve) => hold.signal.addEventListener("abort", resolve));

      await two.etcd.etcdctl(["del", hold.key]);
      await lost;

      expect(hold.signal.reason).toMatchObject({ code: "LOCK_LOST", loss: "deleted", key: hold.key });
      expect(hold.held).toBe(false);
    }
  });

  test("is drained by close(), and the waiters behind it are rejected at once", async () => {
    const name = "close";
    const own = await Session.open(two.cluster, { ttlSeconds: TTL_SECONDS });
    const lock = new RwLock(own, name);
    const reader = await lock.readLock();
    const writing = reasonOf(lock.writeLock());
    await queued(name, 2);

    const closing = own.close();

    expect(await writing).toMatchObject({ code: "SESSION_CLOSED" });
    expect(reader.held).toBe(true);
    await reader.release();
    await closing;
    expect(await places(name)).toEqual([]);
  });

  test("is taken over by the session that adopts the lease: the reader's place by a reader, the writer's by a writer", async () => {
    const session = await Session.open(two.cluster, { ttlSeconds: TTL_SECONDS });
    const reader = await new RwLock(session, "adopt").readLock();
    const writer = await new RwLock(session, "adopt/other").writeLock();
    const adopted = await Session.adopt(two.cluster, await session.orphan());

    const again = await new RwLock(adopted, "adopt").readLock();
    const writes = await new RwLock(adopted, "adopt/other").writeLock();

    expect([again.key, again.revision]).toEqual([reader.key, reader.revision]);
    expect([writes.key, writes.fence]).toEqual([writer.key, writer.fence]);
    await adopted.close({ drainMs: 0 });
  });
});

describe("withReadLock and withWriteLock", () => {
  test("hold while the work runs, return its value, and give back", async () => {
    const [a, b] = locksOf("with");

    const value = await a.withReadLock(async (hold) => {
      expect(await b.tryWriteLock()).toBeUndefined();
      return hold.held;
    });
    const fence = await a.withWriteLock((lock) => lock.fence);

    expect([value, typeof fence]).toEqual([true, "bigint"]);
    expect(await places("with")).toEqual([]);
  });

  test("reject with the work's own error, and with the loss when the work ended well", async () => {
    const [a] = locksOf("with/ends");
    const error = new Error("the work's");

    expect(await reasonOf(a.withReadLock(() => Promise.reject(error)))).toBe(error);
    const lost = a.withReadLock(async (hold) => {
      await two.etcd.etcdctl(["del", hold.key]);
      await expect.poll(() => hold.signal.aborted).toBe(true);
    });
    expect(await reasonOf(lost)).toMatchObject({ code: "LOCK_LOST", loss: "deleted" });
  });

  test.each([
    ["read", "read"],
    ["read", "write"],
    ["write", "read"],
    ["write", "write"],
  ] as const)("refuse, inside a %s lock, to wait for a %s lock of the same name", async (outer, inner) => {
    const [a, b] = locksOf(`with/${outer}/${inner}`);
    const take = (lock: RwLock) => (inner === "read" ? lock.readLock() : lock.writeLock());
    const work = async () => [await reasonOf(take(a)), await reasonOf(take(b))];

    const reasons = await (outer === "read" ? a.withReadLock(work) : a.withWriteLock(work));

    for (const reason of reasons) expect(reason).toMatchObject({ code: "DEADLOCK", lockName: a.name });
  });
});
