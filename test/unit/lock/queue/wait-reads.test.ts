import { describe, expect, test } from "vitest";
import { settle } from "../../../support/fakes/fake-clock.js";
import { BELOW, FIRST, MINE, placeKey, WaitingTurn, WATCHED } from "../../../support/fakes/fake-turn.js";

const SLOW_MS = 30_000;

/** How many reads are sent within this many milliseconds of each step. */
async function readsAfter(waiter: WaitingTurn, steps: readonly number[], answer: () => Promise<void>) {
  const counts: number[] = [];
  for (const step of steps) {
    const before = waiter.reads.length;
    await waiter.clock.pass(step);
    counts.push(waiter.reads.length - before);
    if (waiter.reads.length > before) await answer();
  }
  return counts;
}

describe("when a waiter reads", () => {
  test.each([1, 2, 3])("is at once with %i ahead of it", async (ahead) => {
    const waiter = new WaitingTurn({ ahead });

    await waiter.watched();

    expect(waiter.reads).toHaveLength(1);
  });

  test.each([
    [4, 4],
    [8, 46],
    [63, 100],
  ])("is later with %i ahead, after %i ms: the event usually comes first", async (ahead, afterMs) => {
    const waiter = new WaitingTurn({ ahead });

    await waiter.watched();
    const counts = await readsAfter(waiter, [afterMs - 1, 1], () => Promise.resolve());

    expect(counts).toEqual([0, 1]);
  });

  test("is at once when the event came before, with any number ahead", async () => {
    const waiter = new WaitingTurn({ ahead: 40 });
    await waiter.watched();

    await waiter.deleted(BELOW, WATCHED + 1n);

    expect(waiter.reads).toHaveLength(1);
  });

  test("never with 64 ahead: its watches start right after its join and replay what it missed", async () => {
    const waiter = new WaitingTurn({ ahead: 64 });

    await waiter.watched();
    await waiter.clock.pass(1000);

    expect(waiter.stream.creates.map(({ startRevision }) => startRevision)).toEqual([MINE + 1n, MINE + 1n]);
    expect(waiter.reads).toHaveLength(0);
  });

  test("is once more 4, 16, 46 and 100 ms later while the store moves on, near the front", async () => {
    const waiter = new WaitingTurn({ ahead: 2, before: "holder" });
    const movedOn = () => waiter.answerRead([MINE, BELOW, FIRST], { revision: WATCHED + 1n });
    await waiter.watched();
    await movedOn();

    const counts = await readsAfter(waiter, [3, 1, 11, 1, 29, 1, 53, 1, 1000], movedOn);

    expect(counts).toEqual([0, 1, 0, 1, 0, 1, 0, 1, 0]);
  });

  test("is not once more when nothing was written since the watch began", async () => {
    const waiter = new WaitingTurn({ ahead: 2, before: "holder" });
    await waiter.watched();
    await waiter.answerRead([MINE, BELOW, FIRST], { revision: WATCHED });

    const counts = await readsAfter(waiter, [1000], () => Promise.resolve());

    expect(counts).toEqual([0]);
  });

  test("is once more when the read that shows the same was sent before the watch began", async () => {
    const waiter = new WaitingTurn({ ahead: 2, before: "waiter" });
    waiter.stream.created(placeKey(FIRST), WATCHED);
    await settle();
    await waiter.answerRead([MINE, BELOW, FIRST, 20n]);
    await waiter.deleted(FIRST, WATCHED + 1n);
    await waiter.answerRead([MINE, BELOW], { revision: WATCHED + 1n });
    waiter.stream.created(placeKey(BELOW), WATCHED + 1n);
    await settle();

    const same = () => waiter.answerRead([MINE, BELOW], { revision: WATCHED + 1n });
    const counts = await readsAfter(waiter, [3, 1, 1000], same);

    expect(counts).toEqual([0, 1, 0]);
  });

  test.each([
    ["is after 4 ms", "was created just before", false, [0, 1]],
    ["is not", "has reported an event", true, [0, 0]],
  ])("%s, behind a watch of an earlier turn that %s", async (_, _how, reported, expected) => {
    const waiter = new WaitingTurn({ ahead: 3, before: "waiter" });
    const listener = { created() {}, events() {}, interrupted() {}, refused() {} };
    const kept = waiter.cluster.services.watches.watch({ key: placeKey(20n), events: "DELETE" }, listener);
    waiter.stream.created(placeKey(FIRST), WATCHED);
    await waiter.clock.pass(150);
    waiter.stream.created(placeKey(20n), MINE);
    if (reported) waiter.stream.deleted(placeKey(20n), MINE);
    kept.keepForReuse();
    await settle();
    await waiter.answerRead([MINE, BELOW, 20n, 10n]);

    const counts = await readsAfter(waiter, [3, 97], () => Promise.resolve());

    expect(counts).toEqual(expected);
  });

  test("is not once more in the middle of a crowd, whatever was written", async () => {
    const waiter = new WaitingTurn({ ahead: 40 });
    await waiter.watched();
    await waiter.clock.pass(100);
    await waiter.answerRead([MINE, BELOW, FIRST, 20n], { revision: WATCHED + 7n }, true);

    const counts = await readsAfter(waiter, [1000], () => Promise.resolve());

    expect(counts).toEqual([0]);
  });

  test.each([
    [0, 0.75],
    [0.999, 1.25],
  ])(
    "is, with %d as the dice fall, also after %d times half a minute, in case an event was lost",
    async (dice, part) => {
      const waiter = new WaitingTurn({ ahead: 1, holder: true });
      waiter.clock.nextRandom = dice;
      const { lease } = waiter.entry;
      // Its renewals would need answers, which this test does not cover.
      waiter.cluster.services.keepalive.renew = () => {};
      await waiter.watched();
      await waiter.answerRead([MINE, BELOW]);
      const renew = () => lease.renewed(waiter.clock.now(), 10);

      for (let passed = 0; passed < part * SLOW_MS - 1000; passed += 500) {
        await waiter.clock.pass(500);
        renew();
      }
      expect(waiter.reads).toHaveLength(1);
      await waiter.clock.pass(1000);

      expect(waiter.reads).toHaveLength(2);
    },
  );
});
