// The requirements of Curator's tests of its locks and leader latches, expressed with a mutex and its session.
import { describe, expect, test } from "vitest";
import { connect, type Lock, Mutex } from "../../../src/index.js";
import { startGrpcProxy } from "../../support/proxies/grpc-proxy.js";
import { observe } from "../../support/clients/observer.js";
import { freePorts } from "../../support/servers/ports.js";
import { givesBack, takesPlace } from "../../support/clients/request-shape.js";
import { startTcpProxy } from "../../support/proxies/tcp-proxy.js";
import { reasonOf, twoSessions } from "../../support/fixtures/two-sessions.js";
import {
  abortOf,
  type Client,
  openClient,
  queued,
  settledYet,
} from "../../support/clients/session-client.js";
import { revoke } from "../../support/clients/lease-calls.js";

const TTL_SECONDS = 3;
const TXN = "/etcdserverpb.KV/Txn";
const RANGE = "/etcdserverpb.KV/Range";

const two = twoSessions(20);
const { places } = two;

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

  test("the closing of its session rejects it, and it leaves no key", async () => {
    const name = "race/close";
    await using client = await behindGrpcProxy();
    const join = client.proxy.rule(joining);
    const waiting = reasonOf(client.mutex(name).lock());
    await join.hit();

    await client.session.close();
    join.release();
    await join.answered();

    expect(await waiting).toMatchObject({ code: "SESSION_CLOSED" });
    expect(await places(name)).toEqual([]);
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

describe("a holder", () => {
  test("whose session was interrupted waits behind the one who came after it, and never holds beside it", async () => {
    const name = "interrupted";
    await using cluster = connect({ hosts: two.etcd.endpoints, session: { ttlSeconds: TTL_SECONDS } });
    const mutex = new Mutex(cluster, name);
    const lock = await mutex.lock();
    const waiting = new Mutex(two.session, name).lock();
    await two.queued(name, 2);

    await revoke(two.etcd.member, (await cluster.session()).leaseId);
    const next = await waiting;
    await abortOf(lock.signal);
    const again = mutex.lock();
    const granted = settledYet(again);
    await two.queued(name, 2);
    expect([lock.held, next.held, granted()]).toEqual([false, true, false]);
    await next.release();

    const last = await again;
    expect([lock.fence < next.fence, next.fence < last.fence, lock.held]).toEqual([true, true, false]);
    await last.release();
  });

  test("that closes its client hands the lock to the next one, long before its lease would have run out", async () => {
    const name = "client-close";
    const client = await openClient(two.etcd.endpoints, 20);
    const lock = await client.mutex(name).lock();
    const waiting = new Mutex(two.session, name).lock();
    await two.queued(name, 2);
    const deadline = performance.now() + client.session.remainingMs();

    await client.cluster.close({ drainMs: 0 });
    const next = await waiting;

    expect(performance.now()).toBeLessThan(deadline - 10_000);
    expect(lock.signal.reason).toMatchObject({ code: "LOCK_LOST", loss: "closed" });
    await next.release();
  });

  const ends: [string, (client: Client, lock: Lock) => unknown][] = [
    ["its release", (_, lock) => lock.release()],
    ["the deletion of its key", (_, lock) => two.etcd.etcdctl(["del", lock.key])],
    ["the revocation of its lease", ({ session }) => revoke(two.etcd.member, session.leaseId)],
    ["the closing of its session", ({ session }) => session.close({ drainMs: 0 })],
  ];

  test.each(ends)("is told its end once, by %s, whatever comes after it", async (what, end) => {
    const client = await openClient(two.etcd.endpoints, TTL_SECONDS);
    const lock = await client.mutex(`once/${what}`).lock();
    const told: unknown[] = [];
    lock.signal.addEventListener("abort", () => told.push(lock.signal.reason));

    await end(client, lock);
    const reason = await abortOf(lock.signal);
    await reasonOf(lock.release());
    await client.cluster.close({ drainMs: 0 });

    expect(told).toEqual([reason]);
    expect([lock.signal.reason, lock.held]).toEqual([reason, false]);
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
