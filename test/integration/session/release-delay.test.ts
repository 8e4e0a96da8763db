// `releaseDelayMs`: after a crash of a holder the next one waits, whoever that is; after a release it does not.
import { EventEmitter, once as nextEvent } from "node:events";
import { afterAll, beforeAll, describe, expect, onTestFinished, test } from "vitest";
import {
  type Cluster,
  ClusterLockManager,
  connect,
  Election,
  forceRelease,
  inspect,
  type Leader,
  list,
  lockAll,
  Mutex,
  once,
  RwLock,
  Semaphore,
  Session,
  watchQueue,
} from "../../../src/index.js";
import { isDelayed } from "../../../src/keys.js";
import { Board } from "../../../src/observe/board.js";
import { EtcdctlLock } from "../../support/clients/etcdctl-lock.js";
import { observe } from "../../support/clients/observer.js";
import { takesPlace } from "../../support/clients/request-shape.js";
import { leasesOf, placesOf } from "../../support/clients/server-view.js";
import { V3Lock } from "../../support/clients/v3lock.js";
import { type EtcdCluster, startEtcd } from "../../support/etcd/etcd.js";
import { Guarded } from "../../support/programs/guarded.js";
import { startGrpcProxy } from "../../support/proxies/grpc-proxy.js";

const TTL_SECONDS = 60;
const DELAY_MS = 1000;
/** The part of a delay that is seen at least: on a busy machine, the first of its two events may be read a while after it has happened. */
const SEEN = 0.5;
const TXN = "/etcdserverpb.KV/Txn";
const GRANT = "/etcdserverpb.Lease/LeaseGrant";

let etcd: EtcdCluster;
/** Of the clients that wait: they know nothing of a delay. */
let others: Cluster;
/** Of the sessions with a delay. */
const clusters: Cluster[] = [];
beforeAll(async () => {
  etcd = await startEtcd();
  others = connect({ hosts: etcd.endpoints });
});
afterAll(async () => {
  await Promise.all([others, ...clusters].map((cluster) => cluster.close({ drainMs: 0 })));
  await etcd.stop();
});

const places = (name: string) => placesOf(etcd.member, name);
const revoke = (leaseId: bigint) => etcd.member.gateway("/v3/lease/revoke", { ID: leaseId.toString() });
const hasLease = async (leaseId: bigint) => (await leasesOf(etcd.member)).has(leaseId);
const base64 = (text: string) => Buffer.from(text).toString("base64");
const delayOf = ({ leaseId }: Session) => leaseId | 1n;

/** A session with a delay, of a cluster of its own. */
async function holder(ttlSeconds = TTL_SECONDS): Promise<Session> {
  const cluster = connect({ hosts: etcd.endpoints });
  clusters.push(cluster);
  return Session.open(cluster, { ttlSeconds, releaseDelayMs: DELAY_MS });
}

/**
 * Ends the lease of a session as a crash would, and resolves when others have been granted what it held without a delay, a permit: a
 * grant that does not wait for the delay has come by then, too.
 */
async function crash(session: Session, name: string): Promise<void> {
  const permit = new Semaphore(session, `${name}-permit`, 1);
  await permit.acquire();
  const canary = new Semaphore(others, `${name}-permit`, 1).acquire();
  while ((await places(`${name}-permit`)).length < 2);
  await revoke(session.leaseId);
  await (await canary).release();
  await places(name);
}

/** Until the end of the test. */
async function openBoard(prefix: string): Promise<Board> {
  const changed = new EventEmitter();
  const board = Board.open(others, prefix, {
    changed: () => void changed.emit("changed"),
    failed: (error) => void changed.emit("error", error),
  });
  onTestFinished(() => board.stop());
  await nextEvent(changed, "changed");
  return board;
}

/** A call that waits. */
function asked<T>(granted: Promise<T>): { readonly granted: Promise<T>; over: boolean } {
  const call = { granted, over: false };
  void granted.then(() => (call.over = true));
  return call;
}

const release = async (held: { release(): Promise<void> }) => held.release();

describe.concurrent("after the end of a holder's lease, the delay lease still excludes", () => {
  const WAITERS: Readonly<Record<string, (name: string) => Promise<unknown>>> = {
    "a mutex": (name) => new Mutex(others, name).lock().then(release),
    "a reader": (name) => new RwLock(others, name).readLock().then(release),
    "a writer": (name) => new RwLock(others, name).writeLock().then(release),
    lockAll: (name) => lockAll(others, [`${name}-more`, name]).then(release),
    once: (name) => once(others, name, 1, () => undefined),
  };

  test.for(Object.keys(WAITERS))("%s", async (kind, { expect }) => {
    const name = `kinds/${kind.replace(" ", "-")}`;
    const session = await holder();
    await new Mutex(session, name).lock();
    const call = asked((WAITERS[kind] as (name: string) => Promise<unknown>)(name));
    await expect.poll(() => places(name)).toHaveLength(3);

    await crash(session, name);
    expect(call.over).toBe(false);
    expect(await new Mutex(others, name).tryLock()).toBeUndefined();

    await revoke(delayOf(session));
    await call.granted;
    await expect.poll(() => places(name)).toEqual([]);
  });

  test("a candidate, behind a leader", async ({ expect }) => {
    const session = await holder();
    const term = await new Election(session, "kinds/leader").campaign("one");
    const call = asked(new Election(others, "kinds/leader").campaign("two"));
    await expect.poll(() => places("kinds/leader")).toHaveLength(3);

    await crash(session, "kinds/leader");
    expect(call.over).toBe(false);
    expect(term.signal.aborted).toBe(true);

    await revoke(delayOf(session));
    await (await call.granted).resign();
  });

  test("a writer, behind a reader, and a reader, behind a writer", async ({ expect }) => {
    for (const [first, second] of [
      ["readLock", "writeLock"],
      ["writeLock", "readLock"],
    ] as const) {
      const name = `kinds/${first}`;
      const session = await holder();
      await new RwLock(session, name)[first]();
      const call = asked(new RwLock(others, name)[second]());
      await expect.poll(() => places(name)).toHaveLength(3);

      await crash(session, name);
      expect(call.over).toBe(false);

      await revoke(delayOf(session));
      await (await call.granted).release();
    }
  });

  test("Go's client: etcdctl lock and v3lock", async ({ expect }) => {
    const session = await holder();
    await lockAll(session, ["go/etcdctl", "go/v3lock"]);
    await using etcdctl = new EtcdctlLock(etcd, "go/etcdctl");
    const v3lock = await V3Lock.ask(etcd.member, "go/v3lock");
    for (const name of ["go/etcdctl", "go/v3lock"]) await expect.poll(() => places(name)).toHaveLength(3);

    await crash(session, "go");
    expect([etcdctl.holds, v3lock.holds]).toEqual([false, false]);

    await revoke(delayOf(session));
    await Promise.all([etcdctl.held, v3lock.held]);
    await v3lock.unlock();
  });

  test("several waiters with a delay of their own, who then hold in their order", async ({ expect }) => {
    const sessions = [await holder(), await holder(), await holder()] as const;
    const order: number[] = [];
    await new Mutex(sessions[0], "many").lock();
    const calls: Promise<void>[] = [];
    for (const n of [1, 2, 1, 2] as const) {
      calls.push(new Mutex(sessions[n], "many").withLock(() => void order.push(n)));
      await expect.poll(() => places("many")).toHaveLength(2 + 2 * calls.length);
    }

    await crash(sessions[0], "many");
    expect(order).toEqual([]);

    await revoke(delayOf(sessions[0]));
    await Promise.all(calls);
    expect(order).toEqual([1, 2, 1, 2]);
    await expect.poll(() => places("many")).toEqual([]);
  });
});

describe.concurrent("it lasts for the delay", () => {
  /** Milliseconds from the end of the entry's key to that of its delay key, as etcd reports them. */
  async function gapOf(name: string, run: () => Promise<unknown>): Promise<number> {
    using observer = await observe(etcd.endpoints[0] as string, `${name}/`);
    await run();
    const [entry, delay] = observer.seen.filter(({ type }) => type === "PUT");
    if (!entry || !delay) throw new Error("expected two keys");
    expect(entry.create).toBe(delay.create);
    const ended = await observer.deleted(entry.key, entry.create);
    const freed = await observer.deleted(delay.key, delay.create);
    return Number(freed.at - ended.at) / 1e6;
  }

  test("after kill -9, with the guardian", async ({ expect }) => {
    const session = { ttlSeconds: TTL_SECONDS, releaseDelayMs: DELAY_MS };
    const gapMs = await gapOf("killed", async () => {
      await using program = await Guarded.start({ hosts: etcd.endpoints, session }, ["killed"]);
      const next = new Mutex(others, "killed").lock();
      await expect.poll(() => places("killed")).toHaveLength(3);
      await program.kill();
      await (await next).release();
    });

    expect(gapMs).toBeGreaterThan(DELAY_MS * SEEN);
    // Far from the TTL: the guardian has revoked both.
    expect(gapMs).toBeLessThan(DELAY_MS * 10);
  });

  test("if the lease expires", async ({ expect }) => {
    const gapMs = await gapOf("expired", async () => {
      const session = await holder(2);
      await new Mutex(session, "expired").lock();
      // It is not renewed any more.
      await session.orphan();
      await (await new Mutex(others, "expired").lock()).release();
    });

    expect(gapMs).toBeGreaterThan(DELAY_MS * SEEN);
    // etcd counts in whole seconds, and looks for expired leases every half second.
    expect(gapMs).toBeLessThan(DELAY_MS * 5);
  });
});

describe.concurrent("there is no delay", () => {
  test("of a session without the option: none has a lease that could be taken for one with it", async ({
    expect,
  }) => {
    const opened = Array.from({ length: 16 }, () => Session.open(others, { ttlSeconds: TTL_SECONDS }));
    const sessions = await Promise.all(opened);
    for (const { leaseId } of sessions) expect([leaseId, isDelayed(leaseId)]).toEqual([leaseId, false]);
    await Promise.all(sessions.map((session) => session.close()));
  });

  test("after a release, in one transaction, nor for the next of the same session", async ({ expect }) => {
    const session = await holder();
    const mutex = new Mutex(session, "released");
    const lock = await mutex.lock();
    const own = mutex.lock();
    await expect.poll(() => places("released")).toHaveLength(4);
    const next = asked(new Mutex(others, "released").lock());
    await expect.poll(() => places("released")).toHaveLength(5);

    await lock.release();
    const second = await own;
    expect(second.fence).toBeGreaterThan(lock.fence);
    expect(next.over).toBe(false);
    await second.release();
    await (await next.granted).release();
    expect(await places("released")).toEqual([]);
    expect(await mutex.tryLock().then((held) => held?.release())).toBeUndefined();
    expect(await hasLease(delayOf(session))).toBe(true);
  });

  test("after a close() that finds all released: it revokes both leases", async ({ expect }) => {
    const session = await holder();
    const lock = await new Mutex(session, "closed").lock();
    const closing = session.close();
    await lock.release();
    await closing;

    expect(await hasLease(session.leaseId)).toBe(false);
    expect(await hasLease(delayOf(session))).toBe(false);
  });

  test("after a release by force: both keys are deleted, and the session goes on", async ({ expect }) => {
    const session = await holder();
    const lock = await new Mutex(session, "forced").lock();
    const next = new Mutex(others, "forced").lock();
    const { holders } = await inspect(others, "forced");
    expect(holders.map(({ key }) => key)).toEqual([lock.key]);
    await forceRelease(others, holders[0] as (typeof holders)[0]);

    await (await next).release();
    expect(session.state).toBe("live");
  });

  test("if another client deletes the entry's key alone: its holder deletes the other one", async ({
    expect,
  }) => {
    const session = await holder();
    const lock = await new Mutex(session, "deleted").lock();
    const next = new Mutex(others, "deleted").lock();
    await etcd.member.gateway("/v3/kv/deleterange", { key: Buffer.from(lock.key).toString("base64") });

    await expect(lock.release()).rejects.toMatchObject({ loss: "deleted" });
    await (await next).release();
    expect(session.state).toBe("live");
  });

  test("for a semaphore, whose entries are counted", async ({ expect }) => {
    const session = await holder();
    await using permit = await new Semaphore(session, "permits", 2).acquire();
    expect((await places("permits")).map(({ key }) => key)).toEqual([permit.key]);
  });
});

describe.concurrent("the delay lease", () => {
  test("is left to expire by a close() under a hold that still runs", async ({ expect }) => {
    const session = await holder();
    await new Mutex(session, "draining").lock();
    const next = asked(new Mutex(others, "draining").lock());
    await session.close({ drainMs: 0 });

    expect(await hasLease(session.leaseId)).toBe(false);
    expect((await places("draining")).map(({ leaseId }) => leaseId)).toContain(delayOf(session));
    expect(next.over).toBe(false);
    await revoke(delayOf(session));
    await (await next.granted).release();
  });

  test("is left by a close() under such a hold, without the keys of calls that waited, and of released holds", async ({
    expect,
  }) => {
    const session = await holder();
    const held = await new Mutex(session, "closing/held").lock();
    const released = await new RwLock(session, "closing/released").writeLock();
    await using before = await new Mutex(others, "closing/waited").lock();
    const waiting = new Mutex(session, "closing/waited").lock();
    waiting.catch(() => undefined);
    await expect.poll(() => places("closing/waited")).toHaveLength(3);

    void released.release();
    await session.close({ drainMs: 0 });

    expect((await places("closing/held")).map(({ leaseId }) => leaseId)).toEqual([delayOf(session)]);
    expect(held.signal.reason).toMatchObject({ loss: "closed" });
    expect(await places("closing/released")).toEqual([]);
    expect((await places("closing/waited")).map(({ key }) => key)).toEqual([before.key]);
    await revoke(delayOf(session));
  });

  test("is left by a close() under such a hold without the keys of joins that are under way", async ({
    expect,
  }) => {
    await using proxy = await startGrpcProxy({ port: etcd.member.clientPort });
    const cluster = connect({ hosts: proxy.endpoint });
    clusters.push(cluster);
    const session = await Session.open(cluster, { ttlSeconds: TTL_SECONDS, releaseDelayMs: DELAY_MS });
    const held = await new Mutex(session, "under-way/held").lock();
    proxy.rule({ path: TXN, act: "drop-answer", when: takesPlace, times: 1 });
    const joining = new Mutex(session, "under-way/joins").lock();
    joining.catch(() => undefined);
    await expect.poll(() => places("under-way/joins")).toHaveLength(2);

    await session.close({ drainMs: 0 });

    expect(await places("under-way/joins")).toEqual([]);
    expect((await places("under-way/held")).map(({ leaseId }) => leaseId)).toEqual([delayOf(session)]);
    expect(held.signal.reason).toMatchObject({ loss: "closed" });
    await revoke(delayOf(session));
  });

  test("is left to expire by a close() while etcd has not said whether a lost key went with the lease", async ({
    expect,
    onTestFinished,
  }) => {
    const own = await startEtcd();
    onTestFinished(() => own.stop());
    const { member, endpoints } = own;
    const cluster = connect({ hosts: endpoints });
    clusters.push(cluster);
    const session = await Session.open(cluster, { ttlSeconds: 6, releaseDelayMs: DELAY_MS });
    const lock = await new Mutex(session, "doubted").lock();
    const watches = async () => (await member.metrics()).get("etcd_debugging_mvcc_watcher_total");
    await expect.poll(watches).toBe(1);
    lock.signal.addEventListener("abort", () => member.pause());
    // Its answer may come after the pause, or not in time.
    member.gateway("/v3/lease/revoke", { ID: session.leaseId.toString() }).catch(() => undefined);
    await nextEvent(lock.signal, "abort");
    await expect(lock.release()).rejects.toMatchObject({ code: "LOCK_LOST" });
    const closing = session.close();
    member.resume();
    await closing;

    expect([...(await leasesOf(member))]).toEqual([delayOf(session)]);
  });

  test("goes with the lease to the process that adopts it", async ({ expect }) => {
    const session = await holder();
    const { fence } = await new Mutex(session, "adopted").lock();
    const cluster = connect({ hosts: etcd.endpoints });
    clusters.push(cluster);
    const adopted = await Session.adopt(cluster, await session.orphan());
    const lock = await new Mutex(adopted, "adopted").lock();
    expect(lock.fence).toBe(fence);
    const next = asked(new Mutex(others, "adopted").lock());
    await expect.poll(() => places("adopted")).toHaveLength(3);

    await crash(adopted, "adopted");
    expect(next.over).toBe(false);
    await revoke(delayOf(session));
    await (await next.granted).release();
  });

  test("stays under each name of a lockAll whose release finds that the lease is gone", async ({
    expect,
  }) => {
    const session = await holder();
    const lock = await lockAll(session, ["lost-all/a", "lost-all/b"]);
    await revoke(session.leaseId);

    await expect(lock.release()).rejects.toMatchObject({ code: "LOCK_LOST" });

    for (const name of ["lost-all/a", "lost-all/b"]) expect(await places(name)).toHaveLength(1);
  });

  test("goes with a lease that has only permits, which have no delay keys", async ({ expect }) => {
    const session = await holder();
    await new Semaphore(session, "adopted-permit", 2).acquire();
    const cluster = connect({ hosts: etcd.endpoints });
    clusters.push(cluster);
    const adopted = await Session.adopt(cluster, await session.orphan());

    await new Mutex(adopted, "adopted-later").lock();

    // The entry and its delay key.
    expect(await places("adopted-later")).toHaveLength(2);
  });

  test("is not missed by who adopts a lease without one", async ({ expect }) => {
    const leaseId = (1n << 62n) + 2n;
    await etcd.member.gateway("/v3/lease/grant", { ID: leaseId.toString(), TTL: TTL_SECONDS });
    const cluster = connect({ hosts: etcd.endpoints });
    clusters.push(cluster);
    const adopted = await Session.adopt(cluster, leaseId);
    await new Mutex(adopted, "plain").lock();

    expect(await places("plain")).toHaveLength(1);
    expect(await hasLease(leaseId | 1n)).toBe(false);
  });

  test.each([
    ["with a lock of Go's client", (second: string) => [[`go/${second}`, ""]]],
    ["with the key of a service", () => [["services/web/1", "10.0.0.1"]]],
    [
      "with the key of a client that has joined at another time",
      (second: string) => [[`own/${second}`, "{}"]],
    ],
    ["without a key, beside an entry that has no delay key", () => []],
  ] as [string, (second: string) => [string, string][]][])(
    "is not the next lease of another client, %s: that one is neither renewed nor revoked",
    async (_, keysOf) => {
      await using own = await startEtcd();
      const [leaseId, second] = [(1n << 62n) + 4n, (1n << 62n) + 5n];
      const put = (key: string, value: string, lease: bigint) =>
        own.member.gateway("/v3/kv/put", { key: base64(key), value: base64(value), lease: lease.toString() });
      for (const each of [leaseId, second])
        await own.member.gateway("/v3/lease/grant", { ID: each.toString(), TTL: TTL_SECONDS });
      await put(`own/${leaseId.toString(16)}`, JSON.stringify({ owner: "a", since: "b", id: "c" }), leaseId);
      for (const [key, value] of keysOf(second.toString(16))) await put(key, value, second);
      await using cluster = connect({ hosts: own.endpoints });
      const session = await Session.adopt(cluster, leaseId);
      await new Mutex(session, "other").lock();

      expect(await placesOf(own.member, "other")).toHaveLength(1);
      expect((await own.member.metrics()).get("etcd_debugging_lease_renewed_total")).toBe(1);
      await session.close({ drainMs: 0 });
      expect([...(await leasesOf(own.member))]).toEqual([second]);
    },
  );

  test("that is revoked by hand costs no hold, although a call joins before a renewal has shown it", async ({
    expect,
  }) => {
    const cluster = connect({
      hosts: etcd.endpoints,
      session: { ttlSeconds: TTL_SECONDS, releaseDelayMs: DELAY_MS },
    });
    clusters.push(cluster);
    const first = await cluster.session();
    const lock = await new Mutex(cluster, "gone/held").lock();
    await revoke(delayOf(first));
    // On the session itself, nothing new can be promised; a cluster opens its next one.
    const message = `Session ${first.leaseId.toString(16)} takes no new calls: its lease for releaseDelayMs is gone`;
    const refused = { code: "SESSION_CLOSED", message };
    await expect(new Mutex(first, "gone/own").lock()).rejects.toMatchObject(refused);
    await expect(new Semaphore(first, "gone/permit", 1).acquire()).rejects.toMatchObject(refused);
    await expect(once(first, "gone/once", 1, () => undefined)).rejects.toMatchObject(refused);
    await expect(lockAll(first, ["gone/x", "gone/y"])).rejects.toMatchObject(refused);
    const next = await new Mutex(cluster, "gone/next").lock();

    expect([first.state, lock.held, next.held]).toEqual(["live", true, true]);
    expect((await cluster.session()).leaseId).not.toBe(first.leaseId);
    await Promise.all([lock.release(), next.release()]);
  });

  test("that is gone with the session's own lease says that the session is lost", async ({ expect }) => {
    const session = await holder();
    await revoke(session.leaseId);
    await expect(new Mutex(session, "gone/both").lock()).rejects.toMatchObject({ code: "SESSION_LOST" });
  });

  test("that is revoked by hand lets the holds go on, and new calls use another session", async ({
    expect,
  }) => {
    const cluster = connect({
      hosts: etcd.endpoints,
      session: { ttlSeconds: 3, releaseDelayMs: DELAY_MS },
    });
    clusters.push(cluster);
    const first = await cluster.session();
    const lock = await new Mutex(cluster, "unfit").lock();
    await revoke(delayOf(first));

    await expect
      .poll(async () => (await cluster.session()).leaseId, { timeout: 5000 })
      .not.toBe(first.leaseId);
    expect([lock.held, first.state]).toEqual([true, "live"]);
    await lock.release();
    await new Mutex(cluster, "unfit").withLock(() => undefined);
  });
});

test("a put that arrives after its caller has given up leaves neither of its keys", async () => {
  await using proxy = await startGrpcProxy({ port: etcd.member.clientPort });
  await using cluster = connect({ hosts: proxy.endpoint, requestTimeoutMs: 300 });
  const session = await Session.open(cluster, { ttlSeconds: 10, releaseDelayMs: DELAY_MS });
  const late = proxy.rule({ path: TXN, act: "hold", when: takesPlace, times: 1 });
  await new Mutex(session, "late").withLock(() => undefined);
  late.release();
  await late.answered();
  expect(await places("late")).toHaveLength(2);

  await expect.poll(() => places("late"), { timeout: 20_000 }).toEqual([]);
  expect(session.state).toBe("live");
});

test("a session that gets one of its two leases only, and is given up, leaves neither", async () => {
  await using own = await startEtcd();
  for (const n of [0, 1]) {
    await using proxy = await startGrpcProxy({ port: own.member.clientPort });
    await using cluster = connect({ hosts: proxy.endpoint, requestTimeoutMs: 300 });
    // The first grant is that of the session's own lease.
    proxy.rule({ path: GRANT, act: "drop-answer", when: (_, request) => request > n });
    const opened = Session.open(cluster, { releaseDelayMs: DELAY_MS, timeoutMs: 1000 });
    await expect(opened).rejects.toMatchObject({ code: "ETCD_UNAVAILABLE" });
    await cluster.close();
    // Long before a lease would expire.
    await expect.poll(() => leasesOf(own.member), { timeout: 5000 }).toEqual(new Set());
  }
});

test.each([
  ["is renewed before it is used", 0.5],
  ["fails to open if its first lease has ended meanwhile", 1.5],
] as const)("a session whose second grant is answered late %s", async (_, part) => {
  await using proxy = await startGrpcProxy({ port: etcd.member.clientPort });
  await using cluster = connect({ hosts: proxy.endpoint, requestTimeoutMs: 8000 });
  const ttlSeconds = 2;
  const rule = proxy.rule({ path: GRANT, act: "hold", when: (_, request) => request > 1 });
  const opening = Session.open(cluster, { ttlSeconds, releaseDelayMs: DELAY_MS });
  setTimeout(() => rule.release(), part * ttlSeconds * 1000);

  if (part > 1) {
    await expect(opening).rejects.toMatchObject({ code: "ETCD_UNAVAILABLE" });
    return;
  }
  const session = await opening;
  expect(session.remainingMs()).toBeGreaterThan((1 - part) * ttlSeconds * 1000);
  await new Mutex(session, "late-grant").withLock(({ held }) => expect(held).toBe(true));
});

test("lockAll takes thirty names with their delay keys at once, and waits for them", async () => {
  const names = Array.from({ length: 30 }, (_, n) => `thirty/${n}`);
  const [first, second] = [await holder(), await holder()];
  const lock = await lockAll(first, names);
  expect(await places("thirty")).toHaveLength(60);
  const next = asked(lockAll(second, names));
  await expect.poll(() => places("thirty")).toHaveLength(120);
  const single = asked(new Mutex(others, "thirty/7").lock());
  await expect.poll(() => places("thirty")).toHaveLength(121);
  expect([next.over, single.over]).toEqual([false, false]);

  await lock.release();
  await (await next.granted).release();
  await (await single.granted).release();
  await expect.poll(() => places("thirty")).toEqual([]);
});

describe("the queue shows one contender for an entry with its delay key", () => {
  test("to inspect, list and an election, and after a crash the delay key alone", async () => {
    const [first, second] = [await holder(), await holder()];
    const lock = await new Mutex(first, "shown/a").lock();
    const next = asked(new Mutex(second, "shown/a").lock());
    const term = await new Election(first, "shown/b").campaign("here");
    await expect.poll(() => places("shown/a")).toHaveLength(4);

    const { holders, waiters, total } = await inspect(others, "shown/a");
    expect([...holders, ...waiters].map(({ leaseId }) => leaseId)).toEqual([first.leaseId, second.leaseId]);
    expect(holders[0]?.key).toBe(lock.key);
    expect(total).toEqual({ holders: 1, waiters: 1 });
    const { locks } = await list(others, "shown/");
    expect(locks.map(({ name, waiters: count }) => [name, count])).toEqual([
      ["shown/a", 1],
      ["shown/b", 0],
    ]);
    const election = new Election(others, "shown/b");
    expect((await election.leader())?.key).toBe(term.key);
    await expect(new Mutex(others, "shown/a").lock({ timeoutMs: 2000 })).rejects.toMatchObject({
      ahead: 2,
    });
    const observed = election.observe();
    const { value: shown } = (await observed.next()) as IteratorYieldResult<Leader | undefined>;
    expect(shown?.fence).toBe(term.fence);

    await revoke(first.leaseId);
    await expect
      .poll(async () => (await inspect(others, "shown/a")).holders[0]?.leaseId)
      .toBe(delayOf(first));
    // The dead leader is shown until its delay is over.
    expect(await election.leader()).toMatchObject({ value: "here", fence: term.fence });
    await revoke(delayOf(first));
    expect((await observed.next()).value).toBeUndefined();
    expect(await election.leader()).toBeUndefined();
    await (await next.granted).release();
    await observed.return?.();
  });

  test("to list and to a call that times out, however many there are of one revision", async ({ expect }) => {
    const name = "crowd/list";
    const sessions = await Promise.all(Array.from({ length: 12 }, () => holder()));
    const lock = await new Mutex(sessions[0]!, name).lock();
    const stop = new AbortController();
    const waits = sessions.slice(1).map((session) => new Mutex(session, name).lock({ signal: stop.signal }));
    await expect.poll(async () => (await places(name)).length).toBe(2 * sessions.length);
    const { locks } = await list(others, name);
    const late: unknown = await new Mutex(others, name)
      .lock({ timeoutMs: 1000 })
      .catch((error: unknown) => error);

    expect(locks[0]?.holder).toMatchObject({ key: lock.key });
    expect(locks[0]?.waiters).toBe(sessions.length - 1);
    expect(late).toMatchObject({ code: "LOCK_TIMEOUT", holder: { key: lock.key }, ahead: sessions.length });
    stop.abort();
    await Promise.allSettled(waits);
    await lock.release();
  });

  test("to a watched queue and to the board of the page and of top", async () => {
    const session = await holder();
    const found: string[][] = [];
    const abort = new AbortController();
    const loop = (async () => {
      for await (const { holders, waiters } of watchQueue(others, "shown/c", { signal: abort.signal }))
        found.push(
          [...holders, ...waiters].map(({ leaseId }) => (leaseId === session.leaseId ? "it" : "delay")),
        );
    })();
    const board = await openBoard("shown/c");
    const boardShows = () => board.queue("shown/c")?.holders.map(({ leaseId }) => leaseId);
    await expect.poll(() => found.length).toBe(1);

    await new Mutex(session, "shown/c").lock();
    await expect.poll(boardShows).toEqual([session.leaseId]);
    expect(board.queue("shown/c")?.waiterCount).toBe(0);
    await revoke(session.leaseId);
    await expect.poll(boardShows).toEqual([delayOf(session)]);
    await revoke(delayOf(session));
    await expect.poll(() => found.length).toBe(4);
    expect(board.queue("shown/c")).toBeUndefined();
    expect(board.handOvers).toBe(1);

    expect(found).toEqual([[], ["it"], ["delay"], []]);
    abort.abort(new Error("done"));
    await expect(loop).rejects.toThrow("done");
  });

  test("to the board: a waiter that has died holds nothing when its delay key comes first", async () => {
    const [leaseId, delayId] = [0x5000_0000_0000_00a0n, 0x5000_0000_0000_00a1n];
    for (const id of [leaseId, delayId])
      await etcd.member.gateway("/v3/lease/grant", { ID: id.toString(), TTL: TTL_SECONDS });
    const board = await openBoard("shown/d");
    const lock = await new Mutex(others, "shown/d").lock();
    // The entry and the delay key of a client that dies.
    const put = (id: bigint) => ({
      request_put: { key: base64(`shown/d/${id.toString(16)}`), value: base64("dead"), lease: id.toString() },
    });
    await etcd.member.gateway("/v3/kv/txn", { success: [put(leaseId), put(delayId)] });
    await expect.poll(() => board.queue("shown/d")?.waiterCount).toBe(1);
    await revoke(leaseId);
    await lock.release();
    await expect.poll(() => board.queue("shown/d")?.holders.map((each) => each.leaseId)).toEqual([delayId]);
    await revoke(delayId);
    await expect.poll(() => board.queue("shown/d")).toBeUndefined();

    expect(board.handOvers).toBe(1);
    expect(board.history("shown/d").map(({ kind }) => kind)).toEqual(["granted", "ended"]);
  });

  test("to a LockManager of the Web Locks API", async () => {
    const cluster = connect({
      hosts: etcd.endpoints,
      session: { ttlSeconds: TTL_SECONDS, releaseDelayMs: DELAY_MS },
    });
    clusters.push(cluster);
    const locks = new ClusterLockManager(cluster, { prefix: "shown-web" });
    await locks.request("tab", async () => {
      const { held, pending } = await new ClusterLockManager(others, { prefix: "shown-web" }).query();
      expect([held?.length, pending?.length]).toEqual([1, 0]);
    });
    await locks.close();
  });
});
