// The differences from the standard that leases cause, with one test for each.
import { type ChildProcess, fork } from "node:child_process";
import { once } from "node:events";
import { fileURLToPath } from "node:url";
import { describe, expect, onTestFinished, test } from "vitest";
import {
  ClusterLockManager,
  connect,
  EtcdRefusedError,
  EtcdUnavailableError,
  LockLostError,
  Mutex,
  RwLock,
} from "../../../src/index.js";
import { queueNameOf } from "../../../src/recipes/web-locks/arguments.js";
import { startEtcd } from "../../support/etcd/etcd.js";
import { placesOf } from "../../support/clients/server-view.js";
import { owned } from "../../support/programs/owned.js";
import { Said } from "../../support/programs/said.js";
import { startTcpProxy } from "../../support/proxies/tcp-proxy.js";
import { reasonOf } from "../../support/fixtures/two-sessions.js";
import { spaceAlarm } from "../../support/fixtures/space-alarm.js";
import { startWithUsers, WORKER } from "../../support/fixtures/users.js";
import { counted, counts, holding, twoManagers } from "../../support/fixtures/web-locks.js";
import { abortOf, settledYet } from "../../support/clients/session-client.js";
import { revoke } from "../../support/clients/lease-calls.js";

/** Of a process that is killed. */
const TTL_SECONDS = 2;
const PROGRAM = fileURLToPath(new URL("../../support/programs/web-locks-program.js", import.meta.url));
const two = twoManagers(10);

/** A process that already holds the lock with this key. */
async function holder(name: string): Promise<ChildProcess & AsyncDisposable & { readonly key: string }> {
  const child = owned(fork(PROGRAM, [two.etcd.endpoints.join(), String(TTL_SECONDS), name]));
  const { holds } = await new Said(child).next<{ holds: string }>();
  expect(holds).toContain("web-locks/");
  const dispose = async () => {
    if (child.exitCode !== null || child.signalCode !== null) return;
    child.kill("SIGKILL");
    await once(child, "exit");
  };
  return Object.assign(child, { key: holds, [Symbol.asyncDispose]: dispose });
}

describe("a lock that is lost with its lease", () => {
  test("rejects its request with AbortError at once, whose cause says why; its callback runs on and is told", async () => {
    const held = await holding(two.locks, "lost");
    const { leaseId } = await two.cluster.session();
    let ran = false;
    const work = abortOf(held.lock.signal).then(() => (ran = true));

    await revoke(two.etcd.member, leaseId);

    const error = (await reasonOf(held.settled)) as DOMException;
    expect(error).toBeInstanceOf(DOMException);
    expect(error.name).toBe("AbortError");
    expect(error.cause).toBeInstanceOf(LockLostError);
    // The signal doesn't wait for the reason, which etcd gives a moment later.
    await expect.poll(() => error.cause).toMatchObject({ loss: "revoked", key: held.lock.key });
    expect(held.lock.signal.reason).toBe(error.cause);
    await work;
    expect(ran).toBe(true);
  });

  test("ends the request even if the callback fails afterwards, without an unhandled rejection", async () => {
    const unhandled: unknown[] = [];
    const listen = (reason: unknown) => unhandled.push(reason);
    process.on("unhandledRejection", listen);
    onTestFinished(() => void process.off("unhandledRejection", listen));
    const { leaseId } = await two.cluster.session();
    const request = two.locks.request("fails late", async (lock) => {
      await abortOf(lock!.signal);
      throw new Error("too late");
    });
    const reason = reasonOf(request);
    await counts(two.other, "fails late", 1, 0);

    await revoke(two.etcd.member, leaseId);

    expect(await reason).toMatchObject({ name: "AbortError" });
    await new Promise((resolve) => setImmediate(resolve));
    expect(unhandled).toEqual([]);
  });

  test("that was deleted by hand is lost as well", async () => {
    const held = await holding(two.locks, "deleted");

    await two.etcd.etcdctl(["del", held.lock.key]);

    expect(await reasonOf(held.settled)).toMatchObject({ name: "AbortError", cause: { loss: "deleted" } });
  });

  test("does not end the requests that wait: they join again with the next session, in the order of the calls", async () => {
    const held = await holding(two.other, "goes on");
    const order: number[] = [];
    const waiting = [1, 2, 3].map((n) => two.locks.request("goes on", () => void order.push(n)));
    await counts(two.other, "goes on", 1, 3);
    const { leaseId } = await two.cluster.session();

    await revoke(two.etcd.member, leaseId);
    await expect.poll(async () => (await two.cluster.session()).leaseId).not.toBe(leaseId);
    await counts(two.other, "goes on", 1, 3);
    expect(order).toEqual([]);
    await held.release();
    await Promise.all(waiting);

    expect(order).toEqual([1, 2, 3]);
  });

  test("leaves the manager as good as new", async () => {
    const { leaseId } = await two.cluster.session();
    await revoke(two.etcd.member, leaseId);

    await expect
      .poll(() => two.locks.request("new", () => "granted").catch((error: Error) => error.name))
      .toBe("granted");
  });
});

describe.concurrent("a process that ends", () => {
  test("without a word frees its locks when its lease is over, not at once", async ({ expect }) => {
    await using child = await holder("killed");
    const next = two.locks.request("killed", () => "granted");
    await expect.poll(() => counted(two.locks, "killed")).toEqual([1, 1]);

    child.kill("SIGKILL");
    await once(child, "exit");

    expect((await two.locks.query()).held.map(({ name }) => name)).toContain("killed");
    expect(await next).toBe("granted");
    expect((await placesOf(two.etcd.member, "web-locks")).map(({ key }) => key)).not.toContain(child.key);
  });

  test("can be stolen from before that: its signal and its request abort", async ({ expect }) => {
    await using child = await holder("stolen");
    const messages: unknown[] = [];
    child.on("message", (message) => messages.push(message));

    expect(await two.locks.request("stolen", { steal: true }, () => "granted")).toBe("granted");

    await expect.poll(() => messages, { timeout: 10_000 }).toHaveLength(2);
    expect(messages).toContainEqual({ aborted: "LOCK_LOST" });
    expect(messages).toContainEqual({ settled: "AbortError", cause: "LOCK_LOST" });
  });
});

describe.concurrent("an etcd that does not answer", () => {
  // Less than two of the 10 s that opening a session may take: requests do not wait for each other.
  test(
    "rejects with EtcdUnavailableError, not with a DOMException, when no session can be opened",
    { timeout: 15_000 },
    async ({ expect }) => {
      await using cluster = connect({ hosts: "127.0.0.1:1", requestTimeoutMs: 100 });
      const locks = new ClusterLockManager(cluster);

      const [request, attempt, query] = await Promise.all([
        reasonOf(locks.request("away", () => expect.unreachable("granted"))),
        reasonOf(locks.request("away", { ifAvailable: true }, () => expect.unreachable("called"))),
        reasonOf(locks.query()),
      ]);

      for (const reason of [request, attempt, query]) expect(reason).toBeInstanceOf(EtcdUnavailableError);
    },
  );

  test("rejects with EtcdRefusedError, not with a DOMException, when etcd refuses", async ({
    expect,
    onTestFinished,
  }) => {
    const etcd = await startWithUsers();
    onTestFinished(() => etcd.stop());
    await using cluster = connect({ hosts: etcd.endpoints, auth: WORKER });
    const forbidden = new ClusterLockManager(cluster);
    const allowed = new ClusterLockManager(cluster, { prefix: "jobs/web-locks" });

    const [request, attempt, query] = await Promise.all([
      reasonOf(forbidden.request("no", () => expect.unreachable("granted"))),
      reasonOf(forbidden.request("no", { ifAvailable: true }, () => expect.unreachable("called"))),
      reasonOf(forbidden.query()),
    ]);
    const held = await holding(allowed, "yes");
    expect(await allowed.request("yes", { steal: true }, () => "stolen")).toBe("stolen");

    for (const reason of [request, attempt, query]) {
      expect(reason).toBeInstanceOf(EtcdRefusedError);
      expect(reason).toMatchObject({ reason: "permission" });
    }
    expect(await reasonOf(held.settled)).toMatchObject({ name: "AbortError" });
  });

  test("rejects with EtcdRefusedError, too, when etcd opens no session after one without its delay lease", async ({
    expect,
  }) => {
    await using etcd = await startEtcd();
    await using others = connect({ hosts: etcd.endpoints });
    const session = { ttlSeconds: 20, releaseDelayMs: 5000 };
    await using cluster = connect({ hosts: etcd.endpoints, session });
    await using held = await new RwLock(others, queueNameOf("web-locks", "no-session")).writeLock();
    const unfit = await cluster.session();
    const request = reasonOf(
      new ClusterLockManager(cluster).request("no-session", () => expect.unreachable("granted")),
    );
    await expect.poll(() => placesOf(etcd.member, held.name)).toHaveLength(3);
    await revoke(etcd.member, unfit.leaseId | 1n);
    // Finds out that it is gone, and opens the next session.
    await new Mutex(cluster, "other").withLock(() => undefined);
    await (await cluster.session()).close();
    await spaceAlarm(etcd.member, "ACTIVATE");

    await unfit.close();

    expect(await request).toBeInstanceOf(EtcdRefusedError);
    expect(await request).toMatchObject({ reason: "quota" });
  });

  test("for a while, once there is a session, is waited for", async ({ expect }) => {
    await using etcd = await startEtcd();
    await using proxy = await startTcpProxy({ port: etcd.member.clientPort });
    await using cluster = connect({ hosts: proxy.endpoint, session: { ttlSeconds: 20 } });
    const locks = new ClusterLockManager(cluster);
    await locks.request("once", () => undefined);

    await proxy.mode("pause");
    const request = locks.request("later", () => "granted");
    const granted = settledYet(request);
    await new Promise((resolve) => setImmediate(resolve));
    expect(granted()).toBe(false);
    await proxy.mode("pass");

    expect(await request).toBe("granted");
  });
});

describe.concurrent("a release that etcd has not confirmed", () => {
  test("keeps the request from settling: who awaits it may count on the lock being free", async ({
    expect,
  }) => {
    await using proxy = await startTcpProxy({ port: two.etcd.member.clientPort });
    await using cluster = connect({ hosts: proxy.endpoint, session: { ttlSeconds: 20 } });
    let paused = () => {};
    const pausing = new Promise<void>((resolve) => (paused = resolve));
    const request = new ClusterLockManager(cluster).request("confirmed", () =>
      proxy.mode("pause").then(paused),
    );
    const settled = settledYet(request);
    // The key is in etcd before the callback is called.
    await pausing;
    expect(await counted(two.other, "confirmed")).toEqual([1, 0]);

    // After a round trip of another client, it could have settled.
    expect(await counted(two.other, "confirmed")).toEqual([1, 0]);
    expect(settled()).toBe(false);
    await proxy.mode("pass");

    await request;
    expect(await two.other.request("confirmed", { ifAvailable: true }, (lock) => lock !== null)).toBe(true);
  });
});

describe("a nested request of a held name", () => {
  test("waits, and is no DeadlockError: for ever, unless its signal aborts", async () => {
    const controller = new AbortController();

    await two.locks.request("nested", async () => {
      const inner = two.locks.request("nested", { signal: controller.signal }, () => undefined);
      await counts(two.locks, "nested", 1, 1);
      controller.abort();
      expect(await reasonOf(inner)).toBe(controller.signal.reason);
    });
  });
});

describe("a manager that is closed", () => {
  test("rejects what waits with InvalidStateError, and waits for the callbacks that hold a lock", async () => {
    const manager = new ClusterLockManager(two.cluster);
    const held = await holding(manager, "drained");
    const waiting = manager.request("drained", () => expect.unreachable("granted"));
    await counts(two.other, "drained", 1, 1);

    const closed = manager.close();
    const closedYet = settledYet(closed);
    expect(await reasonOf(waiting)).toMatchObject({ name: "InvalidStateError" });
    await counts(two.other, "drained", 1, 0);
    expect(closedYet()).toBe(false);
    expect(held.lock.signal.aborted).toBe(false);
    await held.release();
    await closed;

    // Its cluster is still open.
    expect(await two.locks.request("drained", { ifAvailable: true }, (lock) => lock !== null)).toBe(true);
  });

  test("releases their locks when the time for them has passed, and tells them", async () => {
    const manager = new ClusterLockManager(two.cluster);
    const held = await holding(manager, "overdue");

    await manager.close({ drainMs: 0 });

    expect(await reasonOf(held.settled)).toMatchObject({ name: "AbortError", cause: { loss: "closed" } });
    expect(held.lock.signal.aborted).toBe(true);
    expect(await two.other.request("overdue", { ifAvailable: true }, (lock) => lock !== null)).toBe(true);
  });

  test("by its cluster says so in the same way, and why", async () => {
    const cluster = connect({ hosts: two.etcd.endpoints });
    const manager = new ClusterLockManager(cluster);
    const held = await holding(two.other, "cluster closed");
    const waiting = reasonOf(manager.request("cluster closed", () => expect.unreachable("granted")));
    await counts(two.other, "cluster closed", 1, 1);

    await cluster.close();

    const closed = { name: "InvalidStateError", cause: { code: "SESSION_CLOSED" } };
    expect(await waiting).toMatchObject(closed);
    expect(await reasonOf(manager.request("cluster closed", () => undefined))).toMatchObject(closed);
    expect(await reasonOf(manager.query())).toMatchObject(closed);
    await held.release();
  });
});
