import { expect, test } from "vitest";
import { MultiWaiter } from "../../../src/locks/lock-all.js";
import { LockTable } from "../../../src/queue/queue.js";
import { settle } from "../../support/fakes/fake-clock.js";
import { FakeCluster } from "../../support/fakes/fake-connection.js";

const TTL_SECONDS = 10;

/** A join whose answer is read after the process was suspended beyond the deadline, before any timer has run. */
async function answeredLate(cluster: FakeCluster) {
  await settle();
  const join = cluster.member.of("txn")[0];
  cluster.clock.freeze(TTL_SECONDS * 1000);
  join?.answer({ succeeded: true, header: cluster.member.header, ranges: [] });
  await settle();
}

test("a join that is answered after the deadline rejects as one that never joined", async () => {
  const cluster = new FakeCluster();
  const waiter = LockTable.of(cluster.lease(TTL_SECONDS)).queue("jobs").join();
  await answeredLate(cluster);

  await expect(waiter.granted).rejects.toMatchObject({ code: "SESSION_LOST", loss: "expired" });
  expect(waiter.joined).toBe(false);
});

test("a join of several names that is answered after the deadline rejects as one that never joined", async () => {
  const cluster = new FakeCluster();
  const waiter = new MultiWaiter(cluster.lease(TTL_SECONDS), ["a", "b"]);
  await answeredLate(cluster);

  await expect(waiter.granted).rejects.toMatchObject({ code: "SESSION_LOST", loss: "expired" });
  expect(waiter.joined).toBe(false);
});

test("a try that is answered after the deadline rejects with the end of its session", async () => {
  const cluster = new FakeCluster();
  const tried = LockTable.of(cluster.lease(TTL_SECONDS)).queue("jobs").tryJoin({});
  tried.catch(() => undefined);
  await answeredLate(cluster);

  await expect(tried).rejects.toMatchObject({ code: "SESSION_LOST", loss: "expired" });
});
