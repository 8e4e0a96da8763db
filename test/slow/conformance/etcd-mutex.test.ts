// The requirements of etcd's own tests of `concurrency.Mutex`, of its lock recipes and of `etcdctl lock`.
import { afterAll, beforeAll, beforeEach, describe, expect, test } from "vitest";
import type { Lock } from "../../../src/index.js";
import { EtcdctlLock } from "../../support/clients/etcdctl-lock.js";
import { type EtcdCluster, startEtcd } from "../../support/etcd/etcd.js";
import { placesOf } from "../../support/clients/server-view.js";
import { startTcpProxy } from "../../support/proxies/tcp-proxy.js";
import { reasonOf } from "../../support/fixtures/two-sessions.js";
import { type Client, openClient, queued, settledYet } from "../../support/clients/session-client.js";

const TTL_SECONDS = 10;

let etcd: EtcdCluster;

beforeAll(async () => void (etcd = await startEtcd({ members: 3 })), 60_000);
afterAll(() => etcd.stop());

const places = (name: string) => placesOf(etcd.member, name);
/**
 * When this client's next hold of another name has been granted and released, it has handled all earlier notifications.
 */
const settle = (client: Client) => client.mutex("settled").withLock(() => undefined);

describe.each([
  ["all on one member", () => 0],
  ["each on another member", (index: number) => index % 3],
])("five contenders, %s,", (where, memberOf) => {
  const name = (what: string) => `${where.replaceAll(" ", "-")}/${what}`;
  let clients: Client[];

  beforeEach(async () => {
    const hosts = Array.from({ length: 5 }, (_, index) => etcd.endpoints[memberOf(index)]!);
    clients = await Promise.all(hosts.map((host) => openClient(host, TTL_SECONDS)));
    return async () => {
      await Promise.all(clients.map((client) => client[Symbol.asyncDispose]()));
    };
  });

  test("hold one at a time, in the order of their places, and all are served", async () => {
    let inside = 0;
    const most: number[] = [];
    const fences: bigint[] = [];
    const work = async ({ fence }: Lock) => {
      most.push(++inside);
      fences.push(fence);
      // Long enough to detect a caller that does not wait.
      await places(name("lock"));
      inside--;
    };

    await Promise.all(clients.map((client) => client.mutex(name("lock")).withLock(work)));

    expect(most).toEqual([1, 1, 1, 1, 1]);
    expect(fences).toEqual([...fences].sort((a, b) => (a < b ? -1 : 1)));
    expect(await places(name("lock"))).toEqual([]);
  });

  test("that try at the same time get the lock once, and once more when it was given back", async () => {
    const tryAll = () => Promise.all(clients.map((client) => client.mutex(name("try")).tryLock()));

    const [first, ...others] = (await tryAll()).filter((lock) => lock !== undefined);
    expect(others).toEqual([]);
    expect(first?.held).toBe(true);
    expect((await tryAll()).filter((lock) => lock !== undefined)).toEqual([]);
    await first!.release();

    const again = (await tryAll()).filter((lock) => lock !== undefined);
    expect(again).toHaveLength(1);
    expect(again[0]!.fence).toBeGreaterThan(first!.fence);
    await again[0]!.release();
  });
});

describe("a waiter", () => {
  test("whose session is closed is told so, and never gets the lock that is given back a moment later", async () => {
    const name = "waiter/closed";
    await using holder = await openClient(etcd.endpoints, TTL_SECONDS);
    await using waiter = await openClient(etcd.endpoints, TTL_SECONDS);
    const lock = await holder.mutex(name).lock();
    const waiting = reasonOf(waiter.mutex(name).lock());
    await queued(etcd.member, name, 2);

    const closed = waiter.session.close();
    await lock.release();

    expect(await waiting).toMatchObject({ code: "SESSION_CLOSED", leaseId: waiter.session.leaseId });
    await closed;
    expect(await places(name)).toEqual([]);
  });

  test("does not take the end of the waiter before it for its own turn", async () => {
    const name = "waiter/third";
    await using holder = await openClient(etcd.endpoints, TTL_SECONDS);
    await using victim = await openClient(etcd.endpoints, TTL_SECONDS);
    await using third = await openClient(etcd.endpoints, TTL_SECONDS);
    const lock = await holder.mutex(name).lock();
    const lost = reasonOf(victim.mutex(name).lock());
    await queued(etcd.member, name, 2);
    const waiting = third.mutex(name).lock();
    const granted = settledYet(waiting);
    await queued(etcd.member, name, 3);

    await victim.session.close({ drainMs: 0 });
    await queued(etcd.member, name, 2);
    await settle(third);
    expect([granted(), lock.held]).toEqual([false, true]);
    await lock.release();

    const next = await waiting;
    expect(next.fence).toBeGreaterThan(lock.fence);
    expect(await lost).toMatchObject({ code: "SESSION_CLOSED" });
    await next.release();
  });

  test("behind an etcdctl that gives up is served when the holder releases, and not before", async () => {
    const name = "waiter/etcdctl";
    await using holder = await openClient(etcd.endpoints, TTL_SECONDS);
    await using waiter = await openClient(etcd.endpoints, TTL_SECONDS);
    const lock = await holder.mutex(name).lock();
    await using quitter = new EtcdctlLock(etcd, name);
    await queued(etcd.member, name, 2);
    const waiting = waiter.mutex(name).lock();
    const granted = settledYet(waiting);
    await queued(etcd.member, name, 3);

    await quitter.release();
    await queued(etcd.member, name, 2);
    await settle(waiter);
    expect([quitter.holds, granted(), lock.held]).toEqual([false, false, true]);
    await lock.release();

    await (await waiting).release();
  });

  test("is served though its connection broke and etcd has forgotten all revisions since it came", async () => {
    const name = "waiter/compacted";
    await using proxy = await startTcpProxy({ port: etcd.member.clientPort });
    await using holder = await openClient(etcd.endpoints, TTL_SECONDS);
    await using waiter = await openClient(proxy.endpoint, TTL_SECONDS);
    const lock = await holder.mutex(name).lock();
    const waiting = waiter.mutex(name).lock();
    await queued(etcd.member, name, 2);

    for (let write = 0; write < 10; write++) await settle(holder);
    const { revision } = await etcd.member.status();
    await etcd.member.gateway("/v3/kv/compaction", { revision: revision.toString(), physical: true });
    proxy.reset();
    await lock.release();

    const next = await waiting;
    expect(next.fence).toBeLessThan(revision);
    await next.release();
  });
});

describe("a name", () => {
  test("is not held up by keys and locks whose names only begin alike", async () => {
    await using client = await openClient(etcd.endpoints, TTL_SECONDS);
    const held: Lock[] = [];
    for (const alike of ["alike", "alike/testa", "alike/test-2"]) held.push(await client.mutex(alike).lock());
    for (const key of ["alike/test", "alike/testa", "alike/tes"])
      await etcd.etcdctl(["put", key, "somebody's data"]);

    const lock = await client.mutex("alike/test").tryLock();

    expect(lock?.held).toBe(true);
    for (const each of [lock!, ...held]) await each.release();
  });
});
