import { expect, test } from "vitest";
import { HoldHandle } from "../../../../src/lock/hold/hold.js";
import { LockTable } from "../../../../src/lock/queue/queue.js";
import { settle } from "../../../support/fakes/fake-clock.js";
import { FakeCluster, HEADER } from "../../../support/fakes/fake-connection.js";
import { keyValue } from "../../../support/fakes/fake-member.js";

test("`release` resolves after one TTL though renewals pass and the delete is never answered", async () => {
  const cluster = new FakeCluster();
  const lease = cluster.lease(12);
  const entry = LockTable.of(lease).queue("jobs").own.make().confirmed(50n);
  const lock = new HoldHandle(LockTable.of(lease).queue("jobs"), entry);
  let released = false;

  void lock.release().then(() => (released = true));
  for (let second = 1; second < 12; second++) {
    await cluster.clock.pass(1000);
    lease.renewed(cluster.clock.now(), 12);
  }
  expect(released).toBe(false);
  await cluster.clock.pass(1000);

  expect(released).toBe(true);
  expect(lease.state).toBe("live");
  expect(cluster.connected.flatMap((member) => member.of("txn")).length).toBeGreaterThan(1);
});

test("a hold is not lost by a state in which its key was not there yet", async () => {
  const cluster = new FakeCluster();
  const lease = cluster.lease();
  const entry = LockTable.of(lease).queue("jobs").own.make().confirmed(50n);
  const lock = new HoldHandle(LockTable.of(lease).queue("jobs"), entry);
  await cluster.clock.pass(1001);

  // Its member lags behind.
  cluster.member.watches[0]!.created(entry.key, 40n);
  await settle();
  cluster.member.of("range")[0]!.answer({
    header: { ...HEADER, revision: 45n },
    kvs: [],
    more: false,
    count: 0,
  });
  await settle();
  const kvs = [keyValue({ key: entry.key, value: entry.value, createRevision: 50n, modRevision: 50n })];
  cluster.member.of("range")[1]?.answer({ header: HEADER, kvs, more: false, count: 1 });
  await settle();

  expect(cluster.member.of("range")).toHaveLength(2);
  expect(lock.held).toBe(true);
});

test.each([
  ["without any key: the later entry isn't granted", [], true],
  ["with the later entry: it is granted", [60n], false],
])("a read for a hold that is over shows its key to a later entry %s", async (_, found, isGone) => {
  const cluster = new FakeCluster();
  const lease = cluster.lease();
  const queue = LockTable.of(lease).queue("jobs");
  const entry = queue.own.make().confirmed(50n);
  const lock = new HoldHandle(queue, entry);
  await cluster.clock.pass(1001);
  cluster.member.watches[0]!.created(entry.key, 50n);
  await settle();
  void lock.release();
  await settle();
  const header = { ...HEADER, revision: 51n };
  cluster.member.of("txn")[0]!.answer({ succeeded: true, header, ranges: [] });
  await settle();
  const later = queue.own.make().confirmed(60n);
  queue.own.add(later);
  expect(later.key).toBe(entry.key);

  const kvs = found.map((createRevision) => keyValue({ key: later.key, createRevision }));
  const answer = { header: { ...HEADER, revision: 70n }, kvs, more: false, count: kvs.length };
  cluster.member.of("range")[0]!.answer(answer);
  await settle();

  expect([later.knownGone, queue.grant(later, { state: "granted", visible: true })]).toEqual([
    isGone,
    !isGone,
  ]);
});
