// The standard's rules for requests, on a real etcd with two managers, like two processes.
import { AsyncLocalStorage } from "node:async_hooks";
import { describe, expect, test } from "vitest";
import { ClusterLockManager, RwLock } from "../../../src/index.js";
import { placesOf } from "../../support/clients/server-view.js";
import { counts, holding, twoManagers } from "../../support/fixtures/web-locks.js";
import { settledYet } from "../../support/clients/session-client.js";

const two = twoManagers(20);

describe("the callback", () => {
  test.each(["exclusive", "shared"] as const)("gets a lock with the name and the mode %s", async (mode) => {
    const seen = await two.locks.request("given", { mode }, (lock) => ({
      name: lock?.name,
      mode: lock?.mode,
    }));

    expect(seen).toEqual({ name: "given", mode });
  });

  test("gets a lock with what a lease needs: signal, key and revision", async () => {
    const lock = await two.locks.request("lease", async (granted) => {
      expect(granted?.signal.aborted).toBe(false);
      expect(await placesOf(two.etcd.member, "web-locks")).toMatchObject([
        { key: granted?.key, revision: granted?.revision },
      ]);
      return granted;
    });

    expect(lock?.signal.reason).toMatchObject({ code: "LOCK_RELEASED" });
    expect(await placesOf(two.etcd.member, "web-locks")).toEqual([]);
  });

  test("cannot write to the lock", async () => {
    await two.locks.request("readonly", (lock) => {
      expect(() => ((lock as { name: string }).name = "mine")).toThrow(TypeError);
      expect(() => ((lock as { mode: string }).mode = "shared")).toThrow(TypeError);
    });
  });

  test("is called with one argument, without this, in the caller's async context, and later than request returns", async () => {
    const storage = new AsyncLocalStorage<string>();
    let returned = false;

    const settled = storage.run("mine", () =>
      two.locks.request("called", function (this: unknown, ...given: unknown[]) {
        expect(returned).toBe(true);
        expect([this, given.length, storage.getStore()]).toEqual([undefined, 1, "mine"]);
      }),
    );
    returned = true;

    await settled;
  });

  test.each<readonly [string, () => unknown]>([
    ["a value", () => 123],
    ["a promise", () => Promise.resolve(123)],
    ["a thenable", () => ({ then: (resolve: (value: number) => void) => resolve(123) })],
  ])("that returns %s makes the request resolve to it", async (_, callback) => {
    const promise = two.locks.request("value", callback);

    expect(Promise.resolve(promise)).toBe(promise);
    expect(await promise).toBe(123);
  });

  const error = { then: () => expect.unreachable("what is thrown is not asked for its then") };
  test.each([
    [
      "throws",
      () => {
        throw error;
      },
    ],
    ["rejects", () => Promise.reject(error)],
  ])(
    "that %s makes the request reject with that very reason, and the lock is released",
    async (_, callback) => {
      // In an array, because awaiting it here would call its `then`.
      const [reason] = await two.locks.request("throws", callback).then(
        () => [],
        (thrown: unknown) => [thrown],
      );
      expect(reason).toBe(error);
      expect(await two.locks.request("throws", { ifAvailable: true }, (lock) => lock !== null)).toBe(true);
    },
  );
});

describe("a lock", () => {
  test("is held until what the callback returned has settled, and the request settles after that", async () => {
    const held = await holding(two.locks, "until");
    const next = two.other.request("until", () => "next");
    const granted = settledYet(next);
    await counts(two.other, "until", 1, 1);
    expect(granted()).toBe(false);

    await held.release();

    // Already released by then, not only about to be.
    expect(await two.locks.query()).toMatchObject({ pending: [] });
    expect(await next).toBe("next");
  });

  test("that is exclusive excludes all others of its name, in every process", async () => {
    const held = await holding(two.locks, "alone");

    for (const manager of [two.locks, two.other]) {
      for (const mode of ["exclusive", "shared"] as const) {
        expect(await manager.request("alone", { mode, ifAvailable: true }, (lock) => lock)).toBeNull();
      }
      expect(await manager.request("another", { ifAvailable: true }, (lock) => lock?.name)).toBe("another");
    }
    await held.release();
  });

  test("that is shared is held beside others that are shared, and excludes one that is exclusive", async () => {
    const shared = { mode: "shared" } as const;
    const held = [await holding(two.locks, "beside", shared), await holding(two.other, "beside", shared)];
    const writer = two.other.request("beside", () => "alone");
    const granted = settledYet(writer);
    await counts(two.locks, "beside", 2, 1);

    await held[0]?.release();
    await counts(two.locks, "beside", 1, 1);
    expect(granted()).toBe(false);
    await held[1]?.release();

    expect(await writer).toBe("alone");
  });

  test("shares its queue with an RwLock, so that other parts of a program can use it, too", async () => {
    const name = `web-locks/${Buffer.from("jobs", "utf16le").toString("base64url")}`;
    const lock = await new RwLock(two.otherCluster, name).readLock();

    expect(await two.locks.request("jobs", { ifAvailable: true }, (granted) => granted)).toBeNull();
    expect(
      await two.locks.request("jobs", { ifAvailable: true, mode: "shared" }, (granted) => granted?.mode),
    ).toBe("shared");
    await lock.release();
  });

  test("has nothing to do with one of the same name under another prefix", async () => {
    const elsewhere = new ClusterLockManager(two.cluster, { prefix: "web/elsewhere" });
    const held = await holding(two.locks, "prefixed");

    expect(await elsewhere.request("prefixed", { ifAvailable: true }, (lock) => lock?.name)).toBe("prefixed");
    expect(await elsewhere.query()).toEqual({ held: [], pending: [] });
    await held.release();
  });

  test.each([
    ["the empty name", ""],
    ["a NUL", "abc\0def"],
    ["half of a surrogate pair", "\ud800"],
    ["a swapped pair", "\udc00\ud800"],
    ["no character", "\uffff"],
    ["slashes", "/a//b/"],
    ["4096 code units", "\u1234".repeat(4096)],
  ])("may be called by %s, which is not mangled", async (_, name) => {
    const held = await holding(two.locks, name);

    expect(held.lock.name).toBe(name);
    expect(await two.other.request(name, { ifAvailable: true }, (lock) => lock)).toBeNull();
    expect((await two.other.query()).held.map((info) => info.name)).toEqual([name]);
    await held.release();
  });
});
