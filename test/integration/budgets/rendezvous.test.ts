import { describe, expect, it } from "vitest";
import { Barrier, CountDownLatch, DoubleBarrier } from "../../../src/index.js";
import { metered, times } from "../../support/fixtures/metered.js";
import { meter } from "../../support/fixtures/spent.js";

const ROUNDS = 50;

const at = metered();

describe("what a latch costs etcd", () => {
  it("to count: one transaction, and one more for the last count; a lease for the first latch in a day", async () => {
    await new CountDownLatch(at.cluster, "budget/first", 1).countDown();
    const counting = await meter(at.etcd.member);
    for (let n = 0; n < ROUNDS; n++) {
      const latch = new CountDownLatch(at.cluster, `budget/latch/${n}`, 3);
      for (let count = 0; count < 3; count++) await latch.countDown();
    }
    expect(await counting.read()).toEqual(times(ROUNDS, { Txn: 4, revisions: 4 }));
  });

  it("to find it open: one read, and not one revision, for counts and waits", async () => {
    const latch = new CountDownLatch(at.cluster, "budget/open", 1);
    await latch.countDown();
    const asking = await meter(at.etcd.member);
    for (let n = 0; n < ROUNDS; n++) {
      await latch.countDown();
      await latch.wait();
      await latch.count();
    }
    const { Range = 0, Txn = 0, ...rest } = await asking.read();
    expect([Range + Txn, rest]).toEqual([3 * ROUNDS, {}]);
  });

  it("to wait: two reads and a watch, which ends with the wait", async () => {
    const latch = new CountDownLatch(at.cluster, "budget/wait", 2);
    await latch.countDown();
    const waiting = await meter(at.etcd.member);
    const waits = Array.from({ length: 10 }, () => latch.wait());
    const { Range = 0, Txn = 0, Watch, revisions } = await waiting.lap({ Watch: 10 });
    expect([Range + Txn, Watch, revisions]).toEqual([20, 10, undefined]);
    await latch.countDown();
    await Promise.all(waits);
    expect(await waiting.lap({ Txn: 2 })).toMatchObject({ Txn: 2, revisions: 2 });
  });
});

describe("what a double barrier costs etcd", () => {
  it("for a round of three members: eight changes, at most nineteen requests, and no key that stays", async () => {
    const sessions = [await at.session(), await at.session(), await at.session()];
    const members = sessions.map((session) => new DoubleBarrier(session, "budget/double", 3));
    const round = async (): Promise<void> => {
      await Promise.all(members.map((member) => member.enter()));
      await Promise.all(members.map((member) => member.leave()));
    };
    await round();
    const rounds = await meter(at.etcd.member);
    for (let n = 0; n < ROUNDS; n++) await round();
    const { Txn = 0, Range = 0, revisions, Watch = 0, ...rest } = await rounds.read();
    // Three puts and an open; three times out, and the end of the open state.
    expect(revisions).toBe(8 * ROUNDS);
    expect(Txn + Range).toBeLessThanOrEqual(19 * ROUNDS);
    expect(Watch).toBeLessThanOrEqual(8 * ROUNDS);
    expect(rest).toEqual({});
  });
});

describe("what a barrier costs etcd", () => {
  it("to hold and to release it: two transactions and a read; to pass an open one: a read", async () => {
    const barrier = new Barrier(at.cluster, "budget/barrier");
    // The lease of its attempts is granted once.
    expect(await barrier.hold()).toBe(true);
    await barrier.release();
    const holding = await meter(at.etcd.member);
    for (let n = 0; n < ROUNDS; n++) {
      await barrier.hold();
      await barrier.release();
      await barrier.wait();
    }
    const { Txn = 0, Range = 0, ...rest } = await holding.read();
    expect([Txn + Range, rest]).toEqual([4 * ROUNDS, { revisions: 2 * ROUNDS }]);
  });
});
