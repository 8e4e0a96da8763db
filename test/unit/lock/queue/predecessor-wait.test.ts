import { describe, expect, test } from "vitest";
import { exclusive } from "../../../../src/lock/queue/lock-mode.js";
import { settle } from "../../../support/fakes/fake-clock.js";
import { HEADER } from "../../../support/fakes/fake-connection.js";
import { keyValue } from "../../../support/fakes/fake-member.js";
import { BELOW, FIRST, MINE, placeKey, WaitingTurn, WATCHED } from "../../../support/fakes/fake-turn.js";

/** It had watched the keys separately, and a read has just found that its predecessor is the holder. */
async function learning(): Promise<WaitingTurn> {
  const waiter = new WaitingTurn({ ahead: 2 });
  await waiter.watched();
  await waiter.answerRead([MINE, BELOW], { revision: WATCHED + 1n });
  expect(waiter.followed(2)).toEqual([`${placeKey(BELOW)} to ${waiter.entry.key}`]);
  return waiter;
}

/** Its predecessor holds, and a read has found both alive. */
async function next(): Promise<WaitingTurn> {
  const waiter = new WaitingTurn({ ahead: 1, holder: true });
  await waiter.watched();
  await waiter.answerRead([MINE, BELOW]);
  return waiter;
}

describe("a waiter", () => {
  test("watches its predecessor and its own key from now on, and reads only when both watches are there", async () => {
    const waiter = new WaitingTurn({ ahead: 2 });

    expect(waiter.stream.creates).toMatchObject([
      { key: placeKey(BELOW), startRevision: 0n, events: "DELETE" },
      { key: waiter.entry.key, startRevision: 0n, events: "DELETE" },
    ]);
    waiter.stream.created(placeKey(BELOW), WATCHED);
    await settle();
    expect(waiter.reads).toHaveLength(0);

    waiter.stream.created(waiter.entry.key, WATCHED);
    await settle();
    expect(waiter.reads).toHaveLength(1);
    expect(waiter.reads[0]!.request).toMatchObject({ serializable: true, maxCreateRevision: MINE });
  });

  test("holds when the read finds nobody before it", async () => {
    const waiter = new WaitingTurn({ ahead: 1 });
    await waiter.watched();

    await waiter.answerRead([MINE]);

    expect(waiter.told).toEqual(["granted"]);
  });

  test("waits on when the read finds its predecessor alive", async () => {
    const waiter = new WaitingTurn({ ahead: 1, holder: true });
    await waiter.watched();

    await waiter.answerRead([MINE, BELOW]);
    await waiter.clock.pass(1000);

    expect(waiter.told).toEqual([]);
    expect(waiter.reads).toHaveLength(1);
  });

  test("reads again, with a quorum, when the answer is older than the later of its watches", async () => {
    const waiter = new WaitingTurn({ ahead: 1 });
    await waiter.watched(WATCHED, WATCHED + 5n);

    await waiter.answerRead([MINE], { revision: WATCHED + 4n });

    expect(waiter.told).toEqual([]);
    expect(waiter.serializable).toEqual([true, undefined]);
  });

  test("reads again, with a quorum, when another member has answered", async () => {
    const waiter = new WaitingTurn({ ahead: 1 });
    await waiter.watched();

    await waiter.answerRead([MINE], { memberId: "z" });

    expect(waiter.told).toEqual([]);
    expect(waiter.serializable).toEqual([true, undefined]);
  });

  test.each(["a later read has replaced", "its wait has ended since"])(
    "sends no read again, with a quorum, for an answer that is too old and that %s",
    async (why) => {
      const waiter = new WaitingTurn({ ahead: 1 });
      await waiter.watched();
      const [first] = waiter.reads;

      if (why === "a later read has replaced") await waiter.deleted(BELOW, WATCHED + 1n);
      else waiter.wait.stop();
      const before = waiter.reads.length;
      first!.answer({ header: { ...HEADER, revision: MINE }, kvs: [], more: false, count: 0 });
      await settle();

      expect(waiter.reads).toHaveLength(before);
      expect(waiter.told).toEqual([]);
    },
  );

  test.each([
    ["no key", [], true],
    ["its key", [MINE], false],
  ] as const)(
    "that is over learns from a late answer with %s whether the key that stays can be taken again",
    async (_, found, isGone) => {
      const waiter = new WaitingTurn({ ahead: 1 }, exclusive, true);
      await waiter.watched();
      waiter.wait.stop();
      expect(waiter.entry.knownGone).toBe(false);

      await waiter.answerRead(found, { revision: WATCHED + 1n });

      expect([waiter.entry.knownGone, waiter.told]).toEqual([isGone, []]);
    },
  );

  test("that is over learns nothing from a late answer after its key has left: another entry may have the key", async () => {
    const waiter = new WaitingTurn({ ahead: 1 }, exclusive, true);
    await waiter.watched();
    waiter.wait.stop();
    waiter.entry.leaves();

    await waiter.answerRead([], { revision: WATCHED + 1n });

    expect(waiter.entry.knownGone).toBe(false);
  });

  test("reports that its place is gone when the read does not find it", async () => {
    const waiter = new WaitingTurn({ ahead: 1 });
    await waiter.watched();

    await waiter.answerRead([BELOW]);

    expect(waiter.told).toEqual(["gone"]);
  });

  test("reports that its place is gone when its key is deleted", async () => {
    const waiter = new WaitingTurn({ ahead: 1 });
    await waiter.watched();

    await waiter.deleted(MINE, WATCHED + 1n);

    expect(waiter.told).toEqual(["gone"]);
  });

  test.each([
    ["predecessor's", BELOW],
    ["own", MINE],
  ])("ignores a deletion from an earlier life of the %s key", async (_, revision) => {
    const waiter = new WaitingTurn({ ahead: 1, holder: true });
    await waiter.watched();
    await waiter.answerRead([MINE, BELOW]);

    await waiter.deleted(revision, revision);

    expect(waiter.told).toEqual([]);
    expect(waiter.reads).toHaveLength(1);
  });

  test("holds at once, without another read, when the predecessor that was seen holding is deleted", async () => {
    const waiter = new WaitingTurn({ ahead: 1, holder: true });
    await waiter.watched();
    await waiter.answerRead([MINE, BELOW]);

    await waiter.deleted(BELOW, WATCHED + 1n);

    expect(waiter.told).toEqual(["granted"]);
    expect(waiter.reads).toHaveLength(1);
  });

  test("keeps the watch for its next wait when it holds", async () => {
    const waiter = new WaitingTurn({ ahead: 1, holder: true });
    await waiter.watched();
    await waiter.answerRead([MINE, BELOW]);

    await waiter.deleted(BELOW, WATCHED + 1n);

    const [below] = waiter.stream.creates;
    const { watches } = waiter.cluster.services;
    const listener = { created() {}, events() {}, interrupted() {}, refused() {} };
    const target = { key: below!.key, end: below!.end, events: "DELETE", reuseFrom: WATCHED + 2n } as const;
    expect(waiter.stream.cancels).toEqual([]);
    expect(watches.watch(target, listener).id).toBe(below!.watchId);
  });

  test("gives that watch back when it holds if a crowd was before it: others have keys between the two by then", async () => {
    const waiter = new WaitingTurn({ ahead: 64, before: "waiter" });
    waiter.stream.created(placeKey(FIRST), MINE);
    await waiter.deleted(FIRST, WATCHED);
    waiter.stream.created(placeKey(BELOW), WATCHED);
    await waiter.answerRead([MINE, BELOW]);

    await waiter.deleted(BELOW, WATCHED + 1n);

    const [, both] = waiter.stream.creates;
    expect(waiter.told).toEqual(["granted"]);
    expect(waiter.stream.cancels).toContain(both!.watchId);
  });

  test("reads when a predecessor that may itself have waited is deleted, and follows who is next before it", async () => {
    const waiter = new WaitingTurn({ ahead: 3 });
    await waiter.watched();
    await waiter.answerRead([MINE, BELOW, FIRST, 20n]);

    await waiter.deleted(BELOW, WATCHED + 1n);
    expect(waiter.told).toEqual([]);
    expect(waiter.reads).toHaveLength(2);
    const since = waiter.stream.creates.length;
    await waiter.answerRead([MINE, FIRST, 20n, 10n], { revision: WATCHED + 1n });

    expect(waiter.told).toEqual([]);
    expect(waiter.followed(since)).toEqual([placeKey(20n)]);
    expect(waiter.stream.creates.at(-1)?.startRevision).toBe(0n);
  });

  test("does not take the predecessor's deletion for its turn before a read has verified the watches", async () => {
    const waiter = new WaitingTurn({ ahead: 1, holder: true });

    waiter.stream.deleted(placeKey(BELOW), WATCHED + 1n);
    await waiter.watched(WATCHED + 1n);
    expect(waiter.told).toEqual([]);
    await waiter.answerRead([MINE], { revision: WATCHED + 1n });

    expect(waiter.told).toEqual(["granted"]);
  });

  test("does not believe a read that is older than the deletion which caused it", async () => {
    const waiter = new WaitingTurn({ ahead: 2, before: "holder" });
    await waiter.watched();
    await waiter.answerRead([MINE, BELOW, FIRST]);

    await waiter.deleted(BELOW, WATCHED + 9n);
    await waiter.answerRead([MINE], { revision: WATCHED + 8n });

    expect(waiter.told).toEqual([]);
    expect(waiter.serializable).toEqual([true, true, undefined]);
  });

  test("learns from a read that its predecessor is the holder by now, and then needs no other", async () => {
    const waiter = await learning();

    waiter.stream.created(placeKey(BELOW), WATCHED + 1n);
    await waiter.deleted(BELOW, WATCHED + 2n);

    expect(waiter.told).toEqual(["granted"]);
    expect(waiter.reads).toHaveLength(1);
  });

  test("needs one more read if what showed it the holder is older than the watch on both keys", async () => {
    const waiter = await learning();

    waiter.stream.created(placeKey(BELOW), WATCHED + 2n);
    await settle();
    expect(waiter.reads).toHaveLength(2);
    // The answer to that read is still missing.
    await waiter.deleted(BELOW, WATCHED + 3n);
    expect(waiter.told).toEqual([]);
    await waiter.answerRead([MINE], { revision: WATCHED + 3n });

    expect(waiter.told).toEqual(["granted"]);
  });

  test("starts with a read when the join could not tell who is before it", async () => {
    const waiter = new WaitingTurn();
    await settle();
    expect(waiter.serializable).toEqual([undefined]);

    await waiter.answerRead([MINE, BELOW]);
    await waiter.clock.pass(0);

    expect(waiter.told).toEqual([]);
    expect(waiter.followed()).toEqual([`${placeKey(BELOW)} to ${waiter.entry.key}`]);
  });

  test("starts anew on the next member when the stream breaks, and carries nothing over", async () => {
    const waiter = new WaitingTurn({ ahead: 1, holder: true });
    await waiter.watched();
    await waiter.answerRead([MINE, BELOW]);
    const old = waiter.stream;

    old.end();
    await waiter.clock.pass(500);
    expect(waiter.stream.creates.map(({ startRevision }) => startRevision)).toEqual([0n]);
    // A deletion alone, not verified on this stream, does not grant the turn.
    await waiter.deleted(BELOW, WATCHED + 1n);
    expect(waiter.told).toEqual([]);
    await waiter.watched(WATCHED + 2n);
    await waiter.answerRead([MINE], { revision: WATCHED + 2n, memberId: "b" });

    expect(old).not.toBe(waiter.stream);
    expect(waiter.told).toEqual(["granted"]);
  });

  test("gets no more events when it is stopped, and leaves no watch and no timer", async () => {
    const waiter = new WaitingTurn({ ahead: 1, holder: true });
    await waiter.watched();

    waiter.wait.stop();
    await waiter.answerRead([MINE]);
    waiter.entry.lease.abandon();

    expect(waiter.told).toEqual([]);
    expect(waiter.stream.cancels).toHaveLength(1);
    expect(waiter.clock.timers).toBe(0);
  });
});

describe("a waiter whose predecessor is the holder", () => {
  test("watches both keys, and all between them, by one watch", () => {
    const waiter = new WaitingTurn({ ahead: 1, holder: true });

    expect(waiter.followed()).toEqual([`${placeKey(BELOW)} to ${waiter.entry.key}`]);
    expect(waiter.stream.creates).toMatchObject([{ events: "DELETE", startRevision: 0n }]);
  });

  test("watches from its own key to that of its predecessor if its own is the lower one", async () => {
    const waiter = new WaitingTurn();
    await settle();
    const above = { key: "jobs/99", createRevision: BELOW };
    const kvs = [{ key: waiter.entry.key, createRevision: MINE }, above].map((kv) => keyValue(kv));
    waiter.reads[0]!.answer({ header: { ...HEADER, revision: WATCHED }, kvs, more: false, count: 2 });
    await waiter.clock.pass(0);
    expect(waiter.followed()).toEqual([`${waiter.entry.key} to ${above.key}`]);

    waiter.stream.created(waiter.entry.key, WATCHED);
    waiter.stream.deleted(above.key, WATCHED + 1n);

    expect(waiter.told).toEqual(["granted"]);
  });

  test.each([
    ["its own key first", [MINE, BELOW]],
    ["its own key last", [BELOW, MINE]],
    ["another key between them", [BELOW, 45n, MINE]],
  ])("is told that its place is gone when one revision deletes both: %s", async (_, deleted) => {
    const waiter = await next();

    await waiter.deleted(deleted, WATCHED + 1n);

    expect(waiter.told).toEqual(["gone"]);
    expect(waiter.reads).toHaveLength(1);
  });

  test("ignores the deletion of another key between the two", async () => {
    const waiter = await next();

    await waiter.deleted(45n, WATCHED + 1n);
    expect(waiter.told).toEqual([]);
    expect(waiter.reads).toHaveLength(1);
    await waiter.deleted([45n, BELOW], WATCHED + 2n);

    expect(waiter.told).toEqual(["granted"]);
    expect(waiter.reads).toHaveLength(1);
  });
});
