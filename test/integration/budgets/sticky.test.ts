import { expect, it } from "vitest";
import { Mutex } from "../../../src/index.js";
import { metered } from "../../support/fixtures/metered.js";
import { meter } from "../../support/fixtures/spent.js";

const at = metered();

const PLAIN = { Txn: 2, revisions: 2 };
/** The put, the watch of who joins, and the read after it. */
const BEGINS = { Txn: 1, Range: 1, Watch: 1, revisions: 1 };
const NOTHING = {};

it("costs a sticky lock one watch and one read, and nothing for each time that it's taken again", async () => {
  const session = await at.session();
  const mutex = new Mutex(session, "budget/sticky", { sticky: true });
  const part = await meter(at.etcd.member);
  await (await mutex.lock()).release();
  expect(await part.lap(PLAIN)).toEqual(PLAIN);
  await (await mutex.lock()).release();
  expect(await part.lap(BEGINS)).toEqual(BEGINS);

  for (let n = 0; n < 100; n++) await (await mutex.lock()).release();
  for (let n = 0; n < 10; n++) await mutex.withLock(() => undefined);
  await Promise.all(Array.from({ length: 50 }, async () => mutex.withLock(() => undefined)));

  expect(await part.lap(NOTHING)).toEqual(NOTHING);
});
