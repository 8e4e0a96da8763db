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
