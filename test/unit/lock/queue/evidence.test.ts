// What a grant rests on: a revision at which the own key was there, and nothing that excludes it was before it.
import { describe, expect, test } from "vitest";
import type { Range, Txn } from "../../../../src/etcd/port.js";
import { HoldHandle } from "../../../../src/lock/hold/hold.js";
import { LockTable } from "../../../../src/lock/queue/queue.js";
import { permit } from "../../../../src/lock/queue/permit-mode.js";
import { settle } from "../../../support/fakes/fake-clock.js";
import { FakeCluster, HEADER } from "../../../support/fakes/fake-connection.js";
import { type FakeCall, keyValue } from "../../../support/fakes/fake-member.js";
import { BELOW, FIRST, MINE, placeKey, WaitingTurn, WATCHED } from "../../../support/fakes/fake-turn.js";

const at = (revision: bigint) => ({ ...HEADER, revision });
const putOf = (call: FakeCall) => (call.request as Txn).success[0] as { key: string; value: string };
const DEAF = { created() {}, events() {}, interrupted() {}, refused() {} };
const PERMITS = 2;
const VALUE = JSON.stringify({ permits: PERMITS });

test("an end of the predecessor from before the end of the holder, reported after it, gives no turn", async () => {
  const waiter = new WaitingTurn({ ahead: 2, before: "holder" });
  for (const key of [placeKey(BELOW), placeKey(FIRST)]) waiter.stream.created(key, WATCHED);
  await settle();
  await waiter.answerRead([MINE, BELOW, FIRST]);
  const reads = waiter.reads.length;
  const [both, before] = waiter.stream.creates;
  const deleted = (watchId: number, key: string, modRevision: bigint) => {
    const kv = keyValue({ key, createRevision: 0n, modRevision });
    waiter.stream.answer({ watchId, events: [{ kind: "DELETE", kv }] }, modRevision);
  };

  // The predecessor gave up; the next revision deleted the holder's key and ours.
  deleted(before!.watchId, placeKey(FIRST), WATCHED + 2n);
  deleted(both!.watchId, placeKey(BELOW), WATCHED + 1n);
  await settle();

  expect([waiter.told, waiter.reads.length - reads]).toEqual([[], 1]);
});

test("the end of the own key is not missed in the moment of the grant", async () => {
  const cluster = new FakeCluster();
  const lease = cluster.lease(60);
  const queue = LockTable.of(lease).queue("jobs");
  const hold = queue.join().granted.then((grant) => new HoldHandle(queue, grant));
  await settle();
  const join = cluster.member.of("txn")[0]!;
  const mine = keyValue({ ...putOf(join), createRevision: 50n, modRevision: 50n, leaseId: lease.leaseId });
  const holder = keyValue({ key: "jobs/40", createRevision: 40n, modRevision: 40n });
  const shown = { kvs: [mine, holder], more: false, count: 2 };
  join.answer({ header: at(50n), succeeded: true, ranges: [undefined, shown] });
  await settle();
  cluster.clock.advance(0);
  const stream = cluster.member.watches[0]!;
  stream.created("jobs/40", 50n);
  await settle();
  cluster.member
    .of("range")
    .at(-1)!
    .answer({ header: at(50n), ...shown });
  await settle();
  cluster.onCall = (call) => {
    if (call.method === "range") call.answer({ header: at(62n), kvs: [], more: false, count: 0 });
  };

  // One chunk of the socket has both answers.
  stream.deleted("jobs/40", 61n);
  stream.deleted(putOf(join).key, 62n);
  const lock = await hold;
  await cluster.clock.pass(1200);
  stream.created(putOf(join).key, 63n);
  await settle();

  expect(lock.held).toBe(false);
});

test("a permit's waiter whose join read nothing reads when its sibling is granted, though its watches are reused", async () => {
  const cluster = new FakeCluster();
  const lease = cluster.lease(60);
  const mode = permit(PERMITS);
  const idle = cluster.services.watches.watch({ key: "jobs/77-2", events: "DELETE" }, DEAF);
  cluster.clock.advance(0);
  const stream = cluster.member.watches[0]!;
  stream.created("jobs/77-2", 40n);
  idle.keepForReuse();
  const queue = LockTable.of(lease).queue("jobs");
  const kv = (key: string, revision: bigint, leaseId = 0n) =>
    keyValue({ key, value: VALUE, createRevision: revision, modRevision: revision, leaseId });
  const txn = () => cluster.member.of("txn").at(-1)!;

  const sibling = queue.join({ mode });
  await settle();
  const mine = { ...kv(putOf(txn()).key, 50n, lease.leaseId), value: putOf(txn()).value };
  const [first, last] = [kv("jobs/1", 10n), kv("jobs/1-2", 11n)];
  const shown = [
    { kvs: [first], more: true, count: 3 },
    { kvs: [mine, last], more: true, count: 3 },
  ];
  txn().answer({ header: at(50n), succeeded: true, ranges: [undefined, ...shown] });
  await settle();
  cluster.clock.advance(0);
  stream.created("jobs/", 50n);
  await settle();
  stream.deleted(["jobs/1", "jobs/1-2"], 55n);
  const waiter = queue.join({ mode });
  await settle();
  const next = { ...kv(putOf(txn()).key, 60n, lease.leaseId), value: putOf(txn()).value };
  txn().answer({ header: at(60n), succeeded: true, ranges: [undefined] });
  await settle();
  const pending = cluster.member.of("range").at(-1)!;
  cluster.onCall = (call) => {
    if (call.method === "range") call.answer({ header: at(61n), kvs: [next, mine], more: false, count: 2 });
    else call.answer({ header: at(61n), succeeded: true, ranges: [undefined] });
  };
  pending.answer({ header: at(60n), kvs: [mine], more: false, count: 1 });
  await sibling.granted;
  await settle();

  expect((await waiter.granted).revision).toBe(60n);
});

test("a waiter far back gives the range of both keys back", async () => {
  const waiter = new WaitingTurn({ ahead: 10, before: "waiter" });
  waiter.stream.created(placeKey(FIRST), WATCHED);
  await settle();
  await waiter.clock.pass(100);
  await waiter.answerRead([MINE, BELOW, FIRST, 20n], {}, true);
  await waiter.deleted(FIRST, WATCHED + 1n);
  const since = waiter.stream.creates.length;

  waiter.stream.created(placeKey(BELOW), WATCHED + 1n);
  await waiter.answerRead([MINE, BELOW, 20n, 19n], { revision: WATCHED + 1n }, true);

  expect(waiter.followed(since)).toEqual([placeKey(20n)]);
  expect(waiter.stream.cancels).toHaveLength(1);
});

describe("a waiter for a permit reads the less often the more are before it", () => {
  test.each([
    [3, 15, 60],
    [50, 0, 10],
    [400, 0, 10],
  ])("with %i before it", async (before, least, most) => {
    const waiter = new WaitingTurn(undefined, permit(PERMITS));
    const kv = (revision: bigint, key = placeKey(revision)) =>
      keyValue({ key, value: VALUE, createRevision: revision, modRevision: revision });
    waiter.cluster.onCall = (call) => {
      if (call.method !== "range") return;
      const { limit = 1000 } = call.request as Range;
      const older = Array.from({ length: Math.min(before, limit - 1) }, (_, n) => kv(BigInt(1000 - n)));
      const mine = { ...kv(MINE, waiter.entry.key), createRevision: MINE };
      const kvs = [mine, ...older];
      call.answer({ header: at(WATCHED), kvs, more: before > older.length, count: before + 1 });
    };
    const answered = new Set<unknown>();
    for (let passed = 0; passed < 20_000; passed += 50) {
      await waiter.clock.pass(50);
      waiter.entry.lease.renewed(waiter.clock.now(), 10);
      for (const stream of waiter.cluster.connected.flatMap(({ watches }) => watches))
        for (const create of stream.creates.filter((each) => !answered.has(each))) {
          answered.add(create);
          stream.answer({ watchId: create.watchId, created: true }, WATCHED);
        }
      await settle();
    }
    expect(waiter.told).toEqual([]);
    // Some follow the creation of watches.
    expect(waiter.reads.length).toBeGreaterThanOrEqual(least);
    expect(waiter.reads.length).toBeLessThanOrEqual(most);
  });
});
