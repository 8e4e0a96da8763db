// The requirements of Curator's tests of its locks and leader latches, and of etcd's of `etcdctl lock`, for a mutex.
import { describe, expect, test } from "vitest";
import { connect, Mutex } from "../../../src/index.js";
import { startGrpcProxy } from "../../support/proxies/grpc-proxy.js";
import { EtcdctlLock } from "../../support/clients/etcdctl-lock.js";
import { observe } from "../../support/clients/observer.js";
import { freePorts } from "../../support/servers/ports.js";
import { givesBack, takesPlace } from "../../support/clients/request-shape.js";
import { startTcpProxy } from "../../support/proxies/tcp-proxy.js";
import { reasonOf, twoSessions } from "../../support/fixtures/two-sessions.js";
import { type Client, openClient, queued, settledYet } from "../../support/clients/session-client.js";
import { revoke } from "../../support/clients/lease-calls.js";

const TTL_SECONDS = 3;
const TXN = "/etcdserverpb.KV/Txn";
const RANGE = "/etcdserverpb.KV/Range";

const two = twoSessions(20);
const { places } = two;

/**
 * When this client's next hold of another name has been granted and released, it has handled all earlier notifications.
 */
const settle = (client: Pick<Client, "mutex">) => client.mutex("settled").withLock(() => undefined);

/** A client with its own connection. */
async function behindGrpcProxy(ttlSeconds = TTL_SECONDS) {
  const proxy = await startGrpcProxy({ port: two.etcd.member.clientPort });
  const client = await openClient(proxy.endpoint, ttlSeconds);
  const end = async () => {
    await client[Symbol.asyncDispose]();
    await proxy.stop();
  };
  return { ...client, proxy, [Symbol.asyncDispose]: end };
}

describe("a wait that fails after it has joined the queue leaves no key", () => {
  test.each([
    ["none of its reads is answered", { path: RANGE, act: "drop-answer" }],
    ["its first deletes never arrive", { path: TXN, act: "drop-request", when: givesBack, times: 2 }],
    ["its first deletes are never answered", { path: TXN, act: "drop-answer", when: givesBack, times: 2 }],
  ] as const)("though %s", async (what, rule) => {
    const name = `faults/${what}`;
    await using client = await behindGrpcProxy();
    const lock = await new Mutex(two.holder, name).lock();
    const fault = client.proxy.rule(rule);

    const reason = await reasonOf(client.mutex(name).lock({ timeoutMs: 200 }));
    await fault.hit(rule.path === TXN ? 2 : 1);
    await queued(two.etcd.member, name, 1);

    expect(reason).toMatchObject({ code: "LOCK_TIMEOUT" });
    expect((await places(name)).map(({ revision }) => revision)).toEqual([lock.fence]);
    expect(client.session.state).not.toBe("lost");
    await lock.release();
  });
});

describe("a release is not missed by a waiter", () => {
  test("that has no connection at that moment", async () => {
    const name = "missed/cut";
    await using proxy = await startTcpProxy({ port: two.etcd.member.clientPort });
    await using client = await openClient(proxy.endpoint, 20);
    const lock = await new Mutex(two.holder, name).lock();
    const waiting = client.mutex(name).lock();
    await two.queued(name, 2);

    await proxy.mode("refuse");
    await lock.release();
    await two.queued(name, 1);
    await proxy.mode("pass");

    const next = await waiting;
    expect(next.fence).toBeGreaterThan(lock.fence);
    await next.release();
  });

  test("that has joined, but not heard of it yet, and watches nothing", async () => {
    const name = "missed/joining";
    await using proxy = await startTcpProxy({ port: two.etcd.member.clientPort });
    await using client = await openClient(proxy.endpoint, 20);
    using server = await observe(two.etcd.member.endpoint, `${name}/`);
    const lock = await new Mutex(two.holder, name).lock();
    for (const connection of proxy.connections) connection.delay(300, "answers");

    const waiting = client.mutex(name).lock();
    const granted = settledYet(waiting);
    const join = await server.first(({ type, key }) => type === "PUT" && key !== lock.key);
    await lock.release();
    expect(granted()).toBe(false);

    const next = await waiting;
    expect(next.fence).toBe(join.create);
    await next.release();
  });

  test("behind an etcdctl that gives up is served when the holder releases, and not before", async () => {
    const name = "waiter/etcdctl";
    await using holder = await openClient(two.etcd.endpoints, 20);
    await using waiter = await openClient(two.etcd.endpoints, 20);
    const lock = await holder.mutex(name).lock();
    await using quitter = new EtcdctlLock(two.etcd, name);
    await queued(two.etcd.member, name, 2);
    const waiting = waiter.mutex(name).lock();
    const granted = settledYet(waiting);
    await queued(two.etcd.member, name, 3);

    await quitter.release();
    await queued(two.etcd.member, name, 2);
    await settle(waiter);
    expect([quitter.holds, granted(), lock.held]).toEqual([false, false, true]);
    await lock.release();

    await (await waiting).release();
  });

  test("is served though its connection broke and etcd has forgotten all revisions since it came", async () => {
    const name = "waiter/compacted";
    await using proxy = await startTcpProxy({ port: two.etcd.member.clientPort });
    await using holder = await openClient(two.etcd.endpoints, 20);
    await using waiter = await openClient(proxy.endpoint, 20);
    const lock = await holder.mutex(name).lock();
    const waiting = waiter.mutex(name).lock();
    await queued(two.etcd.member, name, 2);

    for (let write = 0; write < 10; write++) await settle(holder);
    const { revision } = await two.etcd.member.status();
    await two.etcd.member.gateway("/v3/kv/compaction", { revision: revision.toString(), physical: true });
    proxy.reset();
    await lock.release();

    const next = await waiting;
    expect(next.fence).toBeLessThan(revision);
    await next.release();
  });
});

describe("while a join is on its way to etcd,", () => {
  const joining = { path: TXN, act: "hold", when: takesPlace, times: 1 } as const;

  test("an abort and a second lock() come to one place, which holds", async () => {
    const name = "race/again";
    await using client = await behindGrpcProxy(20);
    const join = client.proxy.rule(joining);
    const caller = new AbortController();
    const first = reasonOf(client.mutex(name).lock({ signal: caller.signal }));
    await join.hit();

    caller.abort("again");
    const second = client.mutex(name).lock();
    join.release();

    expect(await first).toBe("again");
    const lock = await second;
    await queued(two.etcd.member, name, 1);
    expect((await places(name))[0]).toMatchObject({ key: lock.key, revision: lock.fence });
    await lock.release();
  });

  test("the end of its lease rejects it, and the work is not begun", async () => {
    const name = "race/lease";
    await using client = await behindGrpcProxy(20);
    const join = client.proxy.rule(joining);
    let worked = false;
    const working = reasonOf(client.mutex(name).withLock(() => void (worked = true)));
    await join.hit();

    await revoke(two.etcd.member, client.session.leaseId);
    join.release();

    expect(await working).toMatchObject({ code: "SESSION_LOST", loss: "revoked" });
    expect([worked, await places(name)]).toEqual([false, []]);
  });
});

describe("a cluster that never reached its etcd", () => {
  test("can be closed, and tells whoever waits for it", async () => {
    const [port] = await freePorts(1);
    const cluster = connect({ hosts: `http://127.0.0.1:${port}`, requestTimeoutMs: 300 });
    const waiting = [reasonOf(new Mutex(cluster, "never").lock()), reasonOf(cluster.session())];

    await cluster.close();

    for (const reason of await Promise.all(waiting)) expect(reason).toMatchObject({ code: "SESSION_CLOSED" });
  });
});
