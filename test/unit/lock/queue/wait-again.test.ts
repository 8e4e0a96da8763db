import { describe, expect, test } from "vitest";
import { EntryBelow } from "../../../../src/lock/queue/lock-mode.js";
import { PredecessorWait } from "../../../../src/lock/queue/predecessor-wait.js";
import { settle } from "../../../support/fakes/fake-clock.js";
import { BELOW, MINE, placeKey, WaitingTurn, WATCHED } from "../../../support/fakes/fake-turn.js";

describe("a waiter that waits for the same place as the last time", () => {
  /** The idle watches of an earlier wait of this session, and the next entry, which joins at 90 behind one of 80. */
  async function waitingAgain({ deletedMeanwhile = [] as readonly bigint[] } = {}) {
    const earlier = new WaitingTurn({ ahead: 1, holder: true });
    await earlier.watched();
    await earlier.answerRead([MINE, BELOW]);
    await earlier.deleted(BELOW, WATCHED + 1n);
    earlier.stream.deleted(earlier.entry.key, WATCHED + 2n);
    for (const revision of deletedMeanwhile) earlier.stream.deleted(placeKey(BELOW), revision);

    const { entry, cluster, stream } = earlier;
    const [creates, reads] = [stream.creates.length, earlier.reads.length];
    entry.confirmed(90n);
    const told: string[] = [];
    const wait = new PredecessorWait(
      entry,
      {
        turnGranted: () => void told.push("granted"),
        keyGone: () => void told.push("gone"),
        waitFailed: (error) => void told.push(`failed ${error.message}`),
      },
      {
        state: "waiting",
        ahead: 1,
        predecessor: new EntryBelow({ key: Buffer.from(placeKey(BELOW)), createRevision: 80n }, true),
      },
    );
    await settle();
    return {
      ...{ told, turn: wait, stream, cluster, key: entry.key },
      newCreates: () => stream.creates.length - creates,
      newReads: () => earlier.reads.length - reads,
    };
  }

  test("asks etcd nothing, and holds upon the deletion", async () => {
    const again = await waitingAgain();

    again.stream.deleted(placeKey(BELOW), 95n);

    expect(again.told).toEqual(["granted"]);
    expect([again.newCreates(), again.newReads()]).toEqual([0, 0]);
  });

  test("asks anew where it must hear of puts, or of another range", async () => {
    const { cluster, stream, newCreates } = await waitingAgain();
    // It holds: the watch on its predecessor is idle.
    stream.deleted(placeKey(BELOW), 95n);
    const { watches } = cluster.services;
    const { key, end } = stream.creates[0]!;
    const listener = { created() {}, events() {}, interrupted() {}, refused() {} };

    watches.watch({ key, end, events: "ALL", reuseFrom: 96n }, listener);
    watches.watch({ key, events: "DELETE", reuseFrom: 96n }, listener);
    watches.watch({ key, end: "jobs/78", events: "DELETE", reuseFrom: 96n }, listener);

    expect(newCreates()).toBe(3);
  });

  test("reads at once if the deletion was told before it began to wait", async () => {
    const again = await waitingAgain({ deletedMeanwhile: [91n] });

    expect(again.told).toEqual([]);
    expect([again.newCreates(), again.newReads()]).toEqual([0, 1]);
  });

  test("reports that its place is gone when one revision deletes both keys, although the watch is reused", async () => {
    const again = await waitingAgain();

    again.stream.deleted([placeKey(BELOW), again.key], 95n);

    expect(again.told).toEqual(["gone"]);
    expect([again.newCreates(), again.newReads()]).toEqual([0, 0]);
  });

  test("does not take the deletion of an earlier place under the same key for that of this one", async () => {
    const again = await waitingAgain({ deletedMeanwhile: [70n] });

    expect(again.told).toEqual([]);
    expect([again.newCreates(), again.newReads()]).toEqual([0, 0]);
  });
});
