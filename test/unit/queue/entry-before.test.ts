import { describe, expect, test } from "vitest";
import { settle } from "../../support/fakes/fake-clock.js";
import { BELOW, FIRST, MINE, placeKey, WaitingTurn, WATCHED } from "../../support/fakes/fake-turn.js";

/** Its watches are created, and a read has found everybody alive. */
async function waitingBehind(before: "holder" | "waiter"): Promise<WaitingTurn> {
  const waiter = new WaitingTurn({ ahead: 2, before });
  waiter.stream.created(placeKey(BELOW), WATCHED);
  waiter.stream.created(waiter.entry.key, WATCHED);
  waiter.stream.created(placeKey(FIRST), WATCHED);
  await settle();
  await waiter.answerRead(before === "holder" ? [MINE, BELOW, FIRST] : [MINE, BELOW, FIRST, 20n]);
  return waiter;
}

describe("a waiter that knows the entry before its predecessor", () => {
  test("watches it, too", async () => {
    const waiter = await waitingBehind("holder");

    expect(waiter.stream.creates.map(({ key }) => String(key))).toEqual([
      placeKey(BELOW),
      waiter.entry.key,
      placeKey(FIRST),
    ]);
  });

  test("needs no read when first that one ends, which held, and then its predecessor", async () => {
    const waiter = await waitingBehind("holder");
    const reads = waiter.reads.length;

    await waiter.deleted(FIRST, WATCHED + 1n);
    expect(waiter.told).toEqual([]);
    await waiter.deleted(BELOW, WATCHED + 2n);

    expect(waiter.told).toEqual(["granted"]);
    expect(waiter.granted?.deletedAt).toBe(WATCHED + 2n);
    expect(waiter.reads).toHaveLength(reads);
  });

  test("reads while its predecessor still holds, if that one was a waiter, and not at the predecessor's end", async () => {
    const waiter = await waitingBehind("waiter");
    const reads = waiter.reads.length;

    await waiter.deleted(FIRST, WATCHED + 1n);
    expect(waiter.reads).toHaveLength(reads + 1);
    await waiter.answerRead([MINE, BELOW], { revision: WATCHED + 1n });
    expect(waiter.told).toEqual([]);
    await waiter.deleted(BELOW, WATCHED + 2n);

    expect(waiter.told).toEqual(["granted"]);
    expect(waiter.reads).toHaveLength(reads + 1);
  });

  test("is not granted at its predecessor's end when somebody is before both", async () => {
    const waiter = await waitingBehind("waiter");

    await waiter.deleted(FIRST, WATCHED + 1n);
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

describe("a waiter whose predecessor ends while it reads", () => {
  async function reading(): Promise<{ waiter: WaitingTurn; reads: number }> {
    const waiter = await waitingBehind("waiter");
    await waiter.deleted(FIRST, WATCHED + 1n);
    const reads = waiter.reads.length;
    await waiter.deleted(BELOW, WATCHED + 2n);
    return { waiter, reads };
  }

  test("is granted by the answer that shows that the predecessor held", async () => {
    const { waiter, reads } = await reading();
    expect(waiter.told).toEqual([]);

    await waiter.answerRead([MINE, BELOW], { revision: WATCHED + 1n });

    expect(waiter.told).toEqual(["granted"]);
    expect(waiter.granted?.deletedAt).toBe(WATCHED + 2n);
    expect(waiter.reads).toHaveLength(reads);
  });

  test("is granted by the answer that shows nobody before it", async () => {
    const { waiter } = await reading();

    await waiter.answerRead([MINE], { revision: WATCHED + 2n });

    expect(waiter.told).toEqual(["granted"]);
    expect(waiter.granted?.deletedAt).toBeUndefined();
  });

  test("reads again after an answer that shows somebody before the predecessor", async () => {
    const { waiter, reads } = await reading();

    await waiter.answerRead([MINE, BELOW, 20n], { revision: WATCHED + 1n });

    expect(waiter.told).toEqual([]);
    expect(waiter.reads).toHaveLength(reads + 1);
  });
});
