import { describe, expect, test } from "vitest";
import { EtcdRefusedError } from "../../../../src/errors.js";
import { UnansweredError } from "../../../../src/etcd/port.js";
import { HoldHandle } from "../../../../src/lock/hold/hold.js";
import { LockTable } from "../../../../src/lock/queue/queue.js";
import { settle } from "../../../support/fakes/fake-clock.js";
import { FakeCluster, HEADER, LEASE_ID } from "../../../support/fakes/fake-connection.js";
import { type FakeCall, type FakeMember, keyValue } from "../../../support/fakes/fake-member.js";

/** Longer than any pause before an audit, so that no renewal is overdue in the meantime. */
const TTL_SECONDS = 3600;
const FENCE = 50n;
/** The shortest pause before an audit, which is what the fake clock draws. */
const LOOK_MS = 22_500;

/** `count` locks on different names that have just been granted. */
function holding(count: number) {
  const cluster = new FakeCluster();
  const lease = cluster.lease(TTL_SECONDS);
  const locks = Array.from({ length: count }, (_, n) => {
    const entry = LockTable.of(lease).queue(`job-${n}`).own.make().confirmed(FENCE);
    return new HoldHandle(LockTable.of(lease).queue(`job-${n}`), entry);
  });
  return { cluster, clock: cluster.clock, lease, locks };
}

const asked = ({ connected }: FakeCluster, method: "range" | "timeToLive"): FakeCall[] =>
  connected.flatMap((member) => member.of(method));

const keyOf = ({ request }: FakeCall) => (request as { key: string }).key;

/** Answers whether the key exists. */
function answer(call: FakeCall, member: FakeMember, there: boolean): void {
  const kvs = there ? [keyValue({ key: keyOf(call), createRevision: FENCE, leaseId: LEASE_ID })] : [];
  call.answer({ header: member.header, kvs, more: false, count: kvs.length });
}

/** Makes every hold long: etcd has created its watch, and a read has found its key. */
async function watched(count: number) {
  const held = holding(count);
  const { cluster, clock } = held;
  cluster.onCall = (call) =>
    call.method === "range" && queueMicrotask(() => answer(call, cluster.member, true));
  await clock.pass(1100);
  for (const stream of cluster.member.watches)
    for (const { key } of [...stream.creates]) stream.created(String(key), 90n);
  for (let n = 0; n < count; n += 32) await settle();
  cluster.onCall = () => {};
  return { ...held, read: asked(cluster, "range").length };
}

describe("holds that last", () => {
  test("share one timer, before they are long and after", async () => {
    const { cluster, clock, lease, locks } = holding(1000);
    const young = clock.timers;
    for (const lock of locks) lock.sessionEnded({ code: "SESSION_CLOSED" } as never);
    const none = clock.timers;
    expect(young - none).toBe(1);
    expect(lease.holds.size).toBe(0);

    const long = await watched(1000);
    expect(long.clock.timers).toBeLessThanOrEqual(young);
    expect(cluster.connected).toEqual([]);
  });

  test("are watched about a second after their grant, each by its own, thousands in more than one turn", async () => {
    const { cluster, clock, locks } = holding(1000);
    const watches = () => cluster.connected.flatMap((member) => member.watches.flatMap((it) => it.creates));
    clock.advance(800);
    expect(watches()).toEqual([]);

    await clock.pass(300);

    expect(new Set(watches().map(({ key }) => String(key)))).toEqual(new Set(locks.map(({ key }) => key)));
  });

  test("are read a few at a time when etcd has created all their watches at once", async () => {
    const { cluster, clock, locks } = holding(1000);
    await clock.pass(1100);
    for (const { key } of locks) cluster.member.watches[0]!.created(key, 90n);
    await settle();
    const atOnce = asked(cluster, "range").length;
    expect(atOnce).toBeLessThanOrEqual(32);

    for (let n = 0; n < locks.length; n++) {
      answer(asked(cluster, "range")[n]!, cluster.member, true);
      await settle();
    }

    const read = asked(cluster, "range").map(keyOf);
    expect([read.length, new Set(read).size]).toEqual([1000, 1000]);
    expect(locks.every(({ held }) => held)).toBe(true);
  });

  test("are not read any more when they end while they wait to be read", async () => {
    const { cluster, clock, locks } = holding(100);
    await clock.pass(1100);
    for (const { key } of locks) cluster.member.watches[0]!.created(key, 90n);
    await settle();
    const begun = asked(cluster, "range");

    for (const lock of locks) void lock.release();
    for (const call of begun) answer(call, cluster.member, true);
    await settle();

    expect(asked(cluster, "range")).toHaveLength(begun.length);
  });
});

describe("the slow look", () => {
  test("asks for all keys of the session at once, and reads none of those that are there", async () => {
    const { cluster, clock, locks, read } = await watched(1000);

    await clock.pass(LOOK_MS);
    const looks = asked(cluster, "timeToLive");
    expect(looks.map(({ request }) => request)).toEqual([LEASE_ID]);
    looks[0]!.answer({ header: HEADER, ttlSeconds: 9, keys: locks.map(({ key }) => Buffer.from(key)) });
    await settle();

    expect(asked(cluster, "range")).toHaveLength(read);
    expect(locks.every(({ held }) => held)).toBe(true);
  });

  test("comes later with more than 1,000 holds, which make it more expensive", async () => {
    const { cluster, clock, locks } = await watched(2000);

    await clock.pass(2 * LOOK_MS - 2000);
    expect(asked(cluster, "timeToLive")).toEqual([]);
    await clock.pass(2000);
    const [look] = asked(cluster, "timeToLive");
    look!.answer({ header: HEADER, ttlSeconds: 9, keys: locks.map(({ key }) => Buffer.from(key)) });
    await clock.pass(2 * LOOK_MS - 2000);

    expect(asked(cluster, "timeToLive")).toEqual([look]);
    await clock.pass(2000);
    expect(asked(cluster, "timeToLive")).toHaveLength(2);
  });

  test("finds a key that was deleted without an event, and ends its hold alone", async () => {
    const { cluster, clock, locks, read } = await watched(3);

    await clock.pass(LOOK_MS);
    const keys = [locks[0]!, locks[2]!].map(({ key }) => Buffer.from(key));
    asked(cluster, "timeToLive")[0]!.answer({ header: HEADER, ttlSeconds: 9, keys });
    await settle();
    const reads = asked(cluster, "range").slice(read);
    expect(reads.map(keyOf)).toEqual([locks[1]!.key]);
    answer(reads[0]!, cluster.member, false);
    await settle();

    expect(locks.map(({ held }) => held)).toEqual([true, false, true]);
  });

  test("lets the read decide: a key that an old list lacks is no loss", async () => {
    const { cluster, clock, locks, read } = await watched(1);

    await clock.pass(LOOK_MS);
    asked(cluster, "timeToLive")[0]!.answer({ header: HEADER, ttlSeconds: 9, keys: [] });
    await settle();
    answer(asked(cluster, "range").slice(read)[0]!, cluster.member, true);
    await settle();

    expect(locks[0]!.held).toBe(true);
  });

  test("reads every key when the list is refused", async () => {
    const { cluster, clock, locks, read } = await watched(3);

    await clock.pass(LOOK_MS);
    asked(cluster, "timeToLive")[0]!.fail(new EtcdRefusedError("permission", "a:1", "etcdserver: denied"));
    await settle();

    const reads = asked(cluster, "range").slice(read);
    expect(reads.map(keyOf)).toEqual(locks.map(({ key }) => key));
  });

  test("reads nothing when nobody answers, and looks again later", async () => {
    const { cluster, clock, lease, read } = await watched(3);
    cluster.onCall = (call) =>
      call.method === "timeToLive" && queueMicrotask(() => call.fail(new UnansweredError("no")));

    await clock.pass(LOOK_MS + 20_000);
    expect(asked(cluster, "range")).toHaveLength(read);
    cluster.onCall = () => {};
    const before = asked(cluster, "timeToLive").length;
    await clock.pass(LOOK_MS);

    expect(asked(cluster, "timeToLive").length).toBeGreaterThan(before);
    expect(lease.state).toBe("live");
  });

  test("comes again and again while anything is held, once for each pause, and hardly ever after the last hold", async () => {
    const { cluster, clock, locks } = await watched(2);
    const keys = locks.map(({ key }) => Buffer.from(key));
    cluster.onCall = (call) =>
      call.method === "timeToLive" &&
      queueMicrotask(() => call.answer({ header: HEADER, ttlSeconds: 9, keys }));
    clock.nextRandom = 0.5;

    await clock.pass(300_000);
    const looks = asked(cluster, "timeToLive").length;
    expect(looks).toBe(10);
    for (const lock of locks) void lock.release();
    await clock.pass(300_000);

    // The audits of an idle session: after 30 s, 1 and 2 minutes, and then every 5 minutes.
    expect(asked(cluster, "timeToLive")).toHaveLength(looks + 3);
  });
});
