// The requirements of the tests of etcd's Go client, of npm's etcd3 and of redis-semaphore for renewals that are not
// answered, or come late.
import { afterAll, beforeAll, describe, test } from "vitest";
import { type EtcdCluster, startEtcd } from "../../support/etcd/etcd.js";
import { observe } from "../../support/clients/observer.js";
import { startTcpProxy, type TcpProxy } from "../../support/proxies/tcp-proxy.js";
import { abortOf, deadlineOf, openClient } from "../../support/clients/session-client.js";
import { revoke } from "../../support/clients/lease-calls.js";
import { placesOf } from "../../support/clients/server-view.js";
import { reasonOf } from "../../support/fixtures/two-sessions.js";

const TTL_SECONDS = 2;
const TTL_MS = TTL_SECONDS * 1000;

let etcd: EtcdCluster;

beforeAll(async () => void (etcd = await startEtcd()), 60_000);
afterAll(() => etcd.stop());

describe.concurrent("a lock", () => {
  const silences: [string, number, (proxy: TcpProxy) => unknown][] = [
    ["its first renewal on nothing is answered", 0, (proxy) => proxy.mode("blackhole")],
    ["its second renewal on nothing is answered", 1, (proxy) => proxy.mode("blackhole")],
    [
      "its first renewal on no answer comes back, though the renewals arrive",
      0,
      (proxy) => proxy.drop("answers"),
    ],
  ];

  test.for(silences)(
    "is over at its deadline, before etcd gives it away, when from %s",
    async ([, renewals, silence], { expect }) => {
      const name = `silence/${renewals}-${silences.findIndex(([, , it]) => it === silence)}`;
      using server = await observe(etcd.member.endpoint, `${name}/`);
      await using proxy = await startTcpProxy({ port: etcd.member.clientPort });
      await using client = await openClient(proxy.endpoint, TTL_SECONDS);
      const lock = await client.mutex(name).lock();
      const granted = deadlineOf(client.session);
      const renewed = () => deadlineOf(client.session) > granted + TTL_MS / 6;
      if (renewals > 0) await expect.poll(renewed, { interval: 5 }).toBe(true);

      silence(proxy);
      const deadline = deadlineOf(client.session);
      const reason = await abortOf(lock.signal);
      const told = { at: process.hrtime.bigint(), late: performance.now() - deadline };
      const deletion = await server.deleted(lock.key, lock.fence);

      expect(reason).toMatchObject({ code: "LOCK_LOST", loss: "expired", cause: { code: "SESSION_LOST" } });
      expect(client.states.at(-1)).toBe("lost");
      expect(told.late).toBeGreaterThan(-TTL_MS / 20);
      expect(told.at).toBeLessThan(deletion.at);
      await proxy.mode("pass");
      proxy.drop(undefined);
    },
  );

  test("is lost as revoked, not as expired, when its lease was revoked while its client was cut off", async ({
    expect,
  }) => {
    await using proxy = await startTcpProxy({ port: etcd.member.clientPort });
    await using client = await openClient(proxy.endpoint, 30);
    const lock = await client.mutex("cut-off").lock();
    const deadline = deadlineOf(client.session);

    await proxy.mode("refuse");
    await revoke(etcd.member, client.session.leaseId);
    await proxy.mode("pass");

    const reason = await abortOf(lock.signal);
    expect(performance.now()).toBeLessThan(deadline);
    await expect
      .poll(() => reason)
      .toMatchObject({
        code: "LOCK_LOST",
        loss: "revoked",
        cause: { code: "SESSION_LOST", loss: "revoked" },
      });
  });

  test("outlives a connection that breaks again and again, when each time it comes back", async ({
    expect,
  }) => {
    await using proxy = await startTcpProxy({ port: etcd.member.clientPort });
    await using client = await openClient(proxy.endpoint, 3 * TTL_SECONDS);
    const lock = await client.mutex("flapping").lock();

    for (let broken = 0; broken < 4; broken++) {
      const deadline = deadlineOf(client.session);
      await proxy.mode("refuse");
      await proxy.mode("pass");
      // A new stream renews at once, which moves the deadline.
      await expect
        .poll(() => deadlineOf(client.session), { timeout: 3 * TTL_MS })
        .toBeGreaterThan(deadline + 10);
    }

    expect(client.states).not.toContain("lost");
    expect(lock.held).toBe(true);
    await lock.release();
    expect(lock.signal.reason).toMatchObject({ code: "LOCK_RELEASED" });
  });

  test("of an orphaned session that nobody adopts is free for the next one when its lease has run out", async ({
    expect,
  }) => {
    const name = "orphan";
    using server = await observe(etcd.member.endpoint, `${name}/`);
    await using client = await openClient(etcd.endpoints, TTL_SECONDS);
    const lock = await client.mutex(name).lock();
    await using rival = await openClient(etcd.endpoints, 20);
    const waiting = rival.mutex(name).lock();
    await server.first(({ type, key }) => type === "PUT" && key !== lock.key);

    await client.session.orphan();
    const next = await waiting;
    await server.deleted(lock.key, lock.fence);

    expect(next.fence).toBeGreaterThan(lock.fence);
    expect(lock.held).toBe(false);
    await next.release();
  });
});

describe.concurrent("a release", () => {
  test.for(["grant", "refuse"])(
    "is no loss when a renewal is in flight that etcd will %s",
    async (what, { expect, onTestFinished }) => {
      const refused = what === "refuse";
      const ttlSeconds = 6;
      const name = `in-flight/${what}`;
      const unhandled: unknown[] = [];
      const note = (reason: unknown) => void unhandled.push(reason);
      process.on("unhandledRejection", note);
      onTestFinished(() => void process.off("unhandledRejection", note));
      await using proxy = await startTcpProxy({ port: etcd.member.clientPort });
      await using client = await openClient(proxy.endpoint, ttlSeconds);
      const lock = await client.mutex(name).lock();
      const deadline = deadlineOf(client.session);

      await proxy.mode("pause");
      // The renewal that is due after a third of the TTL has been sent.
      const due = 1000 * ttlSeconds * (0.9 - 1 / 3);
      await expect
        .poll(() => client.session.remainingMs(), { timeout: 5000, interval: 5 })
        .toBeLessThan(due - 20);
      const released = reasonOf(lock.release());
      if (refused) await revoke(etcd.member, client.session.leaseId);
      await proxy.mode("pass");
      const failure = await released;

      expect(lock.signal.reason).toMatchObject({ code: "LOCK_RELEASED" });
      if (refused) expect(await abortOf(client.session.signal)).toMatchObject({ loss: "revoked" });
      else {
        expect(failure).toBe(undefined);
        await expect
          .poll(() => deadlineOf(client.session), { timeout: 1000 * ttlSeconds })
          .toBeGreaterThan(deadline + 50);
        expect(client.states).not.toContain("lost");
      }
      expect(await placesOf(etcd.member, name)).toEqual([]);
      expect(unhandled).toEqual([]);
    },
  );
});
