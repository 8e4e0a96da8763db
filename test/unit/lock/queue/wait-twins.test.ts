import { expect, test } from "vitest";
import type { KeyValue } from "../../../../src/etcd/port.js";
import { settle } from "../../../support/fakes/fake-clock.js";
import { HEADER } from "../../../support/fakes/fake-connection.js";
import { keyValue } from "../../../support/fakes/fake-member.js";
import { BELOW, MINE, placeKey, WaitingTurn, WATCHED } from "../../../support/fakes/fake-turn.js";

/** Under another name nested in this one, put by the same request as the first predecessor. */
const TWIN = "jobs/3/1";

/** The first of the two has been deleted, and a read has found the other one. */
async function behindTwin() {
  const waiting = new WaitingTurn({ ahead: 2 });
  const mine = keyValue({ key: waiting.entry.key, createRevision: MINE, modRevision: MINE });
  const below = keyValue({ key: placeKey(BELOW), createRevision: BELOW, modRevision: BELOW });
  const twin = keyValue({ key: TWIN, createRevision: BELOW, modRevision: BELOW });
  const answer = async (kvs: readonly KeyValue[], revision: bigint) => {
    waiting.reads.at(-1)?.answer({ header: { ...HEADER, revision }, kvs, more: false, count: kvs.length });
    await settle();
  };
  await waiting.watched();
  await answer([mine, below, twin], WATCHED);
  for (const key of [placeKey(BELOW), TWIN]) waiting.stream.created(key, WATCHED);
  await waiting.deleted(BELOW, WATCHED + 1n);
  await answer([mine, twin], WATCHED + 1n);
  waiting.stream.created(TWIN, WATCHED + 1n);
  return waiting;
}

test("of two places with one create revision the second is waited for when the first is gone", async () => {
  const waiting = await behindTwin();
  expect(waiting.followed().at(-1)).toBe(`${TWIN} to ${waiting.entry.key}`);

  waiting.stream.deleted(TWIN, WATCHED + 2n);

  expect(waiting.told).toEqual(["granted"]);
});

test("a new place under the first one's key does not end the wait for the second", async () => {
  const waiting = await behindTwin();

  const reads = waiting.reads.length;

  // Its key is between the two that count.
  await waiting.deleted(BELOW, WATCHED + 9n);

  expect(waiting.told).toEqual([]);
  expect(waiting.reads).toHaveLength(reads);
});
