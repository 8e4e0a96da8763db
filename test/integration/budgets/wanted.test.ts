import { expect, it } from "vitest";
import { connect, Mutex } from "../../../src/index.js";
import { metered } from "../../support/fixtures/metered.js";
import { meter } from "../../support/fixtures/spent.js";

const ROUNDS = 5;

const at = metered();

/** The watch of the queue, and the read of who waits already. */
const LISTEN = { Range: 1, Watch: 1 };
/** Of a waiter, as without a holder that listens: see round-trips.test.ts. */
const JOIN = { Txn: 1, Range: 1, Watch: 1, revisions: 1 };
const JOIN_BEHIND_TWO = { ...JOIN, Watch: 2 };
const LOCK = { Txn: 1, revisions: 1 };
const NOTHING = {};

it("costs a holder that listens one watch and one read, and nothing for each waiter, listener and look", async () => {
  for (let n = 0; n < ROUNDS; n++) {
    await using own = connect({ hosts: at.etcd.endpoints });
    const [first, second, third] = await Promise.all([1, 2, 3].map(() => at.session(own)));
    const name = `budget/wanted-${n}`;
    const part = await meter(at.etcd.member);
    const lock = await new Mutex(first!, name).lock();
    expect(await part.lap(LOCK)).toEqual(LOCK);
    const told: string[] = [];
    lock.onWanted(({ key }) => void told.push(key));
    expect(await part.lap(LISTEN)).toEqual(LISTEN);

    const next = new Mutex(second!, name).lock();
    expect(await part.lap(JOIN)).toEqual(JOIN);
    await expect.poll(() => told.length).toBe(1);
    lock.onWanted(() => undefined);
    for (let looks = 0; looks < 100; looks++) expect(lock.wanted).toBe(true);
    expect(await part.lap(NOTHING)).toEqual(NOTHING);
    const last = new Mutex(third!, name).lock();

    expect(await part.lap(JOIN_BEHIND_TWO)).toEqual(JOIN_BEHIND_TWO);
    await lock.release();
    await (await next).release();
    await (await last).release();
  }
});
