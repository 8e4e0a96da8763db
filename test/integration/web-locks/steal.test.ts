import { describe, expect, onTestFinished, test } from "vitest";
import { ClusterLockManager, connect, Mutex, type WebLockOptions } from "../../../src/index.js";
import { placesOf } from "../../support/clients/server-view.js";
import { startGrpcProxy } from "../../support/proxies/grpc-proxy.js";
import { reasonOf } from "../../support/fixtures/two-sessions.js";
import { counts, holding, type HeldForTest, twoManagers } from "../../support/fixtures/web-locks.js";
import { abortOf } from "../../support/clients/session-client.js";

const two = twoManagers(20);
const steal = { steal: true } as const;
const shared = { mode: "shared" } as const;
const queueOf = (name: string) => `web-locks/${Buffer.from(name, "utf16le").toString("base64url")}`;

/**
 * The effect of stealing on a holder: the request rejects at once, and the callback continues and is notified by the
 * signal.
 */
async function expectRobbed({ lock, settled }: HeldForTest): Promise<void> {
  const error = (await reasonOf(settled)) as DOMException;
  expect(error).toBeInstanceOf(DOMException);
  expect(error.name).toBe("AbortError");
  expect(error.message).toMatch(`Lock "${lock.name}" lost: its key was deleted (key web-locks/`);
  expect(error.cause).toMatchObject({
    ...{ code: "LOCK_LOST", loss: "deleted", key: lock.key, lockName: lock.name, message: error.message },
  });
  expect(await abortOf(lock.signal)).toBe(error.cause);
}

describe("a steal", () => {
  test("of a free lock is granted as any other", async () => {
    expect(await two.locks.request("free", steal, (lock) => [lock?.name, lock?.mode])).toEqual([
      "free",
      "exclusive",
    ]);
  });

  test.each(["locks", "other"] as const)(
    "takes the lock from its holder in %s, whose callback runs on",
    async (of) => {
      const held = await holding(two[of], "held");

      expect(await two.locks.request("held", steal, (lock) => lock?.mode)).toBe("exclusive");

      await expectRobbed(held);
      await held.release().catch(() => undefined);
      expect(await two.other.request("held", { ifAvailable: true }, (lock) => lock !== null)).toBe(true);
    },
  );

  test("from a holder of the same process does not wait until its key is watched, which a short hold's is not", async () => {
    const timed = async (options: WebLockOptions) => {
      const start = performance.now();
      await two.locks.request("timed", options, () => undefined);
      return performance.now() - start;
    };
    const free = await Promise.all([1, 2, 3, 4, 5].map(() => timed({})));
    const held = await holding(two.locks, "timed");

    expect(await timed(steal)).toBeLessThan(20 * Math.max(...free));
    await expectRobbed(held);
  });

  test.each([
    ["waited for", {}],
    ["asked for with ifAvailable", { ifAvailable: true }],
  ])(
    "from another process is told at once to a lock that was %s, however short it is held",
    async (how, options) => {
      // A mutex, which cannot be stolen, watches its key only after it has been held for a second.
      const mutex = await new Mutex(two.cluster, `unwatched/${how}`).lock();
      const held = await holding(two.locks, how, options);
      const told: string[] = [];
      const lossOf = (who: string, signal: AbortSignal) => abortOf(signal).then(() => told.push(who));
      const losses = [lossOf("mutex", mutex.signal), lossOf("web_lock", held.lock.signal)];

      await Promise.all([
        two.other.request(how, steal, () => undefined),
        two.etcd.etcdctl(["del", mutex.key]),
        ...losses,
      ]);

      expect(told).toEqual(["web_lock", "mutex"]);
      await expectRobbed(held);
    },
  );

  test("of a lock whose callback was not called yet only rejects its request: the process writes no warning", async () => {
    await using proxy = await startGrpcProxy({ port: two.etcd.member.clientPort });
    await using cluster = connect({ hosts: proxy.endpoint, requestTimeoutMs: 20_000 });
    const locks = new ClusterLockManager(cluster);
    await locks.request("slow", () => undefined);
    const warnings: string[] = [];
    const warned = ({ message }: Error) => void warnings.push(message);
    process.on("warning", warned);
    onTestFinished(() => void process.off("warning", warned));
    const rule = proxy.rule({ path: "/etcdserverpb.KV/Txn", act: "hold", times: 1 });
    const slow = locks.request("slow", () => undefined);
    await rule.hit();
    // It is called back behind the slow one.
    const robbed = reasonOf(locks.request("robbed", () => expect.unreachable("called")));
    await expect.poll(() => placesOf(two.etcd.member, queueOf("robbed"))).toHaveLength(1);

    await two.other.request("robbed", steal, () => undefined);

    expect(await robbed).toMatchObject({ name: "AbortError", cause: { code: "LOCK_LOST", loss: "deleted" } });
    rule.release();
    await slow;
    expect(warnings).toEqual([]);
  });

  test("takes it from all who share it", async () => {
    const all = [
      await holding(two.locks, "shared", shared),
      await holding(two.other, "shared", shared),
      await holding(two.other, "shared", shared),
    ];

    expect(await two.other.request("shared", steal, (lock) => lock?.mode)).toBe("exclusive");

    await Promise.all(all.map(expectRobbed));
  });

  test("goes ahead of all waiters, which keep waiting, those of one process in order", async () => {
    const held = await holding(two.locks, "before");
    const order: string[] = [];
    const ask = (who: string) => two.locks.request("before", () => void order.push(who));
    const waiting = [ask("first"), ask("second"), ask("third")];
    await counts(two.locks, "before", 1, 3);
    waiting.push(two.other.request("before", shared, () => void order.push("other")));
    await counts(two.locks, "before", 1, 4);

    const thief = await holding(two.other, "before", steal);
    await expectRobbed(held);
    await counts(two.other, "before", 1, 4);
    expect(order).toEqual([]);
    await thief.release();
    await Promise.all(waiting);

    expect(order.filter((who) => who !== "other")).toEqual(["first", "second", "third"]);
    expect(order).toHaveLength(4);
  });

  test("is stolen from by the next one: the last caller wins", async () => {
    const first = await holding(two.locks, "again", steal);
    const second = holding(two.locks, "again", steal);
    const third = holding(two.locks, "again", steal);

    await expectRobbed(first);
    await expectRobbed(await second);
    expect((await third).lock.signal.aborted).toBe(false);
    await (await third).release();
  });

  test("takes the lock also behind more requests of its process than wait in etcd at a time", async () => {
    const held = await holding(two.other, "crowd");
    let served = 0;
    const crowd = Array.from({ length: 120 }, () => two.locks.request("crowd", () => void served++));

    const thief = await holding(two.locks, "crowd", steal);

    await expectRobbed(held);
    expect(served).toBe(0);
    await thief.release();
    await Promise.all(crowd);
    expect(served).toBe(120);
  });

  test("takes it from a mutex of the same name, as from a lock", async () => {
    const lock = await new Mutex(two.otherCluster, queueOf("mutex")).lock();

    await two.locks.request("mutex", steal, () => undefined);

    expect(await abortOf(lock.signal)).toMatchObject({ code: "LOCK_LOST", loss: "deleted" });
  });

  test("deletes no key further below its queue, but waits for it", async () => {
    const below = `${queueOf("below")}/deep/er/7b`;
    await two.etcd.etcdctl(["put", below, "somebody else's"]);
    const stealing = two.locks.request("below", steal, () => "granted");
    await counts(two.other, "below", 0, 1);

    // In the meantime, other requests of this process can still acquire other locks.
    expect(await two.locks.request("below", { ifAvailable: true }, (lock) => lock)).toBeNull();
    expect(await two.locks.request("elsewhere", () => "granted")).toBe("granted");
    expect((await placesOf(two.etcd.member, queueOf("below"))).map(({ key }) => key)).toContain(below);

    await two.etcd.etcdctl(["del", below]);
    expect(await stealing).toBe("granted");
  });

  test("that several processes try at the same time serves or tells each of them, and leaves nothing behind", async () => {
    const clusters = [1, 2, 3].map(() => connect({ hosts: two.etcd.endpoints }));
    const managers = clusters.map((cluster) => new ClusterLockManager(cluster));
    const pause = () => new Promise((resolve) => setTimeout(resolve, 5));

    const outcomes = await Promise.all(
      managers.flatMap((manager) => [1, 2, 3].map(() => reasonOf(manager.request("all", steal, pause)))),
    );

    const names = new Set(outcomes.map((error) => (error as Error | undefined)?.name));
    expect([...names].filter((name) => name !== "AbortError")).toEqual([undefined]);
    await expect.poll(() => placesOf(two.etcd.member, queueOf("all"))).toEqual([]);
    await Promise.all(clusters.map((cluster) => cluster.close({ drainMs: 0 })));
  });
});
