import { describe, test } from "vitest";
import { type Cluster, connect, Mutex, type QueueWaitOptions } from "../../../src/index.js";
import { CHANNELS, type RejoinMessage } from "../../../src/base/telemetry/index.js";
import { leaseOf } from "../../../src/lock/session/cluster.js";
import { takesPlace } from "../../support/clients/request-shape.js";
import { Lines } from "../../support/fixtures/log-world.js";
import { Messages } from "../../support/fixtures/messages.js";
import { etcdOf, slug, WAITING_CALLS } from "../../support/fixtures/subjects.js";
import { reasonOf, twoSessions } from "../../support/fixtures/two-sessions.js";
import { startGrpcProxy } from "../../support/proxies/grpc-proxy.js";

/** Renewals every 2 s notice that a waiter's lease was revoked. */
const TTL_SECONDS = 6;
const two = twoSessions(600);
const { queued, revoke } = etcdOf(two);
const open = (log?: Lines) =>
  connect({ hosts: two.etcd.endpoints, session: { ttlSeconds: TTL_SECONDS }, ...(log && { log }) });

/** Lease IDs in the queue, in its order. */
const leases = async (name: string) => (await two.places(name)).map(({ leaseId }) => leaseId);

/** A waiter behind a holder, in the queue. */
async function waiting(cluster: Cluster, name: string, options?: QueueWaitOptions) {
  const holder = await new Mutex(two.holder, name).lock();
  const call = new Mutex(cluster, name).lock(options);
  call.catch(() => undefined);
  await queued(name, 2);
  return { holder, call, session: await cluster.session() };
}

describe.concurrent.each(WAITING_CALLS)("%s with rejoin", { timeout: 40_000 }, (what, subject, call) => {
  test("joins the queue again with the next session when its own is revoked, and is granted", async ({
    expect,
  }) => {
    await using cluster = open();
    const name = `revoked/${slug(what)}`;
    const holder = await subject.block(two.holder, name);
    const done = call(cluster, name, {
      rejoin: true,
      timeoutMs: 30_000,
      signal: new AbortController().signal,
    });
    await queued(name, 2);
    const session = await cluster.session();

    await revoke(session);
    await expect
      .poll(() => leases(name), { timeout: 20_000 })
      .toEqual([two.holder.leaseId, expect.not.toSatisfy((id) => id === session.leaseId)]);
    await holder.release();

    expect(await done).toBe("held");
    await expect.poll(() => leases(name)).toEqual([]);
  });

  test("rejects with a TypeError at once with a Session, which has no next one", async ({ expect }) => {
    const reason = await reasonOf(call(two.session, `own/${slug(what)}`, { rejoin: true }));

    expect(reason).toBeInstanceOf(TypeError);
    expect(`${reason as Error}`).toMatch(
      /^TypeError: Option rejoin of \w+ needs a Cluster: a Session has no next session/,
    );
    await expect(call(two.session, `own/${slug(what)}`, { rejoin: false })).resolves.toBe("held");
  });

  test("rejects anything but true or false", async ({ expect }) => {
    const rejoin = "yes" as unknown as boolean;
    await expect(call(two.cluster, "any", { rejoin })).rejects.toThrow(
      /^Expected rejoin to be true or false/,
    );
  });
});

describe.concurrent("a waiter with rejoin", { timeout: 40_000 }, () => {
  test("loses its place to those who joined before its new entry", async ({ expect }) => {
    await using cluster = open();
    const { holder, call, session } = await waiting(cluster, "order", { rejoin: true });
    const order: string[] = [];
    const behind = new Mutex(two.session, "order").withLock(() => order.push("behind"));
    await queued("order", 3);

    await revoke(session);
    await expect.poll(() => leases("order"), { timeout: 20_000 }).toHaveLength(3);
    const [, second, third] = await leases("order");
    expect([second, third]).toEqual([two.session.leaseId, (await cluster.session()).leaseId]);
    await holder.release();
    const lock = await call;
    order.push("rejoined");
    await behind;

    expect(order).toEqual(["behind", "rejoined"]);
    await lock.release();
  });

  test("joins again each time, and says so once for each", async ({ expect }) => {
    const log = new Lines();
    await using cluster = open(log);
    using messages = new Messages<RejoinMessage>(CHANNELS.rejoin, ({ name }) => name === "events");
    const { holder, call } = await waiting(cluster, "events", { rejoin: true });
    const ids: bigint[] = [];
    for (let n = 0; n < 3; n++) {
      const session = await cluster.session();
      ids.push(session.leaseId);
      await revoke(session);
      await expect.poll(() => leases("events"), { timeout: 20_000 }).not.toContain(session.leaseId);
      await queued("events", 2);
    }
    await holder.release();
    await (await call).release();

    expect(messages.all.map(({ leaseId }) => leaseId)).toEqual(ids);
    expect(messages.all[0]).toMatchObject({
      ...{ hosts: cluster.hosts, kind: "mutex", name: "events", names: ["events"] },
      ...{ error: { code: "SESSION_LOST", loss: "revoked" }, failures: 1, delayMs: 0 },
    });
    const line =
      /^warn leasehold: lost (?:the place|2 places) in the queue for "events" \(Session .*\); joining again$/;
    await expect.poll(() => log.all.filter((each) => line.test(each))).not.toEqual([]);
  });

  test("joins again when its user closes the standing session, and ends with the cluster", async ({
    expect,
  }) => {
    const cluster = open();
    const { holder, call, session } = await waiting(cluster, "closed", { rejoin: true });

    await session.close();
    await queued("closed", 2);
    expect((await leases("closed"))[1]).toBe((await cluster.session()).leaseId);
    const reason = reasonOf(call);
    await cluster.close();

    expect(await reason).toMatchObject({ code: "SESSION_CLOSED" });
    await holder.release();
    expect(await leases("closed")).toEqual([]);
  });

  test("has one time limit for all attempts", async ({ expect }) => {
    await using cluster = open();
    const start = performance.now();
    const { holder, call, session } = await waiting(cluster, "limit", { rejoin: true, timeoutMs: 6000 });
    const ended = reasonOf(call);
    await revoke(session);

    const reason = await ended;

    expect(reason).toMatchObject({ code: "LOCK_TIMEOUT", timeoutMs: 6000, lockName: "limit", ahead: 1 });
    expect(performance.now() - start).toBeLessThan(12_000);
    await expect.poll(() => leases("limit")).toEqual([two.holder.leaseId]);
    await holder.release();
  });

  test("rejects with the reason of an abort after it has joined again, and leaves the queue", async ({
    expect,
  }) => {
    await using cluster = open();
    const abort = new AbortController();
    const { call, holder, session } = await waiting(cluster, "abort", { rejoin: true, signal: abort.signal });
    await revoke(session);
    await expect.poll(() => leases("abort"), { timeout: 20_000 }).not.toContain(session.leaseId);
    await queued("abort", 2);
    abort.abort(new Error("enough"));

    expect(await reasonOf(call)).toBe(abort.signal.reason);
    await queued("abort", 1);
    await holder.release();
  });

  test("is granted although the old lease outlives its session in etcd, with its entry", async ({
    expect,
  }) => {
    await using proxy = await startGrpcProxy({ port: two.etcd.member.clientPort });
    await using cluster = connect({ hosts: proxy.endpoint, session: { ttlSeconds: 4 } });
    const name = "outlives";
    const { holder, call, session } = await waiting(cluster, name, { rejoin: true });
    // The process believes that its lease is over, and cannot revoke it: its entry stays in the queue.
    const revocations = proxy.rule({
      path: "/etcdserverpb.Lease/LeaseRevoke",
      when: () => true,
      act: "drop-request",
    });
    leaseOf(session).lose("expired");
    await queued(name, 3);
    expect(await leases(name)).toEqual([
      two.holder.leaseId,
      session.leaseId,
      (await cluster.session()).leaseId,
    ]);
    await holder.release();

    const lock = await call;

    expect(revocations.hits).toBeGreaterThan(0);
    expect(await leases(name)).toEqual([(await cluster.session()).leaseId]);
    await lock.release();
  });

  test("ends with EtcdRefusedError when etcd rejects the new entry", async ({ expect }) => {
    await using proxy = await startGrpcProxy({ port: two.etcd.member.clientPort });
    await using cluster = connect({ hosts: proxy.endpoint, session: { ttlSeconds: TTL_SECONDS } });
    const { holder, call, session } = await waiting(cluster, "refused", { rejoin: true });
    const status = { code: 7, details: "etcdserver: permission denied" };
    proxy.rule({ path: "/etcdserverpb.KV/Txn", when: takesPlace, act: "refuse", status });
    const reason = reasonOf(call);
    await revoke(session);

    expect(await reason).toMatchObject({ code: "ETCD_REFUSED", reason: "permission" });
    await holder.release();
  });
});

describe.concurrent("a loss after the grant", () => {
  test("is a LockLostError with rejoin, too, and the call is not repeated", async ({ expect }) => {
    await using cluster = open();
    let runs = 0;
    const work = new Mutex(cluster, "granted").withLock(
      async (lock) => {
        runs++;
        await revoke(await cluster.session());
        await new Promise((resolve) => lock.signal.addEventListener("abort", resolve));
      },
      { rejoin: true },
    );

    await expect(work).rejects.toMatchObject({ code: "LOCK_LOST", loss: "revoked" });
    expect(runs).toBe(1);
  });
});
