// What inspect() reports of the queues of this library and of other clients, and with no more rights than reading.
import { afterAll, beforeAll, describe, expect, test } from "vitest";
import {
  connect,
  Election,
  forceRelease,
  inspect,
  list,
  Mutex,
  type QueueState,
  RwLock,
  Semaphore,
  Session,
  watchQueue,
} from "../../../src/index.js";
import { EtcdctlLock } from "../../support/clients/etcdctl-lock.js";
import { grantLease, putKeys } from "../../support/clients/many-keys.js";
import { leasesOf } from "../../support/clients/server-view.js";
import { startTcpProxy } from "../../support/proxies/tcp-proxy.js";
import { reasonOf, twoSessions } from "../../support/fixtures/two-sessions.js";
import { startWithUsers, type UserEtcd } from "../../support/fixtures/users.js";

const TTL_SECONDS = 20;
const two = twoSessions(TTL_SECONDS);

const ownersOf = (contenders: readonly { readonly owner: string | undefined }[]) =>
  contenders.map(({ owner }) => owner);

describe("the queue of a lock", () => {
  test("of nobody is empty", async () => {
    expect(await inspect(two.cluster, "inspect/none")).toMatchObject({
      kind: "unknown",
      holders: [],
      waiters: [],
      total: { holders: 0, waiters: 0 },
    });
  });

  test("shows the holder with its fence, owner and TTL, then the waiters in their order", async () => {
    const name = "inspect/mutex";
    const begin = Date.now();
    const lock = await new Mutex(two.holder, name).lock();
    const waiting = new Mutex(two.session, name).lock();
    await two.queued(name, 2);

    const { kind, holders, waiters, total, revision } = await inspect(two.cluster, name);

    expect(kind).toBe("mutex");
    expect(holders).toMatchObject([
      {
        state: "holding",
        owner: "the holder",
        revision: lock.fence,
        key: lock.key,
        leaseId: two.holder.leaseId,
      },
    ]);
    expect(holders[0]?.since?.getTime()).toBeGreaterThanOrEqual(begin);
    expect(holders[0]?.ttlRemainingMs).toBeGreaterThan(0);
    expect(holders[0]?.ttlRemainingMs).toBeLessThanOrEqual(TTL_SECONDS * 1000);
    expect(waiters).toMatchObject([{ state: "waiting", leaseId: two.session.leaseId }]);
    expect(total).toEqual({ holders: 1, waiters: 1 });
    expect(revision).toBeGreaterThanOrEqual(waiters[0]!.revision);
    await lock.release();
    await (await waiting).release();
  });

  test("shows the readers that share it, then the writer and the reader behind it", async () => {
    const name = "inspect/rwlock";
    const reads = await Promise.all(
      [two.holder, two.session].map((each) => new RwLock(each, name).readLock()),
    );
    const write = new RwLock(two.session, name).writeLock();
    await two.queued(name, 3);
    const late = new RwLock(two.holder, name).readLock();
    await two.queued(name, 4);

    const { kind, holders, waiters } = await inspect(two.cluster, name);

    expect(kind).toBe("rwlock");
    expect(holders.map(({ key }) => key).sort()).toEqual(reads.map(({ key }) => key).sort());
    expect(waiters.map(({ key }) => key.split("/")[2])).toEqual(["write", "read"]);
    await Promise.all(reads.map((read) => read.release()));
    await (await write).release();
    await (await late).release();
  });

  test("shows as many holders of a semaphore as the oldest entry says, more than are reported", async () => {
    const name = "inspect/semaphore";
    const semaphore = new Semaphore(two.holder, name, 3);
    const permits = await Promise.all(Array.from({ length: 3 }, () => semaphore.acquire()));
    const waiting = [
      new Semaphore(two.session, name, 3).acquire(),
      new Semaphore(two.session, name, 3).acquire(),
    ];
    await two.queued(name, 5);

    const all = await inspect(two.cluster, name);
    const one = await inspect(two.cluster, name, { limit: 1 });

    expect(all).toMatchObject({ kind: "semaphore", total: { holders: 3, waiters: 2 } });
    expect(all.holders.map(({ key }) => key).sort()).toEqual(permits.map(({ key }) => key).sort());
    expect(one.total).toEqual(all.total);
    expect([one.holders.length, one.waiters.length]).toEqual([1, 1]);
    expect(ownersOf(one.waiters)).toEqual(ownersOf(all.waiters.slice(0, 1)));
    await Promise.all(permits.map((permit) => permit.release()));
    for (const permit of await Promise.all(waiting)) await permit.release();
  });

  test("shows the leader of an election as its holder, with its value", async () => {
    const name = "inspect/election";
    const leadership = await new Election(two.holder, name).campaign("at host:17");

    const state = await inspect(two.cluster, name);

    const leader = { key: leadership.key, owner: undefined, value: "at host:17" };
    expect(state).toMatchObject({ kind: "election", holders: [leader] });
    await leadership.resign();
  });

  test("shows the entries of etcdctl lock before and behind those of this library", async () => {
    const name = "inspect/etcdctl";
    await using first = new EtcdctlLock(two.etcd, name);
    const key = await first.held;
    const waiting = new Mutex(two.holder, name).lock();
    await two.queued(name, 2);
    await using third = new EtcdctlLock(two.etcd, name);
    await two.queued(name, 3);

    const { kind, holders, waiters } = await inspect(two.cluster, name);

    expect(kind).toBe("mutex");
    expect(holders).toMatchObject([{ key, owner: undefined, since: undefined }]);
    expect(holders[0]?.ttlRemainingMs).toBeGreaterThan(0);
    expect(ownersOf(waiters)).toEqual(["the holder", undefined]);
    await third.release();
    await first.release();
    await (await waiting).release();
  });
});

describe("keys of other programs under the name", () => {
  test("hold if a lock would wait for them, whatever their bytes and values are", async () => {
    const name = "inspect/junk";
    const { member } = two.etcd;
    const big = "x".repeat(256 * 1024);
    const base64 = (bytes: string | Buffer) => Buffer.from(bytes as string).toString("base64");
    const binary = Buffer.concat([Buffer.from(`${name}/`), Buffer.of(0xff, 0, 0xfe)]);
    await member.gateway("/v3/kv/put", { key: base64(binary), value: base64(Buffer.of(0xff, 0xfe)) });
    const leaseId = await grantLease(member, 60);
    await putKeys(
      member,
      Array.from({ length: 5 }, (_, n) => `${name}/big${n}`),
      { value: big, atOnce: 1 },
    );
    const owned = JSON.stringify({ owner: "\u001b[31m".repeat(6000), since: "never", id: "x" });
    await putKeys(member, [`${name}/6a1f`], { leaseId, value: owned });

    const { kind, holders, waiters } = await inspect(two.cluster, name);
    const timedOut = await reasonOf(new Mutex(two.cluster, name).lock({ timeoutMs: 1000 }));

    expect(kind).toBe("mutex");
    expect(holders).toMatchObject([{ key: `${name}/\ufffd\u0000\ufffd`, leaseId: 0n, owner: undefined }]);
    expect(holders[0]?.ttlRemainingMs).toBeUndefined();
    expect(waiters.map(({ key }) => key)).toEqual([
      ...[0, 1, 2, 3, 4].map((n) => `${name}/big${n}`),
      `${name}/6a1f`,
    ]);
    expect(waiters.at(-1)?.owner).toHaveLength(256);
    expect(timedOut).toMatchObject({ code: "LOCK_TIMEOUT", ahead: 7, holder: { key: holders[0]?.key } });
  });

  test("may be as long as a request to etcd has room for", async () => {
    const name = "inspect/long";
    const keys = Array.from({ length: 5 }, (_, n) => `${name}/${n}${"/x".repeat(250_000)}`);
    await putKeys(two.etcd.member, [`${name}/6a1f`, ...keys], { atOnce: 1 });

    const { holders, waiters } = await inspect(two.cluster, name);

    expect(holders).toMatchObject([{ key: `${name}/6a1f` }]);
    expect(waiters.map(({ key }) => key.length)).toEqual(keys.map(({ length }) => length));
  });

  test("of one transaction, more than fit in a page, are all counted", async () => {
    const name = "inspect/crowd";
    const leaseId = await grantLease(two.etcd.member, 60);
    const keys = Array.from({ length: 2500 }, (_, n) => `${name}/${(n + 256).toString(16)}`);
    await putKeys(two.etcd.member, keys, { leaseId });

    const { holders, waiters, total } = await inspect(two.cluster, name, { limit: 3 });
    const timedOut = await reasonOf(new Mutex(two.cluster, name).lock({ timeoutMs: 4000 }));

    expect(timedOut).toMatchObject({ code: "LOCK_TIMEOUT", ahead: 2500, holder: { key: keys[0] } });
    expect(total).toEqual({ holders: 1, waiters: 2499 });
    expect([...holders, ...waiters].map(({ key }) => key)).toEqual(keys.slice(0, 4));
  });
});

describe("a user who may only read", () => {
  const READER = { username: "reader", password: "reader-secret" };
  let users: UserEtcd;
  beforeAll(async () => {
    users = await startWithUsers();
    await users.addUser(READER, "jobs/", "read");
  }, 60_000);
  afterAll(() => users.stop());

  test("sees the queue, with the TTL of a lease that has keys which this user may not read", async () => {
    await using owner = connect({
      hosts: users.endpoints,
      auth: { username: "root", password: "root-secret" },
    });
    const session = await Session.open(owner, { ttlSeconds: TTL_SECONDS, owner: "root" });
    await new Mutex(session, "secret/x").lock();
    await new Mutex(session, "jobs/x").lock();
    await using cluster = connect({ hosts: users.endpoints, auth: READER });

    const { holders } = await inspect(cluster, "jobs/x");
    const refused = await reasonOf(inspect(cluster, "secret/x"));
    const unwritten = await reasonOf(forceRelease(cluster, holders[0]!));
    const states = watchQueue(cluster, "jobs/x");
    const { value: state } = (await states.next()) as IteratorYieldResult<QueueState>;
    await states.return?.();

    expect(holders).toMatchObject([{ owner: "root" }]);
    expect(holders[0]?.ttlRemainingMs).toBeGreaterThan(0);
    expect(refused).toMatchObject({ code: "ETCD_REFUSED", reason: "permission" });
    expect(unwritten).toMatchObject({ code: "ETCD_REFUSED", reason: "permission" });
    expect(state.holders).toMatchObject([{ owner: "root", revision: holders[0]?.revision }]);
  });
});

describe("inspect()", () => {
  test("opens no session", async () => {
    await using cluster = connect({ hosts: two.etcd.endpoints });
    const before = await leasesOf(two.etcd.member);

    await inspect(cluster, "inspect/none");
    await list(cluster, "inspect/");
    for await (const { name } of watchQueue(cluster, "inspect/none")) if (name) break;

    // Leases of tests before this one may end.
    const after = await leasesOf(two.etcd.member);
    expect([...after].filter((id) => !before.has(id))).toEqual([]);
  });

  test("gives up after its time when etcd is silent, at once when its caller does, and with its cluster", async () => {
    await using proxy = await startTcpProxy({ port: two.etcd.member.clientPort });
    const cluster = connect({ hosts: proxy.endpoint, requestTimeoutMs: 100 });
    await inspect(cluster, "inspect/silence");
    await proxy.mode("refuse");

    expect(await reasonOf(inspect(cluster, "inspect/silence", { timeoutMs: 300 }))).toMatchObject({
      code: "ETCD_UNAVAILABLE",
    });
    const caller = new AbortController();
    const asked = reasonOf(inspect(cluster, "inspect/silence", { signal: caller.signal }));
    caller.abort("enough");
    expect(await asked).toBe("enough");
    expect(await reasonOf(inspect(cluster, "inspect/silence", { signal: caller.signal }))).toBe("enough");
    const closed = reasonOf(inspect(cluster, "inspect/silence"));
    await cluster.close();
    expect(await closed).toMatchObject({ code: "SESSION_CLOSED" });
    expect(await reasonOf(inspect(cluster, "inspect/silence"))).toMatchObject({ code: "SESSION_CLOSED" });
  });

  test.each([
    ["a bad name", () => inspect(two.cluster, "a//b")],
    ["an unknown option", () => inspect(two.cluster, "a", { limt: 1 } as never)],
    ["a limit of 0", () => inspect(two.cluster, "a", { limit: 0 })],
    ["a session in the place of a cluster", () => inspect(two.session as never, "a")],
  ])("rejects %s", async (_, call) => {
    expect(await reasonOf(call())).toSatisfy(
      (error) => error instanceof TypeError || error instanceof RangeError,
    );
  });
});
