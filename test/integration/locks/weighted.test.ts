// Weighted permits. Who holds is compared with what etcd has: the sum of the weights in the values of the keys, read by another client.
import { setImmediate as tick } from "node:timers/promises";
import { describe, expect, onTestFinished, test } from "vitest";
import {
  type Cluster,
  connect,
  forceRelease,
  type Hold,
  inspect,
  list,
  Mutex,
  Semaphore,
  Session,
  type SessionSource,
  watchQueue,
} from "../../../src/index.js";
import { decode, encode } from "../../support/clients/gateway-text.js";
import { revoke } from "../../support/clients/lease-calls.js";
import { givesBack, takesPlace } from "../../support/clients/request-shape.js";
import { behindProxy } from "../../support/proxies/behind-proxy.js";
import { meter } from "../../support/fixtures/spent.js";
import { etcdOf } from "../../support/fixtures/subjects.js";
import { reasonOf, twoSessions } from "../../support/fixtures/two-sessions.js";

const two = twoSessions(600);
const { places } = two;
const { deleteKey, putKey, queued, revision, until } = etcdOf(two);

const weighted = (source: SessionSource, name: string, permits: number) =>
  new Semaphore(source, name, permits, { weighted: true });
const releaseAll = (holds: readonly Hold[]) => Promise.all(holds.map((hold) => hold.release()));
const settledYet = (promise: Promise<unknown>) => {
  let settled = false;
  void promise.then(
    () => (settled = true),
    () => (settled = true),
  );
  return () => settled;
};

/** Calls of these weights, from the two sessions in turn; each has its place in etcd before the next one starts. */
async function inLine(
  name: string,
  permits: number,
  weights: readonly number[],
  signal?: AbortSignal,
): Promise<Promise<Hold>[]> {
  const before = (await places(name)).length;
  const calls: Promise<Hold>[] = [];
  for (const [n, weight] of weights.entries()) {
    const call = weighted(n % 2 ? two.session : two.holder, name, permits).acquire({ weight, signal });
    // The test awaits it later, or aborts it.
    call.catch(() => undefined);
    calls.push(call);
    await queued(name, before + n + 1);
  }
  return calls;
}

/** Nobody of these has been granted, and none will be: a call behind them that reads the queue is still refused. */
async function stillWait(name: string, permits: number, calls: readonly Promise<Hold>[]): Promise<void> {
  const settled = calls.map(settledYet);
  const before = (await places(name)).length;
  expect(await reasonOf(weighted(two.session, name, permits).acquire({ timeoutMs: 300 }))).toMatchObject({
    code: "LOCK_TIMEOUT",
  });
  expect(settled.map((is) => is())).toEqual(calls.map(() => false));
  await queued(name, before);
}

/** Of each key that etcd has, the oldest first, by its value. */
async function sharesIn(name: string): Promise<{ key: string; weight: number; permits: number }[]> {
  const body = { key: encode(`${name}/`), range_end: encode(`${name}0`), sort_target: "CREATE" };
  const { kvs = [] } = (await two.etcd.member.gateway("/v3/kv/range", body)) as {
    kvs?: { key: string; value: string }[];
  };
  return kvs.map(({ key, value }) => ({
    key: decode(key),
    ...(JSON.parse(decode(value)) as { weighted: { weight: number; permits: number } }).weighted,
  }));
}

describe("the order", () => {
  test("is that of arrival, whatever the weights, of one session and of several", async () => {
    const name = "order";
    const weights = [3, 2, 4, 1, 5, 1, 1, 3, 2, 5];
    const calls = await inLine(name, 5, weights);
    const holding: [n: number, hold: Hold][] = [];
    const served: number[] = [];
    calls.forEach(
      (call, n) =>
        void call.then((hold) => {
          served.push(n);
          holding.push([n, hold]);
        }),
    );

    for (let free = 5, next = 0, out = 0; out < weights.length; out++) {
      for (; next < weights.length && weights[next]! <= free; next++) free -= weights[next]!;
      await until(() => served.length >= next);
      // Several that enter at once may hear of it in any order.
      expect([...served].sort((a, b) => a - b)).toEqual(weights.slice(0, next).map((_, n) => n));
      expect(holding.reduce((sum, [n]) => sum + weights[n]!, 0)).toBeLessThanOrEqual(5);
      const [n, hold] = holding.shift()!;
      free += weights[n]!;
      await hold.release();
    }

    expect(served).toHaveLength(weights.length);
    expect(await places(name)).toEqual([]);
  });

  test("does not let a light call overtake a heavy one that waits, though there is room for it", async () => {
    const name = "behind heavy";
    const [first, heavy, light] = await inLine(name, 4, [2, 4, 1]);
    const held = await first!;

    await stillWait(name, 4, [heavy!, light!]);
    expect(await weighted(two.session, name, 4).tryAcquire()).toBeUndefined();

    await held.release();
    const alone = await heavy!;
    await stillWait(name, 4, [light!]);
    await alone.release();
    await (await light!).release();
  });

  test("does not starve a heavy call, however many light ones keep coming", async () => {
    const name = "flow";
    const stop = new AbortController();
    onTestFinished(() => stop.abort());
    let taken = 0;
    const flow = async (source: SessionSource): Promise<void> => {
      const semaphore = weighted(source, name, 3);
      while (!stop.signal.aborted) {
        await semaphore.withPermit(async () => {
          taken++;
          await tick();
        });
      }
    };
    const flows = [two.holder, two.session, two.holder, two.session].map(flow);
    await until(() => taken > 20);

    const hold = await weighted(two.session, name, 3).acquire({ weight: 3 });
    const before = taken;
    await queued(name, 5);

    expect((await sharesIn(name)).map(({ weight }) => weight)).toEqual([3, 1, 1, 1, 1]);
    expect(taken).toBe(before);
    stop.abort();
    await hold.release();
    await Promise.all(flows);
  });

  test("of calls in one process is that of the calls, when more wait than have a place in etcd", async () => {
    const name = "many";
    const semaphore = weighted(two.session, name, 10);
    const all = await weighted(two.holder, name, 10).acquire({ weight: 10 });
    const served: number[] = [];
    const weights = Array.from({ length: 130 }, (_, n) => (n * 7) % 10 || 10);
    const calls = weights.map((weight, n) =>
      semaphore.withPermit(() => void served.push(n), { weight, timeoutMs: 60_000 }),
    );
    await queued(name, 101);

    await all.release();
    await Promise.all(calls);

    expect(served).toEqual(weights.map((_, n) => n));
    await queued(name, 0);
  });
});

describe("room that comes free", () => {
  test("by the abort of a heavy waiter lets all in that fit behind it, at once, of one session and of several", async () => {
    const name = "abort";
    const leaves = new AbortController();
    const [first] = await inLine(name, 6, [2]);
    const held = await first!;
    const [heavy] = await inLine(name, 6, [6], leaves.signal);
    const light = await inLine(name, 6, [1, 2, 1, 3]);
    await stillWait(name, 6, light);

    leaves.abort(new Error("no more"));

    expect(await reasonOf(heavy!)).toBe(leaves.signal.reason);
    const entered = await Promise.all(light.slice(0, 3));
    expect(entered.map((hold) => hold.held)).toEqual([true, true, true]);
    await stillWait(name, 6, light.slice(3));
    await releaseAll([held, ...entered]);
    await (await light[3]!).release();
    await queued(name, 0);
  });

  test("by the crash of a heavy holder goes to as many as fit", async () => {
    const name = "crash";
    await using cluster = connect({ hosts: two.etcd.endpoints });
    const session = await Session.open(cluster, { ttlSeconds: 60 });
    const crashed = await weighted(session, name, 5).acquire({ weight: 4 });
    const waiting = await inLine(name, 5, [2, 2, 1, 5]);

    await revoke(two.etcd.member, session.leaseId);

    const holds = await Promise.all(waiting.slice(0, 3));
    await until(() => !crashed.held);
    await stillWait(name, 5, waiting.slice(3));
    await releaseAll(holds);
    await (await waiting[3]!).release();
  });

  test("by another client's deletion of a holder is taken, and that holder learns of its loss", async () => {
    const name = "deleted";
    const [first, second, third] = await inLine(name, 3, [2, 1, 2]);
    const [held, beside] = await Promise.all([first!, second!]);
    const report = await inspect(two.cluster, name);

    expect(await forceRelease(two.cluster, report.holders[0]!)).toMatchObject({ key: held.key });

    const next = await third!;
    await until(() => !held.held);
    expect(held.signal.reason).toMatchObject({ code: "LOCK_LOST", loss: "deleted" });
    await releaseAll([beside, next]);
  });

  test("by the deletion of a waiter's key goes to those behind it; that waiter joins again, at the end", async () => {
    const name = "deleted waiter";
    const [first, heavy, light] = await inLine(name, 3, [2, 3, 1]);
    const held = await first!;
    const [, { key }] = (await places(name)) as [unknown, { key: string }];

    await deleteKey(key);

    const beside = await light!;
    await queued(name, 3);
    await stillWait(name, 3, [heavy!]);
    await releaseAll([held, beside]);
    await (await heavy!).release();
  });

  test("piece by piece goes to a heavy waiter only when there is enough of it", async () => {
    const name = "pieces";
    const light = await Promise.all(await inLine(name, 8, [1, 1, 1, 1, 1, 1, 1, 1]));
    const [heavy] = await inLine(name, 8, [7]);

    for (const [n, hold] of light.slice(0, 7).entries()) {
      if (n === 6) await stillWait(name, 8, [heavy!]);
      await hold.release();
    }

    await releaseAll([await heavy!, light[7]!]);
  });
});

describe("a weight", () => {
  test("of all permits excludes everybody, as a Mutex does", async () => {
    const name = "all";
    const hold = await weighted(two.holder, name, 1000).acquire({ weight: 1000 });
    const [waiting] = await inLine(name, 1000, [1]);

    expect(await weighted(two.session, name, 1000).tryAcquire()).toBeUndefined();
    await stillWait(name, 1000, [waiting!]);
    await hold.release();

    await (await waiting!).release();
  });

  test("is 1 unless the call says another one, and what etcd has says so", async () => {
    const name = "default";
    const semaphore = weighted(two.holder, name, 3);
    const holds = [await semaphore.acquire(), (await semaphore.tryAcquire({ weight: 2 }))!];

    expect(await sharesIn(name)).toMatchObject([
      { weight: 1, permits: 3 },
      { weight: 2, permits: 3 },
    ]);
    await releaseAll(holds);
    expect(await semaphore.withPermit(({ held }) => held, { weight: 3 })).toBe(true);
  });

  test.each<[value: unknown, error: typeof TypeError | typeof RangeError]>([
    [4, RangeError],
    [0, RangeError],
    [-1, RangeError],
    [1.5, RangeError],
    [NaN, RangeError],
    [Infinity, RangeError],
    ["2", TypeError],
    [null, TypeError],
  ])("of %s is rejected at once, by option, rule and value, and sends nothing", async (value, error) => {
    const before = await revision();
    const semaphore = weighted(two.session, "bad", 3);
    const options = { weight: value as number };

    for (const call of [
      semaphore.acquire(options),
      semaphore.tryAcquire(options),
      semaphore.withPermit(() => undefined, options),
    ]) {
      const reason = await reasonOf(call);
      expect(reason).toBeInstanceOf(error);
      expect((reason as Error).message).toMatch(/^Expected weight to be a whole number from 1 to 3, got /);
    }
    expect(await revision()).toBe(before);
  });

  test("needs weighted: true, which excludes sticky", async () => {
    const plain = new Semaphore(two.session, "plain", 3);

    for (const call of [
      plain.acquire({ weight: 1 }),
      plain.tryAcquire({ weight: 1 }),
      plain.withPermit(() => undefined, { weight: 1 }),
    ])
      expect(await reasonOf(call)).toMatchObject({
        name: "TypeError",
        message: expect.stringMatching(
          /^Option weight of \w+ needs a Semaphore with weighted: true$/,
        ) as string,
      });
    expect(() => new Semaphore(two.session, "x", 3, { weighted: true, sticky: true })).toThrow(
      new TypeError("Options weighted and sticky of Semaphore exclude each other"),
    );
    expect(() => new Semaphore(two.session, "x", 3, { weighted: 1 as unknown as boolean })).toThrow(
      /^Expected weighted to be true or false, got 1/,
    );
  });

  test("is shown by inspect, list and watchQueue: how many hold, and what each one takes", async () => {
    const name = "shown/weights";
    const calls = await inLine(name, 10, [3, 6, 2, 1]);
    const holds = await Promise.all(calls.slice(0, 2));

    const report = await inspect(two.cluster, name);
    expect(report).toMatchObject({ kind: "semaphore", total: { holders: 2, waiters: 2 } });
    expect([...report.holders, ...report.waiters].map((each) => each.weighted)).toEqual(
      [3, 6, 2, 1].map((weight) => ({ permits: 10, weight })),
    );
    const { locks } = await list(two.cluster, "shown/");
    expect(locks).toMatchObject([
      { name, kind: "semaphore", waiters: 2, holder: { weighted: { weight: 3 } } },
    ]);
    for await (const state of watchQueue(two.cluster, name)) {
      expect(state).toMatchObject({ total: { holders: 2, waiters: 2 } });
      break;
    }
    await releaseAll(holds);
    await releaseAll(await Promise.all(calls.slice(2)));
  });
});

describe("while clients disagree on the number of permits, as in a rolling deploy,", () => {
  test("a smaller one rules when it is that of the oldest entry, and takes nothing back", async () => {
    const name = "fewer";
    const [a] = await Promise.all(await inLine(name, 10, [4]));
    const [b, c] = await Promise.all(await inLine(name, 4, [4, 2]));
    const [d, e] = await inLine(name, 4, [3, 1]);

    // They hold 6 of 4 from here on: nobody enters before there is room by the smaller number.
    await a!.release();
    await stillWait(name, 4, [d!, e!]);
    expect([b!.held, c!.held]).toEqual([true, true]);
    await b!.release();
    await stillWait(name, 4, [d!, e!]);
    await c!.release();

    await releaseAll(await Promise.all([d!, e!]));
    await queued(name, 0);
  });

  test("a larger one lets in all that it has room for as soon as it rules", async () => {
    const name = "more";
    const [a] = await Promise.all(await inLine(name, 3, [3]));
    const waiting = await inLine(name, 9, [2, 4, 3, 1]);

    await a!.release();

    const holds = await Promise.all(waiting.slice(0, 3));
    await stillWait(name, 9, waiting.slice(3));
    await releaseAll(holds);
    await (await waiting[3]!).release();
  });

  test("an entry that is heavier than the number that rules holds when it is the oldest, and not before", async () => {
    const name = "too heavy";
    const [a, b] = await Promise.all(await inLine(name, 4, [1, 2]));
    const [heavy, light] = await inLine(name, 10, [8, 1]);
    const [old] = await inLine(name, 4, [4]);

    await a!.release();
    await stillWait(name, 4, [heavy!, light!, old!]);
    await b!.release();

    const holds = await Promise.all([heavy!, light!]);
    await stillWait(name, 10, [old!]);
    await holds[0].release();
    await holds[1].release();
    await (await old!).release();
  });

  test("an entry that another number let in is counted, and holds up nobody behind it", async () => {
    const name = "let in";
    const [a] = await Promise.all(await inLine(name, 10, [2]));
    // By its own number, the second one would wait.
    const [b, c] = await Promise.all(await inLine(name, 3, [3, 3]));
    const [d] = await inLine(name, 10, [2]);
    const fourth = await d!;
    const [e] = await inLine(name, 10, [1]);

    await b!.release();

    const fifth = await e!;
    await releaseAll([a!, c!, fourth, fifth]);
    await queued(name, 0);
  });
});

describe("a queue of another kind", () => {
  test("rejects a weighted call among plain permits and a plain call among weighted ones, in words that tell them apart", async () => {
    const name = "mixed";
    const plain = new Semaphore(two.holder, name, 5);
    const weights = weighted(two.session, name, 5);
    const permit = await plain.acquire();
    const calls = [weights.acquire(), weights.tryAcquire(), weights.withPermit(() => undefined)];
    for (const reason of await Promise.all(calls.map(reasonOf)))
      expect(reason).toMatchObject({
        ...{ code: "KIND_MISMATCH", kind: "weighted", found: "permit" },
        message: expect.stringMatching(
          /^Cannot use "mixed" for a weighted Semaphore: .*by a Semaphore/,
        ) as string,
      });
    await permit.release();

    const hold = await weights.acquire({ weight: 2 });
    for (const reason of await Promise.all([plain.acquire(), plain.tryAcquire()].map(reasonOf)))
      expect(reason).toMatchObject({ kind: "permit", found: "weighted" });
    expect(await reasonOf(new Mutex(two.holder, name).lock())).toMatchObject({ found: "weighted" });
    expect(hold.held).toBe(true);
    await queued(name, 1);
    await hold.release();
  });

  test.each([
    ["takes more than there are", { permits: 2, weight: 3 }],
    ["takes nothing", { permits: 3, weight: 0 }],
    ["says no number", { weight: 1 }],
  ])("is one with a value that no client of ours writes, such as one that %s", async (what, value) => {
    const name = `hostile/${what.replaceAll(" ", "-")}`;
    const { stdout } = await two.etcd.etcdctl(["lease", "grant", "60"]);
    // etcdctl prints an ID with its leading zeros, which no key has.
    const [, id = ""] = /lease 0*(\w+) granted/.exec(stdout) ?? [];
    const entry = { owner: "x", since: new Date().toISOString(), id: "1a", weighted: value };
    await two.etcd.etcdctl(["put", `${name}/${id}`, JSON.stringify(entry), `--lease=${id}`]);

    expect(await reasonOf(weighted(two.session, name, 3).acquire())).toMatchObject({ found: "unknown" });
    await two.etcd.etcdctl(["lease", "revoke", id]);
    await weighted(two.session, name, 3).withPermit(() => undefined, { weight: 3 });
  });

  test("is not one with a key without a lease: all wait for its end, also if it came between them", async () => {
    const name = "stray";
    const [first] = await Promise.all(await inLine(name, 5, [1]));
    await putKey(`${name}/config`, "a setting");
    const [second] = await inLine(name, 5, [1]);

    await stillWait(name, 5, [second!]);
    await first!.release();
    await stillWait(name, 5, [second!]);
    await deleteKey(`${name}/config`);

    await (await second!).release();
  });
});

describe("tryAcquire", () => {
  test("costs one read, and no write when it is refused", async () => {
    const name = "try/read";
    const held = await weighted(two.holder, name, 5).acquire({ weight: 3 });
    const semaphore = weighted(two.session, name, 5);
    const counted = await meter(two.etcd.member);

    expect(await semaphore.tryAcquire({ weight: 3 })).toBeUndefined();

    const { Range, Txn, revisions } = await counted.read();
    expect([Range, Txn, revisions]).toEqual([1, undefined, undefined]);
    const beside = await semaphore.tryAcquire({ weight: 2 });
    await releaseAll([held, beside!]);
  });

  test("by many at once never gives more than there is", async () => {
    for (let round = 0; round < 10; round++) {
      const name = `try/many/${round}`;
      const weights = Array.from({ length: 12 }, (_, n) => 1 + ((n + round) % 4));

      const holds = await Promise.all(
        weights.map((weight, n) =>
          weighted(n % 2 ? two.holder : two.session, name, 6).tryAcquire({ weight }),
        ),
      );

      const held = holds.filter((hold) => hold !== undefined);
      expect(held.length).toBeGreaterThan(0);
      const keys = new Set(held.map(({ key }) => key));
      await queued(name, held.length);
      const taken = (await sharesIn(name)).filter(({ key }) => keys.has(key));
      expect(taken).toHaveLength(held.length);
      expect(taken.reduce((sum, { weight }) => sum + weight, 0)).toBeLessThanOrEqual(6);
      await releaseAll(held);
    }
  });
});

describe("more entries than a join reads", () => {
  test("are all counted: the last that fits enters, the next one waits", async () => {
    const name = "crowd";
    const light = await Promise.all(
      Array.from({ length: 90 }, (_, n) => weighted(n % 2 ? two.holder : two.session, name, 100).acquire()),
    );
    const [fits, waits] = await inLine(name, 100, [10, 1]);

    const hold = await fits!;
    await stillWait(name, 100, [waits!]);
    expect(await weighted(two.session, name, 100).tryAcquire()).toBeUndefined();
    await light[45]!.release();

    await releaseAll([await waits!, hold, ...light.filter((_, n) => n !== 45)]);
    await queued(name, 0);
  });

  test("cost a read and a put more; without them, a call costs one transaction, and its release another", async () => {
    const name = "cost";
    const semaphore = weighted(two.session, name, 100);
    const counted = await meter(two.etcd.member);
    await (await semaphore.acquire({ weight: 5 })).release();
    const { Txn, Range, revisions } = await counted.read();
    expect([Txn, Range, revisions]).toEqual([2, undefined, 2]);

    const light = await Promise.all(
      Array.from({ length: 70 }, () => weighted(two.holder, name, 100).acquire()),
    );
    // The watches of their keys begin after a while, each with a read.
    await until(async () => ((await counted.read())["Range"] ?? 0) >= light.length);
    const costs: unknown[] = [];
    for (let time = 0; time < 3; time++) {
      const again = await meter(two.etcd.member);
      const hold = await semaphore.acquire({ weight: 5 });
      await until(async () => (await again.read())["revisions"] === 2);
      const { Txn, Range, revisions } = await again.read();
      costs.push([Txn, Range, revisions]);
      await hold.release();
    }
    // On a busy machine, a request can be sent again; not each of them every time.
    expect(costs).toContainEqual([2, 1, 2]);
    await releaseAll(light);
  });

  test("are counted by tryAcquire, too", async () => {
    const name = "crowd/try";
    const semaphore = weighted(two.holder, name, 100);
    const light = await Promise.all(Array.from({ length: 90 }, () => semaphore.acquire()));

    expect(await weighted(two.session, name, 100).tryAcquire({ weight: 11 })).toBeUndefined();
    const fits = await weighted(two.session, name, 100).tryAcquire({ weight: 10 });

    expect(fits?.held).toBe(true);
    await releaseAll([...light, fits!]);
  });
});

describe("an adopted session", () => {
  test("gives its entry to a call of the same weight only: a heavier one would be counted wrongly", async () => {
    const name = "adopted";
    const session = await Session.open(two.cluster, { ttlSeconds: 20 });
    const { key } = await weighted(session, name, 5).acquire({ weight: 2 });
    const adopted = await Session.adopt(two.cluster, await session.orphan());
    onTestFinished(() => adopted.close({ drainMs: 0 }));

    const heavy = await weighted(adopted, name, 5).acquire({ weight: 3 });
    expect(heavy.key).not.toBe(key);
    const same = await weighted(adopted, name, 5).acquire({ weight: 2 });
    expect(same.key).toBe(key);

    expect(await sharesIn(name)).toMatchObject([{ weight: 2 }, { weight: 3 }]);
    await releaseAll([heavy, same]);
    await queued(name, 0);
  });
});

describe("an answer that is lost", () => {
  test.each(["drop-answer", "repeat"] as const)(
    "of the join of a heavy waiter, of the put of its grant and of its release (%s) counts it once, and leaves nothing",
    async (act) => {
      const name = `lost/${act}`;
      await using scene = await behindProxy(two.etcd, name, 5);
      const rules = [takesPlace, givesBack].map((shape) =>
        scene.proxy.rule({ path: "/etcdserverpb.KV/Txn", act, when: (request) => shape(request), times: 2 }),
      );
      const [first] = await Promise.all(await inLine(name, 5, [4]));
      const heavy = weighted(scene.session, name, 5).acquire({ weight: 3 });
      await queued(name, 2);
      const [behind, last] = await inLine(name, 5, [2, 1]);

      await first!.release();

      const holds = await Promise.all([heavy, behind!]);
      expect(await sharesIn(name)).toMatchObject([{ weight: 3 }, { weight: 2 }, { weight: 1 }]);
      await stillWait(name, 5, [last!]);
      await holds[0].release();
      await releaseAll([holds[1], await last!]);
      expect(rules.every(({ hits }) => hits > 0)).toBe(true);
      await queued(name, 0);
    },
  );
});

describe("many sessions with random weights", () => {
  test("never take more than there is, by what they say and by what etcd has, and all are served", async () => {
    const [name, permits, calls] = ["load", 10, 12];
    const clusters: Cluster[] = Array.from({ length: 6 }, () => connect({ hosts: two.etcd.endpoints }));
    onTestFinished(() =>
      Promise.all(clusters.map((cluster) => cluster.close({ drainMs: 0 }))).then(() => {}),
    );
    const holding = new Map<string, number>();
    let [most, sum, served] = [0, 0, 0];
    let [over, reads] = [false, 0];
    /** Sums the weights in etcd of those that say that they hold, before and after the read. */
    const judge = async (): Promise<number[]> => {
      const sums: number[] = [];
      while (!over) {
        const before = new Set(holding.keys());
        const shares = await sharesIn(name);
        const sure = shares.filter(({ key }) => before.has(key) && holding.has(key));
        sums.push(sure.reduce((total, { weight }) => total + weight, 0));
        reads++;
      }
      return sums;
    };
    const client = async (cluster: Cluster, seed: number): Promise<void> => {
      const semaphore = weighted(cluster, name, permits);
      for (let n = 0; n < calls; n++) {
        const weight = 1 + ((seed * 31 + n * n * 7 + n * 3) % permits);
        const gives = n % 5 === seed % 5 ? { timeoutMs: 1 + ((n * 13) % 60) } : {};
        const hold = await semaphore.acquire({ weight, ...gives }).catch((error: unknown) => {
          expect(["LOCK_TIMEOUT", "ETCD_UNAVAILABLE"]).toContain((error as { code?: string }).code);
        });
        if (!hold) continue;
        sum += weight;
        most = Math.max(most, sum);
        served++;
        holding.set(hold.key, weight);
        for (let pause = 0; pause < n % 4; pause++) await tick();
        // From its begin to its end, a read has seen this one.
        const seen = n === 0 ? reads + 2 : 0;
        while (reads < seen) await tick();
        holding.delete(hold.key);
        sum -= weight;
        await hold.release();
      }
    };

    const judging = judge();
    await Promise.all(clusters.flatMap((cluster, n) => [client(cluster, 2 * n), client(cluster, 2 * n + 1)]));
    over = true;

    const sums = await judging;
    expect(most).toBeLessThanOrEqual(permits);
    expect(Math.max(...sums)).toBeLessThanOrEqual(permits);
    expect(Math.max(...sums)).toBeGreaterThan(0);
    expect(served).toBeGreaterThan((12 * calls * 3) / 4);
    await queued(name, 0);
  }, 60_000);
});
