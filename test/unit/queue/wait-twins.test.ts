import { expect, test } from "vitest";
import { settle } from "../../support/fakes/fake-clock.js";
import { HEADER } from "../../support/fakes/fake-connection.js";
import { keyValue } from "../../support/fakes/fake-member.js";
import { BELOW, MINE, WaitingTurn, WATCHED } from "../../support/fakes/fake-turn.js";

/** Under another name nested in this one, put by the same request as the first predecessor. */
const TWIN = "jobs/below/1";

/** The first of the two has been deleted, and a read has found the other one. */
async function behindTwin() {
  const waiting = new WaitingTurn({ ahead: 2 });
  await waiting.watched();
  await waiting.answerRead([MINE, BELOW, BELOW]);
  await waiting.deleted(BELOW, WATCHED + 1n);
  const kvs = [
    keyValue({ key: waiting.entry.key, createRevision: MINE, modRevision: MINE }),
    keyValue({ key: TWIN, createRevision: BELOW, modRevision: BELOW }),
  ];
  const header = { ...HEADER, revision: WATCHED + 1n };
  waiting.reads.at(-1)?.answer({ header, kvs, more: false, count: 2 });
  await settle();
  return waiting;
}

test("of two places with one create revision the second is waited for when the first is gone", async () => {
  const waiting = await behindTwin();
  waiting.stream.created(TWIN, WATCHED + 1n);
  await settle();
  await waiting.answerRead([MINE], { revision: WATCHED + 1n });

  expect(waiting.stream.creates.map(({ key }) => String(key))).toContain(TWIN);
  expect(waiting.told).toEqual(["granted"]);
});

test("a new place under the first one's key does not end the wait for the second", async () => {
  const waiting = await behindTwin();

  await waiting.deleted(BELOW, WATCHED + 9n);

  expect(waiting.told).toEqual([]);
});
