// Bounded queues: a call with `maxWaiting` joins only where there is room, by etcd's own record of the queue.
import { describe, expect, test } from "vitest";
import {
  connect,
  type Hold,
  inspect,
  Mutex,
  QueueFullError,
  RwLock,
  Semaphore,
  Session,
} from "../../../src/index.js";
import { etcdOf } from "../../support/fixtures/subjects.js";
import { meter } from "../../support/fixtures/spent.js";
import { reasonOf, twoSessions } from "../../support/fixtures/two-sessions.js";
import { behindProxy } from "../../support/proxies/behind-proxy.js";

/** No renewal falls into a test. */
const two = twoSessions(600);
const { places, queued } = two;
const { deleteKey, putKey, revision, revoke } = etcdOf(two);

const full = (lockName: string, maxWaiting: number, waiting: number): unknown =>
  expect.objectContaining({ code: "QUEUE_FULL", lockName, maxWaiting, waiting });

/** So many calls of a session, each in the queue. */
async function waitingFor(name: string, count: number, first = 1) {
  const waits: Promise<unknown>[] = [];
  for (let n = 0; n < count; n++) {
    waits.push(new Mutex(two.session, name).withLock(() => undefined));
    await queued(name, first + n + 1);
  }
  return waits;
}

/** Without the messages on streams: etcd may count the watches of earlier waits late. */
const written = (spent: Record<string, number>) => ({
  ...(spent["Txn"] && { Txn: spent["Txn"] }),
  ...(spent["revisions"] && { revisions: spent["revisions"] }),
});

/** How many keys the queue had at a revision. */
async function countAt(name: string, at: bigint): Promise<number> {
  const [key, range_end] = [`${name}/`, `${name}0`].map((text) => Buffer.from(text).toString("base64"));
  const body = { key, range_end, revision: at.toString(), count_only: true };
  const { count = "0" } = (await two.etcd.member.gateway("/v3/kv/range", body)) as { count?: string };
  return Number(count);
}

describe("a call with maxWaiting", () => {
  test("gets a free lock in one request, and waits where there is room", async () => {
    const name = "bounded/room";
    const counted = await meter(two.etcd.member);
    const lock = await new Mutex(two.session, name).lock({ maxWaiting: 1 });
    expect(written(await counted.read())).toEqual({ Txn: 1, revisions: 1 });

    const next = new Mutex(two.holder, name).lock({ maxWaiting: 1 });
    await queued(name, 2);
    await lock.release();
    await (await next).release();
  });

  test("of a full queue is refused at once, in one request that writes nothing", async () => {
    const name = "bounded/full";
    await using lock = await new Mutex(two.holder, name).lock();
    const waits = await waitingFor(name, 2);
    const before = await places(name);
    const start = await revision();

    const counted = await meter(two.etcd.member);
    const late = new Mutex(two.holder, name);
    expect(await reasonOf(late.lock({ maxWaiting: 2, timeoutMs: 60_000 }))).toEqual(full(name, 2, 2));
    expect(await reasonOf(late.withLock(() => "never", { maxWaiting: 1 }))).toEqual(full(name, 1, 2));
    expect(written(await counted.read())).toEqual({ Txn: 2 });

    expect(await places(name)).toEqual(before);
    expect(await revision()).toBe(start);
    await lock.release();
    await Promise.all(waits);
  });

  test("is refused without a request where its own session knows that so many wait", async () => {
    const name = "bounded/own";
    await using lock = await new Mutex(two.holder, name).lock();
    const waits = await waitingFor(name, 2);

    const counted = await meter(two.etcd.member);
    const reason = await reasonOf(new Mutex(two.session, name).lock({ maxWaiting: 2 }));
    expect(reason).toEqual(full(name, 2, 2));
    expect(written(await counted.read())).toEqual({});
    await lock.release();
    await Promise.all(waits);
  });

  test("does not count a holder, nor those that have left", async () => {
    const name = "bounded/left";
    await using lock = await new Mutex(two.holder, name).lock();
    const caller = new AbortController();
    const gone = reasonOf(new Mutex(two.session, name).lock({ signal: caller.signal }));
    await queued(name, 2);
    caller.abort();
    await gone;
    await queued(name, 1);

    const waits = new Mutex(two.session, name).lock({ maxWaiting: 1 });
    await queued(name, 2);
    await lock.release();
    await (await waits).release();
  });

  test("does not count the release that its own session has begun", async () => {
    const mutex = new Mutex(two.session, "bounded/released");
    for (let n = 0; n < 20; n++) {
      const [lock, other] = [await mutex.lock(), new Mutex(two.holder, mutex.name).lock()];
      await queued(mutex.name, 2);
      const released = lock.release();
      // The other one holds by then, so one may wait.
      const next = mutex.lock({ maxWaiting: 1 });
      await released;
      await (await other).release();
      await (await next).release();
    }
  });

  test("that joins again after its key was deleted is refused if others have taken its place", async () => {
    const name = "bounded/again";
    await using lock = await new Mutex(two.holder, name).lock();
    const bounded = reasonOf(new Mutex(two.session, name).lock({ maxWaiting: 1 }));
    await queued(name, 2);
    await putKey(`${name}/f00`, "of another client");
    const [, mine] = await places(name);
    await deleteKey(mine!.key);

    expect(await bounded).toEqual(full(name, 1, 1));
    await deleteKey(`${name}/f00`);
    await lock.release();
    expect(await places(name)).toEqual([]);
  });

  test("can be repeated, and the stack of its error shows the call", async () => {
    const name = "bounded/stack";
    await using lock = await new Mutex(two.holder, name).lock();
    const waits = await waitingFor(name, 1);
    for (let n = 0; n < 3; n++) {
      const error = await reasonOf(new Mutex(two.holder, name).lock({ maxWaiting: 1 }));
      expect(error).toBeInstanceOf(QueueFullError);
      expect((error as Error).stack).toContain("bounded.test.ts");
    }
    await lock.release();
    await Promise.all(waits);
  });

  test("counts each reader that waits behind a writer, and none that reads", async () => {
    const name = "bounded/readers";
    const [first, second] = [new RwLock(two.holder, name), new RwLock(two.session, name)];
    const readers = [await first.readLock({ maxWaiting: 1 }), await second.readLock({ maxWaiting: 1 })];
    const writing = first.writeLock({ maxWaiting: 1 });
    await queued(name, 3);

    expect(await reasonOf(second.writeLock({ maxWaiting: 1 }))).toEqual(full(name, 1, 1));
    const reading = second.readLock({ maxWaiting: 2 });
    await queued(name, 4);
    expect(await reasonOf(first.readLock({ maxWaiting: 2 }))).toEqual(full(name, 2, 2));

    for (const each of readers) await each.release();
    await (await writing).release();
    await (await reading).release();
  });

  test.each([0, 60_000])(
    "does not count readers that hold beside a writer which has become one, with a delay of %s ms",
    async (releaseDelayMs) => {
      const name = `bounded/downgraded-${releaseDelayMs}`;
      await using cluster = connect({ hosts: two.etcd.endpoints });
      const own = await Session.open(cluster, { ttlSeconds: 600, releaseDelayMs });
      const writing = await new RwLock(own, name).writeLock();
      await writing.downgrade();
      const [first, second] = [new RwLock(two.holder, name), new RwLock(two.session, name)];
      const holds = [await first.readLock({ maxWaiting: 1 }), await second.readLock()];

      const counted = await meter(two.etcd.member);
      holds.push(await first.readLock({ maxWaiting: 1 }));
      expect(written(await counted.read())).toEqual({ Txn: 2, revisions: 1 });

      const waits = first.writeLock({ maxWaiting: 1 });
      await queued(name, releaseDelayMs > 0 ? 6 : 5);
      expect(await reasonOf(second.readLock({ maxWaiting: 1 }))).toEqual(full(name, 1, 1));
      for (const each of [writing, ...holds]) await each.release();
      await (await waits).release();
    },
  );

  test("counts those that wait for a permit, by the number that rules", async () => {
    const name = "bounded/permits";
    const permits = new Semaphore(two.holder, name, 3);
    const others = new Semaphore(two.session, name, 2);
    const holds = [];
    for (let n = 0; n < 3; n++) holds.push(await permits.acquire({ maxWaiting: 1 }));
    const waiting = others.acquire({ maxWaiting: 1 });
    await queued(name, 4);

    expect(await reasonOf(permits.acquire({ maxWaiting: 1 }))).toEqual(full(name, 1, 1));
    await holds[0]!.release();
    const hold = await waiting;
    const next = permits.acquire({ maxWaiting: 1 });
    await queued(name, 4);
    for (const each of [...holds.slice(1), hold]) await each.release();
    await (await next).release();
  });

  test("counts an entry with a delay key once", async () => {
    const name = "bounded/delay";
    await using cluster = connect({ hosts: two.etcd.endpoints });
    const slow = await Session.open(cluster, { ttlSeconds: 600, releaseDelayMs: 1000 });
    await using lock = await new Mutex(slow, name).lock();
    const waits = [new Mutex(slow, name).lock(), new Mutex(two.session, name).lock({ maxWaiting: 2 })];
    await queued(name, 5);
    expect(await reasonOf(new Mutex(two.holder, name).lock({ maxWaiting: 2 }))).toEqual(full(name, 2, 2));
    await lock.release();
    for (const each of waits) await (await each).release();
  });

  test("of a sticky lock counts the callers of its own process that wait for the key", async () => {
    const name = "bounded/sticky";
    const mutex = new Mutex(two.session, name, { sticky: true });
    for (let n = 0; n < 2; n++) await (await mutex.lock({ maxWaiting: 1 })).release();
    const lock = await mutex.lock({ maxWaiting: 1 });
    const next = mutex.lock({ maxWaiting: 1 });
    expect(await reasonOf(mutex.lock({ maxWaiting: 1 }))).toEqual(full(name, 1, 1));
    await lock.release();
    await (await next).release();
  });

  const sticky = { sticky: true };
  test.each<[string, (name: string) => (options?: { maxWaiting: number }) => Promise<Hold>]>([
    [
      "permit",
      (name) => {
        const permits = new Semaphore(two.session, name, 6, sticky);
        return (options) => permits.acquire(options);
      },
    ],
    [
      "reader",
      (name) => {
        const shared = new RwLock(two.session, name, sticky);
        return (options) => shared.readLock(options);
      },
    ],
  ])("of a sticky %s counts no callers of its own process that find room", async (what, of) => {
    const acquire = of(`bounded/sticky-${what}`);
    // The first key leaves.
    await (await acquire()).release();
    const holds = [await acquire()];
    holds.push(...(await Promise.all([1, 2, 3].map(() => acquire({ maxWaiting: 1 })))));
    await holds.pop()!.release();
    holds.push(...(await Promise.all([1, 2].map(() => acquire({ maxWaiting: 1 })))));
    for (const hold of holds) await hold.release();
  });

  test("after the loss of its session is refused if the queue is full by then", async () => {
    const name = "bounded/rejoin";
    await using cluster = connect({ hosts: two.etcd.endpoints, session: { ttlSeconds: 600 } });
    await using lock = await new Mutex(two.holder, name).lock();
    const bounded = reasonOf(new Mutex(cluster, name).lock({ maxWaiting: 1, rejoin: true }));
    await queued(name, 2);
    const waits = await waitingFor(name, 1, 2);
    await revoke(await cluster.session());

    expect(await bounded).toEqual(full(name, 1, 1));
    await lock.release();
    await Promise.all(waits);
  });

  test.each(["drop-answer", "repeat", "cut-answer"] as const)(
    "whose request has the fate %s joins once, or not at all",
    async (act) => {
      const name = `bounded/${act}`;
      await using behind = await behindProxy(two.etcd, name, 5);
      const lock = await new Mutex(behind.rivals, name).lock();
      const joins = { path: "/etcdserverpb.KV/Txn", act, when: (m: Buffer) => m.includes(`${name}/`) };
      const rule = behind.proxy.rule({ ...joins, times: 2 });

      const bounded = new Mutex(behind.session, name).lock({ maxWaiting: 1 });
      await expect.poll(() => rule.hits).toBe(2);
      await queued(name, 2);
      expect(await reasonOf(new Mutex(two.session, name).lock({ maxWaiting: 1 }))).toEqual(full(name, 1, 1));
      await lock.release();
      await (await bounded).release();
      expect(await places(name)).toEqual([]);
    },
  );

  const crowd = { timeout: 90_000 };
  test(
    "of 40 sessions at once never waits behind more than it allows, by etcd's history",
    crowd,
    async () => {
      const name = "bounded/crowd";
      const maxWaiting = 4;
      const clusters = Array.from({ length: 40 }, () => connect({ hosts: two.etcd.endpoints }));
      const fences: bigint[] = [];
      let refused = 0;
      await Promise.all(
        clusters.map(async (cluster) => {
          const mutex = new Mutex(cluster, name);
          for (let n = 0; n < 5; n++)
            await mutex
              .withLock((lock) => void fences.push(lock.fence), { maxWaiting })
              .catch((error: unknown) => {
                expect(error).toMatchObject({ code: "QUEUE_FULL" });
                refused++;
              });
        }),
      );
      const counts = await Promise.all(fences.map((at) => countAt(name, at)));
      await Promise.all(clusters.map((cluster) => cluster.close()));
      // It was full, and refused some, but not all.
      expect(Math.max(...counts)).toBe(1 + maxWaiting);
      expect(fences.length + refused).toBe(200);
      expect(Math.min(fences.length, refused)).toBeGreaterThan(0);
    },
  );

  test("of one process with a thousand at once refuses those for whom there is no room", async () => {
    const name = "bounded/burst";
    await using lock = await new Mutex(two.holder, name).lock();
    const mutex = new Mutex(two.session, name);
    const counted = await meter(two.etcd.member);
    const calls = Array.from({ length: 1000 }, () => mutex.lock({ maxWaiting: 3 }));
    const refused = await Promise.all(calls.slice(3).map(reasonOf));

    expect(new Set(refused.map((error) => (error as QueueFullError).code))).toEqual(new Set(["QUEUE_FULL"]));
    expect(await places(name)).toHaveLength(4);
    // Two for each of the three that wait, and one that finds the queue full for all others.
    expect((await counted.read())["Txn"]).toBeLessThanOrEqual(7);
    await lock.release();
    for (const each of calls.slice(0, 3)) await (await each).release();
  });

  test("whose join has begun with the end of a sticky hold is not refused, and leaves no key behind", async () => {
    for (let n = 0; n < 8; n++) {
      const name = `bounded/begun/${n}`;
      const lock = new RwLock(two.session, name, { sticky: true });
      await (await lock.readLock()).release();
      await queued(name, 0);
      const reader = await lock.readLock();
      const leaves = new AbortController();
      const first = reasonOf(lock.writeLock({ maxWaiting: 1, signal: leaves.signal }));
      await queued(name, 2);
      // It is first in line in the turn in which the other one leaves.
      const second = lock.writeLock({ maxWaiting: 1 }).then(
        (writer) => writer.release(),
        (error: unknown) => void expect(error).toMatchObject({ code: "QUEUE_FULL" }),
      );
      leaves.abort(new Error("no more"));

      expect(await first).toBe(leaves.signal.reason);
      await reader.release();
      await second;
      // What its session keeps is asked for.
      await (await new RwLock(two.holder, name).writeLock({ timeoutMs: 5000 })).release();
    }
  });

  test.each([[0], [1001], [1.5], ["3"], [NaN]])("rejects maxWaiting: %j", async (maxWaiting) => {
    const reason = await reasonOf(new Mutex(two.session, "bounded/bad").lock({ maxWaiting } as never));
    expect((reason as Error).message).toContain(
      "Expected maxWaiting to be a whole number from 1 to 1000, got",
    );
  });

  test("shows nothing of itself in the queue", async () => {
    await using lock = await new Mutex(two.session, "bounded/shown").lock({ maxWaiting: 7 });
    expect((await inspect(two.cluster, lock.name)).kind).toBe("mutex");
  });
});
