// The floor of numbered slots, while `catchUp` of another process marks ticks below it as missed.
import { expect, test } from "vitest";
import { catchUp, once } from "../../../src/index.js";
import { twoSessions } from "../../support/fixtures/two-sessions.js";

const two = twoSessions(10);

test("never goes down: a slot that has run, and whose mark is deleted, is never run again", async () => {
  const keep = { slots: 10 };
  const range = (from: number, to: number) => Array.from({ length: to - from }, (_, n) => from + n);
  const run = (slot: number, work: () => unknown = () => undefined) =>
    once(two.holder, "floor", slot, work, { keep });
  for (const slot of [...range(0, 10), ...range(80, 90)]) await run(slot);
  // An outage from 10 to 79, which another process marks as missed while 90 runs.
  const missed = () =>
    catchUp(two.cluster, "floor", range(10, 80), () => undefined, { missed: "none", keep });
  await run(90, missed);
  await run(91);

  expect(await once(two.session, "floor", 80, () => undefined, { keep })).toMatchObject({
    reason: "expired",
  });
});
