// A holder is told who waits behind it. What it is told is compared with what etcd shows, and with what another client does.
import { setImmediate as tick } from "node:timers/promises";
import { describe, expect, onTestFinished, test } from "vitest";
import {
  connect,
  type Contender,
  Election,
  inspect,
  lockAll,
  Mutex,
  RwLock,
  Semaphore,
} from "../../../src/index.js";
import { etcdOf, slug, type Subject, SUBJECTS, titled } from "../../support/fixtures/subjects.js";
import { startEtcd } from "../../support/etcd/etcd.js";
import { twoSessions } from "../../support/fixtures/two-sessions.js";

const two = twoSessions(600);
const { putKey, deleteKey, until, queued } = etcdOf(two);

/** What its holder was told, in order. */
function telling(hold: { onWanted(listener: (waiter: Contender) => void): () => void }) {
  const told: Contender[] = [];
  const stop = hold.onWanted((waiter) => void told.push(waiter));
  return { told, stop, count: (n: number) => until(() => told.length >= n) };
}

/** Settles the wait of a test that nobody grants. */
function waiting<T>(begin: (signal: AbortSignal) => Promise<T>) {
  const leaves = new AbortController();
  const call = begin(leaves.signal).catch(() => undefined);
  const leave = async (): Promise<void> => {
    leaves.abort();
    await call;
  };
  onTestFinished(leave);
  return { leave, call };
}

describe.each(titled(SUBJECTS))("the holder of %s", (what, subject: Subject) => {
  const nameOf = (of: string) => `${slug(what)}/${of}`;
  const wait = (name: string) => waiting((signal) => blockOf(subject, name, signal));

  test("is told who has joined behind it, by that join", async () => {
    const name = nameOf("joined");
    const hold = await subject.take(two.holder, name);
    const { told, count } = telling(hold);
    expect(hold.wanted).toBe(false);

    wait(name);
    await count(1);

    const [behind] = (await two.places(name)).slice(-1);
    expect(told[0]).toMatchObject({ name, key: behind!.key, state: "waiting", leaseId: two.session.leaseId });
    expect(told[0]!.revision).toBe(behind!.revision);
    expect([told.length, hold.wanted]).toEqual([1, true]);
    await subject.release(hold);
  });

  test("is told of one that waited before anybody asked", async () => {
    const name = nameOf("before");
    const hold = await subject.take(two.holder, name);
    const before = (await two.places(name)).length;
    wait(name);
    await queued(name, before + 1);

    const { told, count } = telling(hold);
    await count(1);

    expect(told[0]).toMatchObject({ name, state: "waiting" });
    await subject.release(hold);
  });

  test("is wanted no more when the waiter has left, and again when another one comes", async () => {
    const name = nameOf("left");
    const hold = await subject.take(two.holder, name);
    const { count } = telling(hold);
    const { leave } = wait(name);
    await count(1);

    await leave();
    await until(() => !hold.wanted);
    wait(name);
    await count(2);

    expect(hold.wanted).toBe(true);
    await subject.release(hold);
  });

  test("is told nothing after its end", async () => {
    const name = nameOf("ended");
    const hold = await subject.take(two.holder, name);
    const { told } = telling(hold);
    const waiters = hold.waiters();
    const next = waiters.next();
    await subject.release(hold);

    const { call } = wait(name);
    await call;
    await tick();

    expect(told).toEqual([]);
    expect(await next).toEqual({ done: true, value: undefined });
    expect(hold.wanted).toBe(false);
    // One that begins to listen after the end hears nothing, and its loop ends.
    expect(telling(hold).told).toEqual([]);
    expect(await hold.waiters().next()).toEqual({ done: true, value: undefined });
  });

  test("lets go in a loop over its waiters", async () => {
    const name = nameOf("loop");
    const hold = await subject.take(two.holder, name);
    const { call } = wait(name);

    for await (const waiter of hold.waiters()) {
      expect(waiter.name).toBe(name);
      await subject.release(hold);
    }

    expect(await call).toBe("granted");
  });
});

async function blockOf({ kind }: Subject, name: string, signal: AbortSignal): Promise<"granted"> {
  const wait = { signal };
  const { session } = two;
  const take = {
    mutex: () => new Mutex(session, name).lock(wait),
    priority: () => new Mutex(session, name, { priorities: true }).lock(wait),
    writer: () => new RwLock(session, name).readLock(wait),
    reader: () => new RwLock(session, name).writeLock(wait),
    permit: () => new Semaphore(session, name, 1).acquire(wait),
    weighted: () => new Semaphore(session, name, 3, { weighted: true }).acquire({ ...wait, weight: 2 }),
    all: () => lockAll(session, [name], wait),
    leadership: () => new Election(session, name).campaign("another", wait),
  }[kind];
  const hold = await take();
  await hold.release();
  return "granted";
}

test("the reason of a waiter reaches the holder, and stays with the lock", async () => {
  const lock = await new Mutex(two.holder, "reasons").lock();
  const { told, count } = telling(lock);
  const reason = "deploy 4711\u0000 \u202e\"'<b>".repeat(2);
  const next = new Mutex(two.session, "reasons").lock({ reason });
  await count(1);

  expect(told[0]!.reason).toBe(reason);
  await lock.release();
  const report = await inspect(two.cluster, "reasons");
  expect(report.holders[0]).toMatchObject({ state: "holding", reason });
  await (await next).release();
});

test.each([
  ["readLock", (reason: string) => new RwLock(two.session, "asks").readLock({ reason })],
  ["writeLock", (reason: string) => new RwLock(two.session, "asks").writeLock({ reason })],
  ["acquire", (reason: string) => new Semaphore(two.session, "asks-p", 2).acquire({ reason })],
  ["lockAll", (reason: string) => lockAll(two.session, ["asks-a", "asks-b"], { reason })],
])("%s takes a reason", async (_, take) => {
  const hold = await take("because");
  const key = "keys" in hold ? (hold.keys[0] as string) : hold.key;
  const report = await inspect(two.cluster, key.slice(0, key.search(/\/(read\/|write\/)?[0-9a-f]+$/)));

  expect(report.holders[0]).toMatchObject({ key, reason: "because" });
  await hold.release();
});

test("a waiter of any client counts: one without an owner or a value, and one with hostile values", async () => {
  const lock = await new Mutex(two.holder, "foreign").lock();
  const { told, count } = telling(lock);
  await putKey("foreign/1a2b", "");
  await count(1);
  expect(told[0]).toMatchObject({ key: "foreign/1a2b", owner: undefined, reason: undefined });
  await deleteKey("foreign/1a2b");
  await until(() => !lock.wanted);
  await putKey("foreign/1a2c", JSON.stringify({ owner: "o".repeat(9999), reason: "r".repeat(9999) }));
  await count(2);

  expect([told[1]!.owner!.length, told[1]!.reason!.length]).toEqual([256, 256]);
  await lock.release();
});

test("a key of a name below waits for nobody here, and wants nothing", async () => {
  const lock = await new Mutex(two.holder, "above").lock();
  const { told, count } = telling(lock);
  await putKey("above/below/1a2b", "");
  await putKey("above/1a2c", "");
  await count(1);

  expect(told.map(({ key }) => key)).toEqual(["above/1a2c"]);
  await lock.release();
  await deleteKey("above/below/1a2b");
});

test("a permit is wanted when none is free, and not before", async () => {
  const semaphore = (source: typeof two.holder) => new Semaphore(source, "permits", 2);
  const first = await semaphore(two.holder).acquire();
  const { told, count } = telling(first);
  const second = await semaphore(two.session).acquire();
  const third = semaphore(two.session).acquire();
  await count(1);

  const places = await two.places("permits");
  expect(told.map(({ key }) => key)).toEqual([places[2]!.key]);
  await first.release();
  await Promise.all([second.release(), third.then((hold) => hold.release())]);
});

test("holds of one name and session share one watch, which ends with the last of them, and there is no other", async () => {
  const etcd = await startEtcd();
  onTestFinished(() => etcd.stop());
  const watchers = async () => (await etcd.member.metrics()).get("etcd_debugging_mvcc_watcher_total");
  await using cluster = connect({ hosts: etcd.endpoints });
  const semaphore = new Semaphore(cluster, "shared", 4);
  const holds = await Promise.all([1, 2, 3].map(() => semaphore.acquire()));
  expect(await watchers()).toBe(0);

  for (const hold of holds) telling(hold);
  await until(async () => (await watchers()) !== 0);
  expect(await watchers()).toBe(1);

  await Promise.all(holds.map((hold) => hold.release()));
  await until(async () => (await watchers()) === 0);
});

test("what a listener throws does not keep others from hearing, and a removed one hears nothing", async () => {
  const lock = await new Mutex(two.holder, "listeners").lock();
  const thrown: unknown[] = [];
  const others = process.listeners("uncaughtException");
  process.removeAllListeners("uncaughtException");
  process.once("uncaughtException", (error) => void thrown.push(error));
  onTestFinished(() => others.forEach((each) => process.on("uncaughtException", each)));
  const error = new Error("of a listener");
  lock.onWanted(() => {
    throw error;
  });
  const removed = telling(lock);
  removed.stop();
  const { count } = telling(lock);

  waiting((signal) => new Mutex(two.session, "listeners").lock({ signal }));
  await count(1);
  await until(() => thrown.length === 1);

  expect(thrown).toEqual([error]);
  expect(removed.told).toEqual([]);
  await lock.release();
});

test("a listener that is no function is refused", async () => {
  const lock = await new Mutex(two.holder, "misuse").lock();

  expect(() => lock.onWanted(1 as never)).toThrow(new TypeError("Expected listener to be a function, got 1"));
  await lock.release();
});
