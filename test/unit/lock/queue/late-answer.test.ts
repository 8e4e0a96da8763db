import { expect, test } from "vitest";
import { MultiWaiter } from "../../../../src/lock/lock-all.js";
import { LockTable } from "../../../../src/lock/queue/queue.js";
import { settle } from "../../../support/fakes/fake-clock.js";
import { FakeCluster, HEADER, LEASE_ID } from "../../../support/fakes/fake-connection.js";
import { keyValue } from "../../../support/fakes/fake-member.js";

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
  const waiter = new MultiWaiter(cluster.lease(TTL_SECONDS), { names: ["a", "b"] });
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

test.each(["before its turn comes", "after its turn has come and before its caller runs"])(
  "a wait for several names rejects with the end of its session if the deadline passes %s",
  async (when) => {
    const cluster = new FakeCluster();
    const lease = cluster.lease(TTL_SECONDS);
    const waiter = new MultiWaiter(lease, { names: ["a"] });
    let outcome: unknown = "none";
    waiter.granted.then(
      () => (outcome = "granted"),
      (error: unknown) => (outcome = error),
    );
    // No timer has run: the process was suspended, or another callback took so long.
    const stall = (turns = when === "before its turn comes" ? 0 : 100): void => {
      const isGranted = LockTable.of(lease)
        .entries()
        .some(({ held }) => held);
      if (turns === 0 || isGranted) cluster.clock.freeze(TTL_SECONDS * 1000);
      else queueMicrotask(() => stall(turns - 1));
    };
    const answer = async (succeeded: boolean, ranges: readonly object[] = []): Promise<void> => {
      await settle();
      const txn = cluster.member.of("txn").at(-1);
      if (ranges.length > 0) stall();
      txn?.answer({ succeeded, header: HEADER, ranges });
      await settle();
    };
    await answer(false);
    await answer(true);
    const own = { key: `a/${LEASE_ID.toString(16)}`, createRevision: HEADER.revision };

    await answer(true, [{ header: HEADER, kvs: [keyValue(own)], count: 1, more: false }]);

    expect(waiter.joined).toBe(true);
    expect(outcome).toMatchObject({ code: "SESSION_LOST", loss: "expired" });
    expect(lease.waits.size).toBe(0);
  },
);
