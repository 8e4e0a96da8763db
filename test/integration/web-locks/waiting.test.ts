// The standard's rules for requests that wait or refuse to wait: order, ifAvailable, signal.
import { getEventListeners } from "node:events";
import { setTimeout as sleep } from "node:timers/promises";
import { describe, expect, test } from "vitest";
import { ClusterLockManager, connect } from "../../../src/index.js";
import { startGrpcProxy } from "../../support/proxies/grpc-proxy.js";
import { controlTimer } from "../../support/fixtures/control-timer.js";
import { reasonOf } from "../../support/fixtures/two-sessions.js";
import { counts, holding, twoManagers } from "../../support/fixtures/web-locks.js";

const two = twoManagers(20);

describe("requests of one process", () => {
  test("are granted in the order of the calls, whatever their names", async () => {
    const names = ["a", "b", "a", "c", "a", "b", "c", "d"];
    // If etcd is late with one, the others wait for it for 250 ms at most: such an attempt shows nothing.
    for (let tookMs = Infinity; tookMs >= 250;) {
      const order: string[] = [];
      const start = performance.now();
      await Promise.all(
        names.map((name, n) =>
          two.locks.request(`order/${name}`, { mode: "shared" }, () => void order.push(`${n} ${name}`)),
        ),
      );
      tookMs = performance.now() - start;
      if (tookMs < 250) expect(order).toEqual(names.map((name, n) => `${n} ${name}`));
    }
  });

  test("of which etcd does not decide one do not wait for it under other names", async () => {
    await using proxy = await startGrpcProxy({ port: two.etcd.member.clientPort });
    const setting = { requestTimeoutMs: 20_000, session: { ttlSeconds: 120 } };
    const cluster = connect({ hosts: proxy.endpoint, ...setting });
    const locks = new ClusterLockManager(cluster);
    await locks.request("slow", () => undefined);
    const begun = performance.now();
    for (let n = 0; n < 20; n++) await locks.request(`alone ${n}`, () => undefined);
    const aloneMs = performance.now() - begun;
    const rule = proxy.rule({ path: "/etcdserverpb.KV/Txn", act: "hold", times: 1 });

    const order: string[] = [];
    const slow = locks.request("slow", () => void order.push("slow"));
    await rule.hit();
    using limit = controlTimer(aloneMs + 10 * 250);
    for (let n = 0; n < 20; n++) await locks.request(`quick ${n}`, () => void order.push("quick"));
    // The first one waits 250 ms for the slow one; the others do not wait for it again.
    expect(limit.passed).toBe(false);
    expect(order).toEqual(Array(20).fill("quick"));
    rule.release();
    await slow;

    expect(order.at(-1)).toBe("slow");
    await cluster.close({ drainMs: 0 });
  });

  test("are granted one after the other when they exclude each other", async () => {
    const order: number[] = [];

    await Promise.all([1, 2, 3, 4].map((n) => two.locks.request("turns", () => void order.push(n))));

    expect(order).toEqual([1, 2, 3, 4]);
  });

  test("wait behind an exclusive one that waits, also where they are shared", async () => {
    const shared = { mode: "shared" } as const;
    const reader = await holding(two.locks, "fair", shared);
    const order: string[] = [];
    const writer = two.locks.request("fair", () => void order.push("writer"));
    const later = two.locks.request("fair", shared, () => void order.push("reader"));
    await counts(two.locks, "fair", 1, 2);

    await reader.release();
    await Promise.all([writer, later]);

    expect(order).toEqual(["writer", "reader"]);
  });

  test("more than wait in etcd at a time are all told as pending, and all served in order", async () => {
    const held = await holding(two.locks, "crowd");
    const order: number[] = [];
    const all = Array.from({ length: 120 }, (_, n) => two.locks.request("crowd", () => void order.push(n)));

    await counts(two.locks, "crowd", 1, 120);
    expect(await two.locks.request("crowd", { ifAvailable: true }, (lock) => lock)).toBeNull();
    await held.release();
    await Promise.all(all);

    expect(order).toEqual(all.map((_, n) => n));
  });
});

describe("ifAvailable", () => {
  const ifAvailable = true;

  test("calls back with a lock when nobody has the name", async () => {
    expect(await two.locks.request("free", { ifAvailable }, (lock) => lock?.mode)).toBe("exclusive");
  });

  test("calls back with null when the lock would have to be waited for, and settles as the callback does", async () => {
    const held = await holding(two.other, "taken");
    const boom = new Error("boom");

    expect(await two.locks.request("taken", { ifAvailable }, (lock) => [lock])).toEqual([null]);
    expect(
      await reasonOf(
        two.locks.request("taken", { ifAvailable }, () => {
          throw boom;
        }),
      ),
    ).toBe(boom);
    expect(await reasonOf(two.locks.request("taken", { ifAvailable }, () => Promise.reject(boom)))).toBe(
      boom,
    );
    await held.release();
  });

  test("calls back with null when an exclusive request waits, though only shared ones hold", async () => {
    const held = await holding(two.locks, "waited", { mode: "shared" });
    const writer = two.other.request("waited", () => undefined);
    await counts(two.locks, "waited", 1, 1);

    expect(await two.locks.request("waited", { ifAvailable, mode: "shared" }, (lock) => lock)).toBeNull();
    await held.release();
    await writer;
  });

  test("sees the request made just before, though its answer is not there yet", async () => {
    let tried: () => void = () => undefined;
    const second = new Promise<void>((resolve) => (tried = resolve));
    const first = two.locks.request("just before", () => second);

    expect(await two.locks.request("just before", { ifAvailable }, (lock) => lock)).toBeNull();
    tried();
    await first;
  });

  test.each([
    ["before its join was sent", () => undefined],
    ["with its join under way", () => new Promise((resolve) => setImmediate(resolve))],
  ])("gets the lock when the request made just before was aborted %s", async (_, until) => {
    const controller = new AbortController();
    const first = two.locks.request("aborted", { signal: controller.signal }, () => undefined);
    const second = two.locks.request("aborted", { ifAvailable: true }, (lock) => lock !== null);
    await until();
    controller.abort();

    // Already granted, if this machine was slow.
    expect([undefined, controller.signal.reason]).toContain(await reasonOf(first));
    expect(await second).toBe(true);
  });

  test("leaves nothing in the queue when it is refused", async () => {
    const held = await holding(two.other, "no trace");
    const { revision } = await two.etcd.member.status();

    await two.locks.request("no trace", { ifAvailable }, () => undefined);

    expect((await two.etcd.member.status()).revision).toBe(revision);
    await held.release();
  });
});

describe("an abort", () => {
  test("of a request that waits rejects with the signal's very reason, and its place goes", async () => {
    const held = await holding(two.other, "abort");
    const controller = new AbortController();
    const waiting = two.locks.request("abort", { signal: controller.signal }, () =>
      expect.unreachable("granted"),
    );
    await counts(two.other, "abort", 1, 1);

    const reason = { any: "thing" };
    controller.abort(reason);

    expect(await reasonOf(waiting)).toBe(reason);
    // From that moment on, none of this process's own requests is visible.
    expect(await two.locks.query()).toMatchObject({ pending: [] });
    await counts(two.other, "abort", 1, 0);
    await held.release();
  });

  test("in the same turn as the request comes before the grant", async () => {
    const controller = new AbortController();
    const request = two.locks.request("at once", { signal: controller.signal }, () =>
      expect.unreachable("granted"),
    );
    controller.abort();

    expect(await reasonOf(request)).toBe(controller.signal.reason);
    expect(await two.locks.request("at once", () => "next")).toBe("next");
  });

  test("that comes any moment before the callback keeps it from being called", async () => {
    // By an earlier callback, this many microtasks later: they include those between grant and callback.
    for (let later = 0; later < 20; later++) {
      const controller = new AbortController();
      const first = two.locks.request("earlier", async () => {
        for (let n = 0; n < later; n++) await Promise.resolve();
        controller.abort();
      });
      let abortedBefore = false;
      const second = two.locks.request("later", { signal: controller.signal }, () => {
        abortedBefore = controller.signal.aborted;
      });

      const reason = await reasonOf(second);
      expect([undefined, controller.signal.reason]).toContain(reason);
      expect(abortedBefore).toBe(false);
      await first;
    }
  });

  test("that comes between the grant and the callback keeps it from being called", async () => {
    for (let later = 0; later < 10; later++) {
      const controller = new AbortController();
      const { signal } = controller;
      const removeListener = signal.removeEventListener.bind(signal);
      // The request removes its listener when its lock is granted; the abort comes this many microtasks later.
      signal.removeEventListener = (...listener: Parameters<typeof removeListener>) => {
        removeListener(...listener);
        void (async () => {
          for (let n = 0; n < later; n++) await Promise.resolve();
          controller.abort();
        })();
      };
      let abortedBefore = false;
      const request = two.locks.request("between", { signal }, () => {
        abortedBefore = signal.aborted;
      });

      const reason = await reasonOf(request);
      expect(signal.aborted).toBe(true);
      expect([undefined, signal.reason]).toContain(reason);
      expect(abortedBefore).toBe(false);
    }
  });

  test("lets the next request be granted", async () => {
    const controller = new AbortController();
    const first = two.locks.request("next", { signal: controller.signal }, () => new Promise(() => {}));
    const next = two.locks.request("next", () => "granted");
    controller.abort();

    expect(await reasonOf(first)).toBe(controller.signal.reason);
    expect(await next).toBe("granted");
  });

  test("is ignored once the lock is granted", async () => {
    const controller = new AbortController();

    const result = await two.locks.request("late", { signal: controller.signal }, async (lock) => {
      controller.abort();
      await sleep(10);
      return lock?.signal.aborted;
    });

    expect(result).toBe(false);
  });

  test("of a signal that many requests share ends all that wait, and leaves no listener behind", async () => {
    const held = await holding(two.other, "shared signal");
    const controller = new AbortController();
    const { signal } = controller;
    const waiting = Array.from({ length: 30 }, () =>
      reasonOf(two.locks.request("shared signal", { signal }, () => expect.unreachable("granted"))),
    );
    await counts(two.locks, "shared signal", 1, 30);
    expect(getEventListeners(signal, "abort")).toHaveLength(1);

    controller.abort();

    expect(new Set(await Promise.all(waiting))).toEqual(new Set([signal.reason]));
    expect(getEventListeners(signal, "abort")).toEqual([]);
    await held.release();
  });
});
