// A Mutex with priorities. Who was granted, and whether a better call waited then, is read from etcd's own history of the queue.
import { setImmediate as tick, setTimeout as pause } from "node:timers/promises";
import { describe, expect, onTestFinished, test } from "vitest";
import {
  type Cluster,
  connect,
  forceRelease,
  inspect,
  list,
  type Lock,
  Mutex,
  RwLock,
  Semaphore,
  Session,
  type SessionSource,
  watchQueue,
} from "../../../src/index.js";
import { decode, encode } from "../../support/clients/gateway-text.js";
import { revoke } from "../../support/clients/lease-calls.js";
import { givesBack, takesPlace } from "../../support/clients/request-shape.js";
import { meter } from "../../support/fixtures/spent.js";
import { etcdOf } from "../../support/fixtures/subjects.js";
import { reasonOf, twoSessions } from "../../support/fixtures/two-sessions.js";
import { behindProxy } from "../../support/proxies/behind-proxy.js";

const two = twoSessions(600);
const { places } = two;
const { deleteKey, putKey, queued, revision, until } = etcdOf(two);

const mutex = (source: SessionSource, name: string, agingMs?: number) =>
  new Mutex(source, name, { priorities: agingMs === undefined ? true : { agingMs } });

interface Seen {
  readonly key: string;
  readonly revision: bigint;
  readonly rank: number;
  readonly granted: boolean;
}

/** What etcd had under the name at a revision, by the values. */
async function queueAt(name: string, at?: bigint): Promise<Seen[]> {
  const body = {
    ...{ key: encode(`${name}/`), range_end: encode(`${name}0`), sort_target: "CREATE" },
    ...(at !== undefined && { revision: at.toString() }),
  };
  const { kvs = [] } = (await two.etcd.member.gateway("/v3/kv/range", body)) as {
    kvs?: { key: string; value: string; create_revision: string }[];
  };
  return kvs.map(({ key, value, create_revision }) => {
    const { since, priority } = JSON.parse(decode(value)) as {
      since: string;
      priority: { level: number; agingMs: number; granted?: boolean };
    };
    const rank = Date.parse(since) - priority.level * priority.agingMs;
    return {
      ...{ key: decode(key), revision: BigInt(create_revision), rank },
      granted: priority.granted === true,
    };
  });
}

const isBetter = (a: Seen, b: Seen): boolean =>
  a.rank === b.rank ? a.revision < b.revision : a.rank < b.rank;

/** The fences of all grants in this part of etcd's history. At each of them, nobody else held, and nobody better waited. */
async function judged(name: string, from: bigint): Promise<bigint[]> {
  const to = await revision();
  const fences: bigint[] = [];
  let before = await queueAt(name, from);
  for (let at = from + 1n; at <= to; at++) {
    const now = await queueAt(name, at);
    for (const hold of now.filter((each) => each.granted && each.revision === at)) {
      fences.push(at);
      expect(before.filter(({ granted }) => granted)).toEqual([]);
      const isGone = (each: Seen) => !now.some(({ revision }) => revision === each.revision);
      const place = before.find(isGone);
      if (before.length > 0) expect(place?.rank).toBe(hold.rank);
      expect(before.filter((each) => each !== place && isBetter(each, place!))).toEqual([]);
    }
    before = now;
  }
  return fences;
}

/** Calls of these priorities, from the two sessions in turn; each has its place in etcd before the next one starts. */
async function inLine(
  name: string,
  priorities: readonly number[],
  { agingMs, signal }: { agingMs?: number; signal?: AbortSignal } = {},
): Promise<Promise<Lock>[]> {
  const before = (await places(name)).length;
  const calls: Promise<Lock>[] = [];
  for (const [n, priority] of priorities.entries()) {
    const source = n % 2 ? two.session : two.holder;
    const call = mutex(source, name, agingMs).lock({ priority, ...(signal && { signal }) });
    // The test awaits it later, or aborts it.
    call.catch(() => undefined);
    calls.push(call);
    await queued(name, before + n + 1);
  }
  return calls;
}

/** The order in which these are granted, each of which is released at once. */
async function served(calls: readonly Promise<Lock>[]): Promise<number[]> {
  const order: number[] = [];
  await Promise.all(
    calls.map(async (call, n) => {
      const lock = await call;
      order.push(n);
      await lock.release();
    }),
  );
  return order;
}

describe("the order", () => {
  test("is that of the priorities, and of the calls where they are equal, of one session and of several", async () => {
    const name = "order";
    const from = await revision();
    const held = await mutex(two.holder, name).lock();
    const calls = await inLine(name, [0, 5, -3, 5, 1000, 0, -1000, 1]);

    await held.release();

    expect(await served(calls)).toEqual([4, 1, 3, 7, 0, 5, 2, 6]);
    expect(await judged(name, from)).toHaveLength(9);
    await queued(name, 0);
  });

  test("is the same for sixty calls of one process at once", async () => {
    const name = "at once";
    const held = await mutex(two.holder, name).lock();
    const priorities = Array.from({ length: 60 }, (_, n) => (n * 7) % 5);
    const calls = priorities.map((priority) => mutex(two.session, name).lock({ priority }));
    await queued(name, 61);

    await held.release();

    const order = priorities.map((_, n) => n).sort((a, b) => priorities[b]! - priorities[a]! || a - b);
    expect(await served(calls)).toEqual(order);
  });

  test("lets a later call overtake those of a lower priority that wait, and not those of a higher one", async () => {
    const name = "late";
    const held = await mutex(two.holder, name).lock();
    const calls = await inLine(name, [0, 10]);
    calls.push(...(await inLine(name, [5])));

    await held.release();

    expect(await served(calls)).toEqual([1, 2, 0]);
  });

  test("does not take the lock away from a holder, whatever priority comes", async () => {
    const name = "holder";
    const held = await mutex(two.holder, name).lock({ priority: -1000 });
    const [call] = await inLine(name, [1000]);

    expect(await reasonOf(mutex(two.session, name).lock({ timeoutMs: 2000 }))).toMatchObject({
      ...{ code: "LOCK_TIMEOUT", ahead: 2 },
      holder: { key: held.key, priority: -1000, state: "holding" },
    });
    expect(held.held).toBe(true);
    await held.release();
    await (await call!).release();
  });
});

describe("aging", () => {
  test("lets a call that has waited longer than the difference times agingMs go before a better one that comes then", async () => {
    const name = "aging";
    const from = await revision();
    const held = await mutex(two.holder, name, 2).lock();
    const [low] = await inLine(name, [0], { agingMs: 2 });
    const [, { rank }] = (await queueAt(name)) as [Seen, Seen];
    await until(() => Date.now() > rank + 20);

    const [later, latest] = await inLine(name, [10, 1000], { agingMs: 2 });
    await held.release();

    // 10 levels are 20 ms, and a thousand are two seconds.
    expect(await served([low!, later!, latest!])).toEqual([2, 0, 1]);
    await judged(name, from);
  });

  test("counts each call with its own agingMs, as its value says, while processes disagree", async () => {
    const name = "disagree";
    const from = await revision();
    const held = await mutex(two.holder, name).lock();
    const calls = await inLine(name, [1], { agingMs: 1 });
    calls.push(
      ...(await inLine(name, [1], { agingMs: 60_000 })),
      ...(await inLine(name, [2], { agingMs: 20_000 })),
    );

    await held.release();

    expect(await served(calls)).toEqual([1, 2, 0]);
    expect(await judged(name, from)).toHaveLength(4);
  });
});

describe("a fence", () => {
  test("rises with each grant, though the place of the later holder is the older one", async () => {
    const name = "fence";
    const held = await mutex(two.holder, name).lock();
    const [first, second] = await inLine(name, [0, 1]);
    await held.release();

    const better = await second!;
    await better.release();
    const other = await first!;

    expect(better.fence).toBeGreaterThan(held.fence);
    expect(other.fence).toBeGreaterThan(better.fence);
    expect(other.revision).toBe(other.fence);
    expect(await queueAt(name)).toMatchObject([{ key: other.key, revision: other.fence, granted: true }]);
    await other.release();
  });
});

describe("a hand-over", () => {
  test("wakes the next call and the one behind it, however many wait: two transactions, and two reads at most", async () => {
    const spent: Record<string, number>[] = [];
    for (const waiting of [3, 30]) {
      const name = `cost/${waiting}`;
      const clusters = Array.from({ length: waiting }, () => connect({ hosts: two.etcd.endpoints }));
      onTestFinished(() => Promise.all(clusters.map((each) => each.close({ drainMs: 0 }))).then(() => {}));
      const held = await mutex(two.holder, name).lock();
      const calls: Promise<Lock>[] = [];
      // Each of them is the next one when it comes: only the first hand-over shows them that they are not.
      for (const [n, cluster] of clusters.entries()) {
        calls.unshift(mutex(cluster, name).lock({ priority: n }));
        await queued(name, n + 2);
      }
      const counted = await meter(two.etcd.member);
      await held.release();
      const first = await calls[0]!;
      // The release, the claim, and one that fails of each of the others, which is its read.
      await until(async () => (await counted.read())["Txn"] === 1 + waiting);
      const again = await meter(two.etcd.member);

      await first.release();
      await calls[1];
      await until(async () => ((await again.read())["Range"] ?? 0) >= 1);

      spent.push(await again.read());
      await served(calls.slice(1));
    }
    for (const { Txn, Range = 0, revisions } of spent) {
      expect([Txn, revisions]).toEqual([2, 2]);
      expect(Range).toBeLessThanOrEqual(2);
    }
  });

  test("costs nothing more than that of a plain Mutex while nobody waits: one transaction each for lock and release", async () => {
    const name = "cost/alone";
    await mutex(two.session, name).withLock(() => undefined);
    const counted = await meter(two.etcd.member);

    await mutex(two.session, name).withLock(() => undefined, { priority: 7 });

    const { Txn, Range, revisions } = await counted.read();
    expect([Txn, Range, revisions]).toEqual([2, undefined, 2]);
  });

  test("goes to the next one when the best call dies, is aborted or is deleted while it waits", async () => {
    const name = "ends";
    await using cluster = connect({ hosts: two.etcd.endpoints });
    const dying = await Session.open(cluster, { ttlSeconds: 60 });
    const leaves = new AbortController();
    const held = await mutex(two.holder, name).lock();
    const dead = reasonOf(mutex(dying, name).lock({ priority: 30 }));
    await queued(name, 2);
    const [aborted] = await inLine(name, [20], { signal: leaves.signal });
    const [deleted, last] = await inLine(name, [10, 0]);
    const byRank = (await queueAt(name)).filter(({ granted }) => !granted).sort((a, b) => a.rank - b.rank);

    await revoke(two.etcd.member, dying.leaseId);
    leaves.abort(new Error("no more"));
    await deleteKey(byRank[2]!.key);
    await held.release();

    expect(await dead).toMatchObject({ code: "SESSION_LOST" });
    expect(await reasonOf(aborted!)).toBe(leaves.signal.reason);
    // The one whose key was deleted joins again, and keeps its priority.
    expect((await served([deleted!, last!])).sort()).toEqual([0, 1]);
    await queued(name, 0);
  });

  test("comes when the holder dies, is deleted by another client, or has held for longer than maxHoldMs", async () => {
    const name = "holder ends";
    await using cluster = connect({ hosts: two.etcd.endpoints });
    const dying = await Session.open(cluster, { ttlSeconds: 60 });
    const dead = await mutex(dying, name).lock();
    const [first, second] = await inLine(name, [2, 1]);

    await revoke(two.etcd.member, dying.leaseId);
    const deleted = await first!;
    const [holder] = (await inspect(two.cluster, name)).holders;
    expect(await forceRelease(two.cluster, holder!)).toMatchObject({ key: deleted.key });
    const last = await second!;

    await until(() => !dead.held && !deleted.held);
    expect(deleted.signal.reason).toMatchObject({ code: "LOCK_LOST", loss: "deleted" });
    await last.release();
    const limited = new Mutex(two.holder, name, { priorities: true, maxHoldMs: 1, maxHoldGraceMs: 0 });
    await limited.lock();
    await mutex(two.session, name).withLock(() => undefined);
  });

  test("waits for the delay of a session with releaseDelayMs after a crash, and not after a release", async () => {
    const name = "delayed";
    await using cluster = connect({ hosts: two.etcd.endpoints });
    const session = await Session.open(cluster, { ttlSeconds: 2, releaseDelayMs: 1000 });
    await (await mutex(session, name).lock()).release();
    await queued(name, 0);
    const held = await mutex(session, name).lock();
    const [next] = await inLine(name, [0]);
    const keys = await queueAt(name);
    expect(keys.filter(({ granted }) => granted)).toHaveLength(2);
    const from = await revision();

    await revoke(two.etcd.member, session.leaseId);
    expect(await inspect(two.cluster, name)).toMatchObject({ holders: [{ state: "dead" }] });
    const lock = await next!;

    expect(lock.fence).toBeGreaterThan(held.fence);
    await judged(name, from);
    await lock.release();
  });
});

describe("tryLock", () => {
  test("gets a lock that nobody has, by one transaction, and overtakes nobody", async () => {
    const name = "try";
    const counted = await meter(two.etcd.member);
    const held = (await mutex(two.holder, name).tryLock())!;
    const { Txn, Range } = await counted.read();
    expect([Txn, Range]).toEqual([1, undefined]);
    expect(await queueAt(name)).toMatchObject([{ granted: true, revision: held.fence }]);
    const [waiting] = await inLine(name, [-1000]);

    const from = await revision();
    expect(await mutex(two.session, name).tryLock()).toBeUndefined();
    expect(await revision()).toBe(from);

    await held.release();
    await (await waiting!).release();
  });
});

describe("a lock of another kind", () => {
  test("rejects a call with a priority, and is rejected, in words that tell them apart", async () => {
    const name = "mixed";
    const plain = new Mutex(two.holder, name);
    const held = await plain.lock();
    expect(await reasonOf(mutex(two.session, name).lock())).toMatchObject({
      ...{ code: "KIND_MISMATCH", kind: "priority", found: "mutex" },
      message: expect.stringMatching(
        /^Cannot use "mixed" for a Mutex with priorities: .*by a Mutex/,
      ) as string,
    });
    await held.release();

    const lock = await mutex(two.session, name).lock({ priority: 3 });
    const [waiting] = await inLine(name, [0]);
    const calls = [
      plain.lock(),
      new RwLock(two.holder, name).readLock(),
      new RwLock(two.holder, name).writeLock(),
      new Semaphore(two.holder, name, 3).acquire(),
      new Semaphore(two.holder, name, 3, { weighted: true }).acquire(),
    ];
    for (const reason of await Promise.all(calls.map(reasonOf)))
      expect(reason).toMatchObject({ code: "KIND_MISMATCH", found: "priority" });
    expect(await plain.tryLock()).toBeUndefined();
    expect(lock.held).toBe(true);
    await lock.release();
    await (await waiting!).release();
  });

  test("behind calls with priorities does not let them hold beside it: of a client that waits, they are rejected after a second", async () => {
    const name = "mixed old";
    const held = await mutex(two.holder, name).lock();
    const [waiting] = await inLine(name, [0]);
    const { stdout } = await two.etcd.etcdctl(["lease", "grant", "60"]);
    const [, id = ""] = /lease 0*(\w+) granted/.exec(stdout) ?? [];
    // An entry of etcdctl, or of Go's client.
    await two.etcd.etcdctl(["put", `${name}/${id}`, "", `--lease=${id}`]);

    await held.release();

    expect(await reasonOf(waiting!)).toMatchObject({ code: "KIND_MISMATCH", found: "unknown" });
    await two.etcd.etcdctl(["lease", "revoke", id]);
    await queued(name, 0);
  });

  test.each([
    ["a level that is no number", { level: "1", agingMs: 1 }, undefined],
    ["a level out of range", { level: 1001, agingMs: 1 }, undefined],
    ["no agingMs", { level: 1 }, undefined],
    ["an agingMs of nothing", { level: 1, agingMs: 0 }, undefined],
    ["a time that is none", { level: 1, agingMs: 1 }, "yesterday"],
  ])("is one with a value that no client of ours writes: %s", async (what, priority, since) => {
    const name = `hostile/${what.replaceAll(" ", "-")}`;
    const { stdout } = await two.etcd.etcdctl(["lease", "grant", "60"]);
    const [, id = ""] = /lease 0*(\w+) granted/.exec(stdout) ?? [];
    const entry = { owner: "x", since: since ?? new Date().toISOString(), id: "1a", priority };
    await two.etcd.etcdctl(["put", `${name}/${id}`, JSON.stringify(entry), `--lease=${id}`]);

    expect(await reasonOf(mutex(two.session, name).lock())).toMatchObject({ found: "unknown" });
    await two.etcd.etcdctl(["lease", "revoke", id]);
    await mutex(two.session, name).withLock(() => undefined);
  });

  test("is none with a key without a lease: all wait for its end, also if it came between them", async () => {
    const name = "stray";
    const held = await mutex(two.holder, name).lock();
    const [waiting] = await inLine(name, [0]);
    await putKey(`${name}/config`, "a setting");

    await held.release();
    expect(await reasonOf(mutex(two.session, name).lock({ timeoutMs: 300 }))).toMatchObject({
      code: "LOCK_TIMEOUT",
    });
    await deleteKey(`${name}/config`);

    await (await waiting!).release();
  });
});

describe("bad input", () => {
  test.each<[value: unknown, error: typeof TypeError | typeof RangeError]>([
    [1001, RangeError],
    [-1001, RangeError],
    [1.5, RangeError],
    [NaN, RangeError],
    [Infinity, RangeError],
    ["2", TypeError],
    [null, TypeError],
  ])(
    "a priority of %s is rejected at once, by option, rule and value, and sends nothing",
    async (value, error) => {
      const before = await revision();
      const priority = value as number;

      for (const call of [
        mutex(two.session, "bad").lock({ priority }),
        mutex(two.session, "bad").withLock(() => undefined, { priority }),
      ]) {
        const reason = await reasonOf(call);
        expect(reason).toBeInstanceOf(error);
        expect((reason as Error).message).toMatch(
          /^Expected priority to be a whole number from -1000 to 1000, got /,
        );
      }
      expect(await revision()).toBe(before);
    },
  );

  test("a priority needs a Mutex with priorities, which excludes sticky, maxWaiting and supersede", async () => {
    const plain = new Mutex(two.session, "plain");
    for (const call of [plain.lock({ priority: 0 }), plain.withLock(() => undefined, { priority: 1 })])
      expect(await reasonOf(call)).toMatchObject({
        name: "TypeError",
        message: expect.stringMatching(
          /^Option priority of \w+ needs a Mutex with priorities: true$/,
        ) as string,
      });
    expect(await reasonOf(mutex(two.session, "x").lock({ maxWaiting: 3 }))).toEqual(
      new TypeError("Option maxWaiting of lock excludes a Mutex with priorities"),
    );
    expect(await reasonOf(mutex(two.session, "x").lock({ supersede: true, priority: 1 }))).toEqual(
      new TypeError("Option supersede of lock excludes a Mutex with priorities"),
    );
    expect(() => new Mutex(two.session, "x", { priorities: true, sticky: true })).toThrow(
      new TypeError("Options priorities and sticky of Mutex exclude each other"),
    );
    const tried = mutex(two.session, "x").tryLock({ priority: 1 } as object);
    expect(await reasonOf(tried)).toMatchObject({
      message: expect.stringMatching(/^Unknown option priority/) as string,
    });
  });

  test.each<[value: unknown, message: RegExp]>([
    [1, /^Expected priorities to be true, false or an object, got 1/],
    [
      { agingMs: 0 },
      /^Expected priorities.agingMs to be a number of milliseconds from 1 to 2147483647, got 0/,
    ],
    [{ agingMs: "1" }, /^Expected priorities.agingMs to be a number of milliseconds/],
    [{ aging: 1 }, /^Unknown option aging of priorities/],
  ])("priorities: %j are no such option", (value, message) => {
    expect(() => new Mutex(two.session, "x", { priorities: value as boolean })).toThrow(message);
  });
});

describe("what others see", () => {
  test("is the holder, whatever its place, and those that wait in their order, each with its priority", async () => {
    const name = "shown/priorities";
    const held = await mutex(two.holder, name).lock();
    const calls = await inLine(name, [1, 7, 4]);
    await held.release();
    const lock = await calls[1]!;

    const report = await inspect(two.cluster, name);
    expect(report).toMatchObject({ kind: "mutex", total: { holders: 1, waiters: 2 } });
    expect(report.holders).toMatchObject([{ key: lock.key, revision: lock.fence, priority: 7 }]);
    expect(report.waiters.map(({ priority }) => priority)).toEqual([4, 1]);
    expect((await inspect(two.cluster, name, { limit: 1 })).waiters).toMatchObject([{ priority: 4 }]);
    const { locks } = await list(two.cluster, "shown/");
    expect(locks).toMatchObject([{ name, kind: "mutex", waiters: 2, holder: { key: lock.key } }]);
    for await (const state of watchQueue(two.cluster, name)) {
      expect(state.holders).toMatchObject([{ key: lock.key, priority: 7 }]);
      expect(state.waiters.map(({ priority }) => priority)).toEqual([4, 1]);
      break;
    }
    expect(lock.wanted).toBe(false);
    await until(() => lock.wanted);
    await lock.release();
    await served([calls[0]!, calls[2]!]);
  });

  test("by a watch of the queue, no waiter holds between two holds", async () => {
    const name = "shown/watched";
    const seen: string[] = [];
    const stop = new AbortController();
    const watching = (async () => {
      for await (const { holders, waiters } of watchQueue(two.cluster, name, { signal: stop.signal }))
        seen.push(
          `${holders.map(({ priority }) => priority).join()}<${waiters.map(({ priority }) => priority).join()}`,
        );
    })().catch(() => undefined);
    const held = await mutex(two.holder, name).lock();
    const calls = await inLine(name, [1, 2]);
    await until(() => seen.at(-1) === "0<2,1");
    await held.release();
    for (const call of [calls[1]!, calls[0]!]) await (await call).release();
    await until(() => seen.at(-1) === "<");
    stop.abort();
    await watching;

    // It may miss states that follow each other fast, but shows none that did not exist.
    const states = ["<", "0<", "0<1", "0<2,1", "<2,1", "2<1", "<1", "1<", "<"];
    expect(states).toEqual(expect.arrayContaining(seen));
  });
});

describe("an adopted session", () => {
  test("gives its hold to the next call, and not the places of those that waited", async () => {
    const name = "adopted";
    const session = await Session.open(two.cluster, { ttlSeconds: 20 });
    const { key, fence } = await mutex(session, name).lock();
    const waiting = reasonOf(mutex(session, name).lock({ priority: 9 }));
    await queued(name, 2);
    const adopted = await Session.adopt(two.cluster, await session.orphan());
    onTestFinished(() => adopted.close({ drainMs: 0 }));

    const lock = await mutex(adopted, name).lock();

    expect(await waiting).toMatchObject({ code: "SESSION_CLOSED" });
    expect([lock.key, lock.fence]).toEqual([key, fence]);
    await lock.release();
    await queued(name, 0);
  });

  test("gives its hold to the next call, though a place of that process is older", async () => {
    const name = "adopted/crashed";
    const session = await Session.open(two.cluster, { ttlSeconds: 20 });
    const place = {
      ...{ owner: "x", since: new Date().toISOString(), id: "1a" },
      priority: { level: -1000, agingMs: 1000 },
    };
    await two.etcd.member.gateway("/v3/kv/put", {
      key: encode(`${name}/${session.leaseId.toString(16)}-9`),
      value: encode(JSON.stringify(place)),
      lease: session.leaseId.toString(),
    });
    const { key, fence } = await mutex(session, name).lock();
    const adopted = await Session.adopt(two.cluster, await session.orphan());
    onTestFinished(() => adopted.close({ drainMs: 0 }));

    const lock = await mutex(adopted, name).lock();

    expect([lock.key, lock.fence]).toEqual([key, fence]);
    await lock.release();
    await queued(name, 0);
  });
});

describe("an answer that is lost", () => {
  const isClaim = (request: Buffer): boolean => takesPlace(request) && givesBack(request);
  const isJoin = (request: Buffer): boolean => takesPlace(request) && !givesBack(request);
  const isRelease = (request: Buffer): boolean => givesBack(request) && !takesPlace(request);

  test.each(["drop-answer", "repeat"] as const)(
    "of the join, of the claim and of the release (%s) grants once, with one fence, and leaves nothing",
    async (act) => {
      const name = `lost/${act}`;
      const from = await revision();
      await using scene = await behindProxy(two.etcd, name, 5);
      const rules = [isJoin, isClaim, isRelease].map((shape) =>
        scene.proxy.rule({ path: "/etcdserverpb.KV/Txn", act, when: (request) => shape(request), times: 2 }),
      );
      const held = await mutex(two.holder, name).lock();
      const call = mutex(scene.session, name).lock({ priority: 1 });
      await queued(name, 2);
      const [behind] = await inLine(name, [0]);

      await held.release();

      const lock = await call;
      expect(await queueAt(name)).toMatchObject([{ granted: false }, { key: lock.key, granted: true }]);
      await lock.release();
      await (await behind!).release();
      expect(rules.every(({ hits }) => hits > 0)).toBe(true);
      expect(await judged(name, from)).toEqual([held.fence, lock.fence, (await behind!).fence]);
      await queued(name, 0);
    },
  );

  test("of the claim of a call that is aborted then gives its hold back", async () => {
    const name = "lost/aborted";
    await using scene = await behindProxy(two.etcd, name, 5);
    const leaves = new AbortController();
    const held = await mutex(two.holder, name).lock();
    const call = reasonOf(mutex(scene.session, name).lock({ signal: leaves.signal, priority: 1 }));
    await queued(name, 2);
    const [behind] = await inLine(name, [0]);
    const rule = scene.proxy.rule({
      path: "/etcdserverpb.KV/Txn",
      act: "drop-answer",
      when: isClaim,
      times: 1,
    });

    await held.release();
    await until(() => rule.hits > 0);
    leaves.abort(new Error("no more"));

    expect(await call).toBe(leaves.signal.reason);
    await (await behind!).release();
    await queued(name, 0);
  });
});

test("a free lock goes to the best call, whose claim takes long, while worse calls keep coming", async () => {
  const [name, most] = ["flow", 500];
  await using scene = await behindProxy(two.etcd, name, 60);
  const sessions = await Promise.all(Array.from({ length: 4 }, () => Session.open(scene.rivals)));
  const held = await mutex(two.holder, name).lock();
  const best = mutex(scene.session, name).lock({ priority: 9 });
  await queued(name, 2);
  // Each claim of the best call reaches etcd after several others have been able to join.
  scene.proxy.rule({ path: "/etcdserverpb.KV/Txn", act: "delay", ms: 100 });
  let granted = false;
  void best.then(() => (granted = true));

  const flow: Promise<unknown>[] = [];
  const ends = new AbortController();
  for (let n = 0; n < most && !granted; n++) {
    if (n === 20) await held.release();
    const timeoutMs = 1000;
    flow.push(reasonOf(mutex(sessions[n % 4]!, name).lock({ timeoutMs, signal: ends.signal })));
    await pause(20);
  }

  expect(granted).toBe(true);
  ends.abort();
  await Promise.all(flow);
  await (await best).release();
});

test("calls of one session that wait for each other to join let the claim of the next one pass, too", async () => {
  /** How many have joined while the claim was on its way; undefined: they have waited for a second, and may join. */
  const attempt = async (name: string): Promise<number | undefined> => {
    await using scene = await behindProxy(two.etcd, name, 60);
    await using other = await Session.open(scene.rivals);
    const held = await mutex(two.holder, name).lock();
    const best = mutex(scene.session, name).lock({ priority: 9 });
    await queued(name, 2);
    const ends = new AbortController();
    const call = () => reasonOf(mutex(other, name).lock({ signal: ends.signal }));
    // With a key in the queue, a session doesn't try the lock for its further calls.
    const first = call();
    await queued(name, 3);
    const claim = scene.proxy.rule({ path: "/etcdserverpb.KV/Txn", act: "hold" });
    await held.release();
    await claim.hit();
    const since = performance.now();
    const worse = Array.from({ length: 5 }, call);
    await until(async () => (await places(name)).length > 2);
    // Time enough for all of them to join, one after the other.
    for (let n = 0; n < 10; n++) await (await new Mutex(other, `${name}-beside`).lock()).release();
    const joined = (await places(name)).length - 2;
    const isLate = performance.now() - since > 900;
    claim.release();
    await (await best).release();
    ends.abort();
    await Promise.all([first, ...worse]);
    return isLate ? undefined : joined;
  };

  let joined: number | undefined;
  for (let n = 0; n < 10 && joined === undefined; n++) joined = await attempt(`line-${n}`);
  expect(joined).toBe(1);
});

describe("many sessions with random priorities", () => {
  test("hold one at a time, by what they say and by what etcd has; no better one waited; fences rise; all are served", async () => {
    const [name, calls] = ["load", 12];
    const from = await revision();
    const clusters: Cluster[] = Array.from({ length: 5 }, () => connect({ hosts: two.etcd.endpoints }));
    onTestFinished(() => Promise.all(clusters.map((each) => each.close({ drainMs: 0 }))).then(() => {}));
    const fences: bigint[] = [];
    let [holding, most, served] = [0, 0, 0];
    const client = async (cluster: Cluster, seed: number): Promise<void> => {
      for (let n = 0; n < calls; n++) {
        const priority = ((seed * 31 + n * n * 7 + n * 3) % 21) - 10;
        const gives = n % 5 === seed % 5 ? { timeoutMs: 1 + ((n * 13) % 60) } : {};
        const lock = await mutex(cluster, name, 3)
          .lock({ priority, ...gives })
          .catch((error: unknown) => {
            expect(["LOCK_TIMEOUT", "ETCD_UNAVAILABLE"]).toContain((error as { code?: string }).code);
          });
        if (!lock) continue;
        most = Math.max(most, ++holding);
        fences.push(lock.fence);
        served++;
        for (let pause = 0; pause < n % 4; pause++) await tick();
        holding--;
        await lock.release();
      }
    };

    await Promise.all(clusters.flatMap((cluster, n) => [client(cluster, 2 * n), client(cluster, 2 * n + 1)]));

    expect(most).toBe(1);
    expect(served).toBeGreaterThan((10 * calls * 3) / 4);
    expect(fences).toEqual([...fences].sort((a, b) => (a < b ? -1 : 1)));
    expect(await judged(name, from)).toEqual(expect.arrayContaining(fences));
    await queued(name, 0);
  });
});

describe("more calls than a name has room for", () => {
  test("are rejected: a thousand wait at most", async () => {
    const name = "full";
    const held = await mutex(two.holder, name).lock();
    const value = JSON.stringify({
      ...{ owner: "x", since: new Date().toISOString(), id: "1a" },
      priority: { level: 0, agingMs: 1 },
    });
    const { stdout } = await two.etcd.etcdctl(["lease", "grant", "60"]);
    const [, id = ""] = /lease 0*(\w+) granted/.exec(stdout) ?? [];
    const lease = BigInt(`0x${id}`).toString();
    for (let n = 2; n < 1002; n += 100) {
      const keys = Array.from({ length: 100 }, (_, i) => `${name}/${id}-${n + i}`);
      const puts = keys.map((key) => ({ requestPut: { key: encode(key), value: encode(value), lease } }));
      await two.etcd.member.gateway("/v3/kv/txn", { success: puts });
    }

    expect(await reasonOf(mutex(two.holder, name).lock({ priority: 1000 }))).toMatchObject({
      code: "QUEUE_FULL",
    });
    // It had a place for a moment, as its session holds: a free lock is tried first.
    await queued(name, 1001);
    expect(await reasonOf(mutex(two.session, name).lock({ priority: 1000 }))).toMatchObject({
      ...{ code: "QUEUE_FULL", maxWaiting: 1000, waiting: 1000 },
    });
    await two.etcd.etcdctl(["lease", "revoke", id]);
    await held.release();
    await queued(name, 0);
  });
});
