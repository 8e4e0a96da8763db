// A writer that becomes a reader without letting go. What the clients believe is compared with etcd's record: a put of a writer's key that is
// not its first one makes it a reader.
import { setTimeout as delay } from "node:timers/promises";
import { describe, expect, onTestFinished, test } from "vitest";
import { connect, forceRelease, inspect, list, lockAll, Mutex, RwLock, Session } from "../../../src/index.js";
import { observe } from "../../support/clients/observer.js";
import { settledYet } from "../../support/clients/session-client.js";
import { takesPlace } from "../../support/clients/request-shape.js";
import { EtcdctlLock } from "../../support/clients/etcdctl-lock.js";
import { spaceAlarm } from "../../support/fixtures/space-alarm.js";
import { meter } from "../../support/fixtures/spent.js";
import { etcdOf } from "../../support/fixtures/subjects.js";
import { reasonOf, twoSessions } from "../../support/fixtures/two-sessions.js";
import { behindProxy } from "../../support/proxies/behind-proxy.js";
import { startGrpcProxy } from "../../support/proxies/grpc-proxy.js";

const two = twoSessions(60);
const { deleteKey, putKey, revoke, queued, until } = etcdOf(two);
const keysOf = async (name: string) => (await two.places(name)).map(({ key }) => key);

const TXN = "/etcdserverpb.KV/Txn";
/** Longer than the times in `REREADS_AT_MS`, and a fraction of that until the next read. */
const REREADS_MS = 300;
/** It writes a key again: a join reads its own key if it finds it, and a downgrade compares that it is there. */
const downgrades = (name: string) => (request: Buffer) =>
  request.includes(`${name}/write/`) && request.includes('"downgraded":true');

/** Locks of the same name from both sessions. */
const locksOf = (name: string) => [new RwLock(two.holder, name), new RwLock(two.session, name)] as const;

/** Other requests of both sessions have been answered, and their events read. */
const settled = () =>
  Promise.all([two.holder, two.session].map((s) => new Mutex(s, "settled").withLock(() => undefined)));

const valueOf = async (key: string) => {
  const { kvs: [kv] = [] } = (await two.etcd.member.gateway("/v3/kv/range", {
    key: Buffer.from(key).toString("base64"),
  })) as { kvs?: readonly { value: string }[] };
  return kv && (JSON.parse(Buffer.from(kv.value, "base64").toString()) as Record<string, unknown>);
};

describe("with the writer that downgrades,", () => {
  test("the readers behind it enter, in its own session and in others, and it goes on to hold", async () => {
    const name = "enter";
    const [a, b] = locksOf(name);
    const writer = await a.writeLock({ reason: "import" });
    const waiting = [a.readLock(), b.readLock(), a.readLock(), b.readLock(), a.readLock()];
    await queued(name, 6);
    // Until then, a waiter reads now and then whether it has missed an event.
    await delay(REREADS_MS);

    await writer.downgrade();
    const readers = await Promise.all(waiting);

    expect([writer, ...readers].map(({ held }) => held)).toEqual(Array(6).fill(true));
    expect(writer).toMatchObject({ downgraded: true, fence: writer.revision });
    expect(await valueOf(writer.key)).toMatchObject({
      owner: "the holder",
      reason: "import",
      downgraded: true,
    });
    await Promise.all([writer, ...readers].map((hold) => hold.release()));
    await queued(name, 0);
  });

  test("a new reader enters at once, by readLock and by tryReadLock", async () => {
    const name = "later";
    const [a, b] = locksOf(name);
    const writer = await a.writeLock();
    expect(await b.tryReadLock()).toBeUndefined();

    await writer.downgrade();
    const readers = [
      await b.readLock(),
      (await b.tryReadLock())!,
      await a.readLock(),
      (await a.tryReadLock())!,
    ];

    expect(readers.map(({ held }) => held)).toEqual([true, true, true, true]);
    expect(await b.tryWriteLock()).toBeUndefined();
    await writer.release();
    expect((await b.tryReadLock())?.held).toBe(true);
  });

  test("a reader behind a waiting writer does not enter: the writer comes first", async () => {
    const name = "barrier";
    const [a, b] = locksOf(name);
    const writer = await a.writeLock();
    const first = b.readLock();
    await queued(name, 2);
    const next = b.writeLock();
    await queued(name, 3);
    const late = [a.readLock(), b.readLock()];
    await queued(name, 5);
    const turns = [next, ...late].map(settledYet);

    await writer.downgrade();
    const reader = await first;
    await settled();
    expect(turns.map((turn) => turn())).toEqual([false, false, false]);
    expect([await a.tryReadLock(), await b.tryReadLock()]).toEqual([undefined, undefined]);

    // Not before both have ended.
    await writer.release();
    await settled();
    expect(turns[0]!()).toBe(false);
    await reader.release();
    const second = await next;
    expect(turns.slice(1).map((turn) => turn())).toEqual([false, false]);
    await second.release();
    await Promise.all(late.map(async (reading) => (await reading).release()));
  });

  test("no writer, mutex, lockAll or etcdctl lock enters before it and the last reader have ended", async () => {
    const name = "others";
    const [a, b] = locksOf(name);
    const writer = await a.writeLock();
    await writer.downgrade();
    const reader = await b.readLock();
    const order: string[] = [];
    const use = async (what: string, hold: Promise<{ release(): Promise<void> }>) => {
      const held = await hold;
      order.push(what);
      await held.release();
    };
    const uses = [use("writer", b.writeLock())];
    await queued(name, 3);
    uses.push(use("mutex", new Mutex(two.session, name).lock()));
    await queued(name, 4);
    uses.push(use("all", lockAll(two.cluster, [name])));
    await queued(name, 5);
    await using go = new EtcdctlLock(two.etcd, name);
    await queued(name, 6);

    expect(await new Mutex(two.session, name).tryLock()).toBeUndefined();
    await reader.release();
    await settled();
    expect(order).toEqual([]);
    await writer.release();

    await Promise.all(uses);
    expect(order).toEqual(["writer", "mutex", "all"]);
    await go.held;
  });
});

/** Whether nothing that excludes the hold is before it, by the record of etcd: `downgraded` has the keys that were put again. */
function judge(queue: ReadonlyMap<string, bigint>, downgraded: ReadonlySet<string>, key: string): string[] {
  const mine = queue.get(key);
  if (mine === undefined) return [`${key} holds without a key`];
  const reads = key.includes("/read/") || downgraded.has(key);
  return [...queue].flatMap(([other, revision]) => {
    const isReader = other.includes("/read/") || downgraded.has(other);
    return revision >= mine || (reads && isReader) ? [] : [`${key} holds behind ${other}`];
  });
}

test("in a crowd, no writer holds beside a reader, and no reader beside a writer, by etcd's record", async () => {
  const name = "judge/queue";
  using observer = await observe(two.etcd.member.endpoint, "judge/");
  const sessions = await Promise.all([1, 2, 3].map(() => Session.open(two.cluster, { ttlSeconds: 60 })));
  let marks = 0;
  const mark = async ({ key }: { readonly key: string }) => {
    await putKey(`judge/mark/${marks++}!${key}`, "");
  };
  const write = async (lock: RwLock, n: number) => {
    await lock.withWriteLock(async (writer) => {
      await mark(writer);
      if (n % 3 === 0) return;
      await writer.downgrade();
      await mark(writer);
    });
  };
  const read = async (lock: RwLock, n: number) => {
    if (n % 2 === 0) return lock.withReadLock(mark);
    const hold = await lock.tryReadLock();
    if (hold) await mark(hold);
    await hold?.release();
  };
  const work = async (session: Session, part: typeof read) => {
    for (let n = 0; n < 10; n++) await part(new RwLock(session, name), n);
  };

  await Promise.all(
    sessions.flatMap((session) => [write, read, write, read].map((part) => work(session, part))),
  );
  await putKey("judge/end", "");
  await observer.put("judge/end");

  const queue = new Map<string, bigint>();
  const downgraded = new Set<string>();
  const wrong: string[] = [];
  let puts = 0;
  for (const { type, key, create, mod } of observer.seen) {
    if (key.startsWith("judge/mark/"))
      wrong.push(...judge(queue, downgraded, key.slice(key.indexOf("!") + 1)));
    else if (type === "DELETE") {
      queue.delete(key);
      downgraded.delete(key);
    } else if (key.startsWith(`${name}/`)) {
      queue.set(key, create);
      if (mod > create) downgraded.add(key);
      puts += mod > create ? 1 : 0;
    }
  }
  expect(wrong).toEqual([]);
  expect(puts).toBe(36);
  expect(marks).toBeGreaterThanOrEqual(60 + 36 + 30);
  await Promise.all(sessions.map((session) => session.close()));
}, 30_000);

describe("a put of a downgrade", () => {
  test("whose answer is lost is repeated, and lets readers in once etcd has it", async () => {
    const name = "lost";
    await using behind = await behindProxy(two.etcd, name, 5);
    const lost = behind.proxy.rule({ path: TXN, act: "drop-answer", when: downgrades(name), times: 1 });
    const writer = await new RwLock(behind.session, name).writeLock();
    const readings = [new RwLock(behind.session, name), new RwLock(behind.rivals, name)].map((lock) =>
      lock.readLock(),
    );
    await queued(name, 3);

    const downgrading = writer.downgrade();
    await lost.answered();
    await readings[1];
    await downgrading;

    expect((await readings[0]!).held).toBe(true);
    expect([writer.held, lost.hits]).toEqual([true, 1]);
    await Promise.all([writer.release(), ...readings.map(async (reading) => (await reading).release())]);
    expect(await behind.places()).toEqual([]);
  });

  test("that arrives after the release creates nothing, and makes no later writer a reader", async () => {
    const name = "late";
    await using behind = await behindProxy(two.etcd, name, 3);
    const late = behind.proxy.rule({ path: TXN, act: "hold", when: downgrades(name), times: 1 });
    const lock = new RwLock(behind.session, name);
    const writer = await lock.writeLock();
    await writer.downgrade();
    expect(late.hits).toBe(1);
    await writer.release();
    const next = await new RwLock(two.session, name).writeLock();
    const again = lock.writeLock();
    await queued(name, 2);

    late.release();
    await late.answered();

    expect((await behind.places()).map(({ revision }) => revision)).toEqual([
      next.revision,
      expect.any(BigInt),
    ]);
    await next.release();
    const last = await again;
    expect(await valueOf(last.key)).not.toHaveProperty("downgraded");
    expect(await new RwLock(two.session, name).tryReadLock()).toBeUndefined();
    await last.release();
  });

  test("comes after that of another client, which has put the key meanwhile", async () => {
    const name = "put/meanwhile";
    const writer = await new RwLock(two.holder, name).writeLock();
    const value = JSON.stringify(await valueOf(writer.key));
    await two.etcd.etcdctl(["put", `--lease=${two.holder.leaseId.toString(16)}`, writer.key, value]);

    await writer.downgrade();

    expect(await valueOf(writer.key)).toMatchObject({ downgraded: true });
    expect((await new RwLock(two.session, name).tryReadLock())?.held).toBe(true);
    await writer.release();
  });

  test("that etcd rejects leaves the hold, and a second call puts it", async () => {
    const name = "refused";
    await using behind = await behindProxy(two.etcd, name, 30);
    const status = { code: 8, details: "etcdserver: mvcc: database space exceeded" };
    behind.proxy.rule({ path: TXN, act: "refuse", when: downgrades(name), times: 1, status });
    const writer = await new RwLock(behind.session, name).writeLock();

    expect(await reasonOf(writer.downgrade())).toMatchObject({ code: "ETCD_REFUSED" });
    // An attempt before might have been executed.
    expect([writer.held, writer.downgraded]).toEqual([true, true]);
    expect(await new RwLock(two.session, name).tryReadLock()).toBeUndefined();
    await writer.downgrade();

    expect((await new RwLock(two.session, name).tryReadLock())?.held).toBe(true);
  });
});

describe("a put of a downgrade that arrives after another process has adopted the session", () => {
  /** A writer whose session is orphaned, as no put of its downgrade is answered. */
  async function orphaned(name: string) {
    const behind = await behindProxy(two.etcd, name, 2);
    const late = behind.proxy.rule({ path: TXN, act: "hold", when: downgrades(name) });
    const before = await new RwLock(behind.session, name).writeLock();
    const downgrading = reasonOf(before.downgrade());
    await late.hit();
    const leaseId = await behind.session.orphan();
    expect(await downgrading).toMatchObject({ code: "LOCK_LOST", loss: "closed" });
    const arrives = async () => {
      late.release();
      await late.answered(late.hits);
    };
    return { before, arrives, leaseId, [Symbol.asyncDispose]: () => behind[Symbol.asyncDispose]() };
  }

  test("lets no reader in beside the writer that was taken over, which may become a reader itself", async () => {
    const name = "taken/over";
    await using it = await orphaned(name);
    await using adopted = await Session.adopt(two.cluster, it.leaseId);
    const writer = await new RwLock(adopted, name).writeLock();
    expect(writer.fence).toBe(it.before.fence);

    await it.arrives();

    expect(await valueOf(writer.key)).not.toHaveProperty("downgraded");
    expect(await new RwLock(two.session, name).tryReadLock()).toBeUndefined();
    await writer.downgrade();
    const reader = await new RwLock(two.session, name).tryReadLock();
    expect([writer.held, reader?.held]).toEqual([true, true]);
    await Promise.all([writer.release(), reader?.release()]);
  });

  test("and before a call takes the writer over, makes that call join anew", async () => {
    const name = "taken/before";
    await using it = await orphaned(name);
    await using adopted = await Session.adopt(two.cluster, it.leaseId);

    await it.arrives();
    const reader = (await new RwLock(two.session, name).tryReadLock())!;
    const writing = new RwLock(adopted, name).writeLock();
    const turn = settledYet(writing);
    await until(async () => !(await two.places(name)).some((p) => p.revision === it.before.revision));
    await settled();

    expect([reader.held, turn()]).toEqual([true, false]);
    await reader.release();
    const writer = await writing;
    expect(writer.fence).toBeGreaterThan(it.before.fence);
    await writer.release();
    await queued(name, 0);
  });
});

describe("the writer of an adopted session", () => {
  test("costs one request", async () => {
    const name = "taken/cost";
    const session = await Session.open(two.cluster, { ttlSeconds: 30 });
    const before = await new RwLock(session, name).writeLock();
    await using adopted = await Session.adopt(two.cluster, await session.orphan());
    const counts = await meter(two.etcd.member);

    const writer = await new RwLock(adopted, name).writeLock();

    // What reads and lists meanwhile looks for late puts.
    const { Txn, Watch, revisions } = await counts.lap({ Txn: 1, revisions: 1 });
    expect({ Txn, Watch, revisions }).toEqual({ Txn: 1, Watch: undefined, revisions: 1 });
    expect(writer.fence).toBe(before.fence);
    await writer.release();
  });

  test("is there for the next call when a full etcd has rejected the first one", async () => {
    const name = "taken/full";
    const session = await Session.open(two.cluster, { ttlSeconds: 30 });
    const before = await new RwLock(session, name).writeLock();
    const rival = new RwLock(two.session, name).writeLock();
    const turn = settledYet(rival);
    await queued(name, 2);
    await using adopted = await Session.adopt(two.cluster, await session.orphan());
    const lock = new RwLock(adopted, name);
    onTestFinished(() => spaceAlarm(two.etcd.member, "DEACTIVATE"));
    await spaceAlarm(two.etcd.member, "ACTIVATE");
    expect(await reasonOf(lock.writeLock())).toMatchObject({ code: "ETCD_REFUSED", reason: "quota" });
    await spaceAlarm(two.etcd.member, "DEACTIVATE");

    const writer = await lock.writeLock();

    expect([writer.fence, writer.held, turn()]).toEqual([before.fence, true, false]);
    await writer.release();
    await (await rival).release();
    await queued(name, 0);
  });

  test("is given back when its call gives up before etcd has answered", async () => {
    const name = "taken/gives-up";
    await using proxy = await startGrpcProxy({ port: two.etcd.member.clientPort });
    await using cluster = connect({ hosts: proxy.endpoint });
    const session = await Session.open(two.cluster, { ttlSeconds: 30 });
    await new RwLock(session, name).writeLock();
    const adopted = await Session.adopt(cluster, await session.orphan());
    const puts = (request: Buffer) => request.includes(`${name}/write/`) && takesPlace(request);
    const late = proxy.rule({ path: TXN, act: "hold", when: puts });
    const stop = new AbortController();
    const writing = reasonOf(new RwLock(adopted, name).writeLock({ signal: stop.signal }));
    await late.hit();
    stop.abort("enough");
    expect(await writing).toBe("enough");

    late.release();

    await queued(name, 0);
  });
});

describe("a downgraded hold", () => {
  test("costs one request, a second call none, and a tryReadLock beside it two", async () => {
    const name = "cost";
    const [a, b] = locksOf(name);
    const writer = await a.writeLock();
    const counts = await meter(two.etcd.member);

    await writer.downgrade();
    await writer.downgrade();

    const spent = async (calls: Record<string, number>) =>
      expect({ ...(await counts.lap(calls)), LeaseKeepAlive: undefined }).toEqual(calls);
    await spent({ Txn: 1, revisions: 1 });
    const hold = await b.tryReadLock();
    await spent({ Txn: 2, revisions: 1 });
    await hold!.release();
    await writer.release();
  });

  test("that is called again, during the first call and after it, is put once", async () => {
    const [a] = locksOf("twice");
    const writer = await a.writeLock();
    expect(writer.downgraded).toBe(false);

    await Promise.all([writer.downgrade(), writer.downgrade()]);
    await writer.downgrade();

    const { kvs } = (await two.etcd.member.gateway("/v3/kv/range", {
      key: Buffer.from(writer.key).toString("base64"),
    })) as { kvs: { version: string }[] };
    expect(kvs[0]!.version).toBe("2");
    expect(JSON.parse(JSON.stringify(writer))).toMatchObject({ downgraded: true, held: true });
    await writer.release();
  });

  test("ends by its release: a call after that, or during it, rejects with a LockReleasedError", async () => {
    const [a] = locksOf("released");
    const writer = await a.writeLock();
    const during = reasonOf(writer.downgrade());
    await writer.release();

    expect(await during).toMatchObject({ code: "LOCK_RELEASED" });
    expect(await reasonOf(writer.downgrade())).toMatchObject({ code: "LOCK_RELEASED" });
    await queued("released", 0);
  });

  test("whose key was deleted rejects with a LockLostError, and puts no key", async () => {
    const name = "deleted";
    const [a] = locksOf(name);
    const writer = await a.writeLock();
    await deleteKey(writer.key);

    expect(await reasonOf(writer.downgrade())).toMatchObject({ code: "LOCK_LOST", loss: "deleted" });

    expect([writer.held, writer.signal.reason]).toMatchObject([false, { loss: "deleted" }]);
    expect(await two.places(name)).toEqual([]);
  });

  test("is lost when a client deletes its key; its readers hold on, and keep writers out", async () => {
    const name = "stolen";
    const [a, b] = locksOf(name);
    const writer = await a.writeLock();
    await writer.downgrade();
    const reader = await b.readLock();
    const next = b.writeLock();
    const turn = settledYet(next);
    await queued(name, 3);
    const { holders } = await inspect(two.cluster, name);

    await forceRelease(two.cluster, holders[0]!);
    await until(() => !writer.held);
    await settled();

    expect([reader.held, turn()]).toEqual([true, false]);
    await reader.release();
    await (await next).release();
  });

  test("goes with the lease of its session: the next writer waits for the readers only", async () => {
    const name = "crash";
    const session = await Session.open(two.cluster, { ttlSeconds: 60 });
    const [, b] = locksOf(name);
    const writer = await new RwLock(session, name).writeLock();
    await writer.downgrade();
    const reader = await b.readLock();
    const next = new RwLock(two.holder, name).writeLock();
    const turn = settledYet(next);
    await queued(name, 3);

    await revoke(session);
    await until(() => writer.signal.aborted);
    await settled();
    expect([reader.held, turn()]).toEqual([true, false]);
    expect(await reasonOf(writer.downgrade())).toMatchObject({ code: "LOCK_LOST" });
    await reader.release();

    await (await next).release();
  });

  test("of a sticky lock leaves with its release: no writer of its session takes the key", async () => {
    const name = "sticky";
    const lock = new RwLock(two.holder, name, { sticky: true });
    await (await lock.writeLock()).release();
    await (await lock.writeLock()).release();
    const writer = await lock.writeLock();
    expect(writer.turn).toBe(2);
    const again = lock.writeLock();
    await settled();
    expect(await two.places(name)).toHaveLength(1);

    await writer.downgrade();
    // It waited in its process for the key, and stands in the queue now.
    await queued(name, 2);
    expect(await valueOf(writer.key)).not.toHaveProperty("sticky");
    await writer.release();

    const next = await again;
    expect(next.fence).toBeGreaterThan(writer.fence);
    await next.release();
  });

  test("of a session that is adopted is taken over by nobody", async () => {
    const name = "adopted";
    const session = await Session.open(two.cluster, { ttlSeconds: 30 });
    const writer = await new RwLock(session, name).writeLock();
    await writer.downgrade();
    const reader = await new RwLock(two.session, name).readLock();
    const leaseId = await session.orphan();

    await using second = await Session.adopt(two.cluster, leaseId);
    const next = new RwLock(second, name).writeLock();
    const turn = settledYet(next);
    await until(
      async () =>
        (await keysOf(name)).length === 2 &&
        !(await two.places(name)).some((p) => p.revision === writer.revision),
    );
    await settled();
    expect(turn()).toBe(false);
    await reader.release();

    expect((await next).fence).toBeGreaterThan(writer.fence);
    await (await next).release();
  });

  test("shows its readers as holders, in inspect, in list and to itself", async () => {
    const name = "shown/queue";
    const [a, b] = locksOf(name);
    const writer = await a.writeLock();
    const reading = b.readLock();
    await queued(name, 2);
    await until(() => writer.wanted);
    await writer.downgrade();
    const reader = await reading;
    await until(() => !writer.wanted);
    const told: bigint[] = [];
    writer.onWanted(({ revision }) => told.push(revision));
    const other = await b.readLock();
    expect(await inspect(two.cluster, name)).toMatchObject({
      kind: "rwlock",
      holders: [{ key: writer.key }, { key: reader.key }, { key: other.key }],
      waiters: [],
    });
    const next = b.writeLock();
    await queued(name, 4);
    await until(() => told.length > 0);
    const [place] = (await two.places(name)).slice(-1);
    expect(told).toEqual([place!.revision]);
    const { locks } = await list(two.cluster, "shown/");
    expect(locks).toMatchObject([{ name, kind: "rwlock", holder: { key: writer.key }, waiters: 1 }]);
    await Promise.all([writer, reader, other].map((hold) => hold.release()));
    await (await next).release();
  });
});

describe("with releaseDelayMs,", () => {
  test("readers enter with the writer, and after its crash, and writers only after the delay", async () => {
    const name = "delay";
    const cluster = connect({ hosts: two.etcd.endpoints });
    onTestFinished(() => cluster.close({ drainMs: 0 }));
    const session = await Session.open(cluster, { ttlSeconds: 60, releaseDelayMs: 600_000 });
    const [a, b] = locksOf(name);
    const writer = await new RwLock(session, name).writeLock();
    const reading = b.readLock();
    await queued(name, 3);

    await writer.downgrade();
    const reader = await reading;
    expect((await b.tryReadLock())?.held).toBe(true);
    await revoke(session);
    await until(async () => !(await keysOf(name)).includes(writer.key));

    expect((await a.readLock()).held).toBe(true);
    expect((await a.tryReadLock())?.held).toBe(true);
    expect(await new Mutex(two.session, name).tryLock()).toBeUndefined();
    const { holders } = await inspect(two.cluster, name);
    expect(holders).toHaveLength(5);
    expect(holders[0]).toMatchObject({ state: "dead" });
    await reader.release();
  });

  test("a writer whose delay key is gone becomes a reader, too", async () => {
    const name = "delay/alone";
    const cluster = connect({ hosts: two.etcd.endpoints });
    onTestFinished(() => cluster.close({ drainMs: 0 }));
    const session = await Session.open(cluster, { ttlSeconds: 60, releaseDelayMs: 600_000 });
    const writer = await new RwLock(session, name).writeLock();
    const reading = new RwLock(two.session, name).readLock();
    await queued(name, 3);
    await deleteKey(writer.key.replace(session.leaseId.toString(16), (session.leaseId | 1n).toString(16)));

    await writer.downgrade();

    const reader = await reading;
    expect([writer.held, reader.held]).toEqual([true, true]);
    expect(await two.places(name)).toHaveLength(2);
    await reader.release();
    await writer.release();
    await queued(name, 0);
  });
});
