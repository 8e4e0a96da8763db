import { describe, expect, test } from "vitest";
import { settle } from "../../../support/fakes/fake-clock.js";
import { BELOW, FIRST, MINE, placeKey, WaitingTurn, WATCHED } from "../../../support/fakes/fake-turn.js";

/** Its watches are created, and a read has found everybody alive. */
async function waitingBehind(before: "holder" | "waiter"): Promise<WaitingTurn> {
  const waiter = new WaitingTurn({ ahead: 2, before });
  if (before === "holder") waiter.stream.created(placeKey(BELOW), WATCHED);
  waiter.stream.created(placeKey(FIRST), WATCHED);
  await settle();
  await waiter.answerRead(before === "holder" ? [MINE, BELOW, FIRST] : [MINE, BELOW, FIRST, 20n]);
  return waiter;
}

/** The entry before its predecessor has just ended, and was not the holder by the last answer. `reads`: how many were before. */
async function readingEarly(): Promise<{ waiter: WaitingTurn; reads: number }> {
  const waiter = await waitingBehind("waiter");
  const reads = waiter.reads.length;
  await waiter.deleted(FIRST, WATCHED + 1n);
  return { waiter, reads };
}

describe("a waiter that knows the entry before its predecessor", () => {
  test("watches it, too, while it holds", async () => {
    const waiter = await waitingBehind("holder");

    expect(waiter.followed()).toEqual([`${placeKey(BELOW)} to ${waiter.entry.key}`, placeKey(FIRST)]);
  });

  test("watches nothing else while it waits", async () => {
    const waiter = await waitingBehind("waiter");

    expect(waiter.followed()).toEqual([placeKey(FIRST)]);
  });

  test("watches another one when a read shows that it has ended", async () => {
    const waiter = new WaitingTurn({ ahead: 3, before: "waiter" });
    waiter.stream.created(placeKey(FIRST), WATCHED);
    await settle();

    await waiter.answerRead([MINE, BELOW, 20n, 10n]);
    expect(waiter.followed(1)).toEqual([placeKey(20n)]);
    waiter.stream.created(placeKey(20n), WATCHED + 1n);
    await settle();

    // An event of the new watch may have been missed before it was created.
    expect(waiter.reads).toHaveLength(2);
  });

  test("reads again when another one has ended, by a watch that was kept, since that read", async () => {
    const waiter = new WaitingTurn({ ahead: 3, before: "waiter" });
    const listener = { created() {}, events() {}, interrupted() {}, refused() {} };
    const kept = waiter.cluster.services.watches.watch({ key: placeKey(20n), events: "DELETE" }, listener);
    waiter.stream.created(placeKey(FIRST), WATCHED);
    waiter.stream.created(placeKey(20n), MINE);
    kept.keepForReuse();
    await settle();
    waiter.stream.deleted(placeKey(20n), WATCHED + 1n);
    await settle();

    await waiter.answerRead([MINE, BELOW, 20n, 10n]);

    expect(waiter.reads).toHaveLength(2);
  });

  test("starts anew when the stream of that watch breaks, and reads", async () => {
    const waiter = await waitingBehind("waiter");
    const reads = waiter.reads.length;

    waiter.stream.end();
    await waiter.clock.pass(500);
    expect(waiter.followed()).toEqual([placeKey(FIRST)]);
    waiter.stream.created(placeKey(FIRST), WATCHED + 1n);
    await settle();

    expect(waiter.reads).toHaveLength(reads + 1);
  });

  test("fails when etcd refuses that watch", () => {
    const waiter = new WaitingTurn({ ahead: 3, before: "waiter" });

    const { watchId } = waiter.stream.creates[0]!;
    waiter.stream.answer({ watchId, created: true, cancelled: true, cancelReason: "no permission" });

    expect(waiter.told).toEqual([expect.stringContaining("failed")]);
  });

  test("needs no read when first that one ends, which held, and then its predecessor", async () => {
    const waiter = await waitingBehind("holder");
    const reads = waiter.reads.length;

    await waiter.deleted(FIRST, WATCHED + 1n);
    expect(waiter.told).toEqual([]);
    await waiter.deleted(BELOW, WATCHED + 2n);

    expect(waiter.told).toEqual(["granted"]);
    expect(waiter.reads).toHaveLength(reads);
  });

  test("reads while its predecessor still holds, if that one was a waiter, and not at the predecessor's end", async () => {
    const { waiter, reads } = await readingEarly();

    expect(waiter.reads).toHaveLength(reads + 1);
    waiter.stream.created(placeKey(BELOW), WATCHED + 1n);
    await waiter.answerRead([MINE, BELOW], { revision: WATCHED + 1n });
    expect(waiter.told).toEqual([]);
    await waiter.deleted(BELOW, WATCHED + 2n);

    expect(waiter.told).toEqual(["granted"]);
    expect(waiter.reads).toHaveLength(reads + 1);
  });

  test("then watches its predecessor and its own key together, and sends the read without waiting for that", async () => {
    const waiter = await waitingBehind("waiter");
    const [before, reads] = [waiter.stream.creates.length, waiter.reads.length];

    await waiter.deleted(FIRST, WATCHED + 1n);

    expect(waiter.followed(before)).toEqual([`${placeKey(BELOW)} to ${waiter.entry.key}`]);
    expect(waiter.reads).toHaveLength(reads + 1);
  });

  test("watches both together on the next stream, too, when the stream breaks before the answer", async () => {
    const { waiter } = await readingEarly();

    waiter.stream.end();
    await waiter.clock.pass(500);

    expect(waiter.followed()).toEqual([`${placeKey(BELOW)} to ${waiter.entry.key}`]);
  });

  test.each(["before", "after"])(
    "reads once more if the answer is older than that watch, which is created %s it comes",
    async (order) => {
      const { waiter, reads } = await readingEarly();
      const created = () => waiter.stream.created(placeKey(BELOW), WATCHED + 2n);

      if (order === "before") created();
      await waiter.answerRead([MINE, BELOW], { revision: WATCHED + 1n });
      if (order === "after") created();
      await settle();
      expect(waiter.reads).toHaveLength(reads + 2);
      // The watch may have missed the end of its own key, so the predecessor's end alone grants nothing.
      await waiter.deleted(BELOW, WATCHED + 3n);
      expect(waiter.told).toEqual([]);
      await waiter.answerRead([MINE], { revision: WATCHED + 3n });

      expect(waiter.told).toEqual(["granted"]);
    },
  );

  test("needs no other read if the answer comes first, and is as new as that watch", async () => {
    const { waiter, reads } = await readingEarly();

    await waiter.answerRead([MINE, BELOW], { revision: WATCHED + 1n });
    waiter.stream.created(placeKey(BELOW), WATCHED + 1n);
    await waiter.deleted(BELOW, WATCHED + 2n);

    expect(waiter.told).toEqual(["granted"]);
    expect(waiter.reads).toHaveLength(reads + 1);
  });

  test("is not granted at its predecessor's end when somebody is before both", async () => {
    const { waiter } = await readingEarly();

    waiter.stream.created(placeKey(BELOW), WATCHED + 1n);
    await waiter.answerRead([MINE, BELOW, 20n], { revision: WATCHED + 1n });
    await waiter.deleted(BELOW, WATCHED + 2n);
    expect(waiter.told).toEqual([]);
    await waiter.answerRead([MINE, 20n], { revision: WATCHED + 2n });

    expect(waiter.told).toEqual([]);
    expect(waiter.stream.creates.map(({ key }) => String(key))).toContain(placeKey(20n));
  });

  test("ignores a deletion from before that entry was created", async () => {
    const waiter = await waitingBehind("holder");
    const reads = waiter.reads.length;

    await waiter.deleted(FIRST, FIRST - 1n);
    await waiter.deleted(BELOW, WATCHED + 1n);

    expect(waiter.told).toEqual([]);
    expect(waiter.reads).toHaveLength(reads + 1);
  });
});

test("a watch that etcd cancelled while it only saved a read is not the only one later", async () => {
  const waiter = new WaitingTurn({ ahead: 3, before: "waiter" });
  waiter.stream.created(placeKey(FIRST), WATCHED);
  await settle();
  await waiter.answerRead([MINE, BELOW, FIRST, 20n], {}, true);
  await waiter.deleted(FIRST, WATCHED + 1n);
  waiter.stream.created(placeKey(BELOW), WATCHED + 1n);
  // Another member is ahead of the one that serves the watches.
  await waiter.answerRead([MINE, BELOW, 20n, 19n], { revision: WATCHED + 4n });
  waiter.stream.created(placeKey(20n), WATCHED + 2n);
  const { watchId } = waiter.stream.creates.at(-1)!;
  waiter.stream.answer({ watchId, cancelled: true, compacted: true });

  // That one still shows an entry that has ended.
  await waiter.clock.pass(100);
  const since = waiter.stream.creates.length;
  await waiter.answerRead([MINE, BELOW, 20n, 19n], { revision: WATCHED + 3n }, true);

  expect(waiter.followed(since)).toEqual([placeKey(20n)]);
});

describe("a waiter whose predecessor ends while it reads", () => {
  async function reading(): Promise<{ waiter: WaitingTurn; reads: number }> {
    const { waiter } = await readingEarly();
    waiter.stream.created(placeKey(BELOW), WATCHED + 1n);
    const reads = waiter.reads.length;
    await waiter.deleted(BELOW, WATCHED + 2n);
    return { waiter, reads };
  }

  test("is granted by the answer that shows that the predecessor held", async () => {
    const { waiter, reads } = await reading();
    expect(waiter.told).toEqual([]);

    await waiter.answerRead([MINE, BELOW], { revision: WATCHED + 1n });

    expect(waiter.told).toEqual(["granted"]);
    expect(waiter.reads).toHaveLength(reads);
  });

  test("is granted by the answer that shows nobody before it", async () => {
    const { waiter } = await reading();

    await waiter.answerRead([MINE], { revision: WATCHED + 2n });

    expect(waiter.told).toEqual(["granted"]);
  });

  test("reads again after an answer that shows somebody before the predecessor", async () => {
    const { waiter, reads } = await reading();

    await waiter.answerRead([MINE, BELOW, 20n], { revision: WATCHED + 1n });

    expect(waiter.told).toEqual([]);
    expect(waiter.reads).toHaveLength(reads + 1);
  });

  test.each([
    ["its own key first", [MINE, BELOW]],
    ["its own key last", [BELOW, MINE]],
  ])("is told that its place is gone when the same revision ends both: %s", async (_, ended) => {
    const { waiter } = await readingEarly();
    waiter.stream.created(placeKey(BELOW), WATCHED + 1n);

    await waiter.deleted(ended, WATCHED + 2n);
    await waiter.answerRead([MINE, BELOW], { revision: WATCHED + 1n });

    expect(waiter.told).toEqual(["gone"]);
  });
});
