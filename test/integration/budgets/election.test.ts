import { describe, expect, it } from "vitest";
import { connect, Election } from "../../../src/index.js";
import { metered } from "../../support/fixtures/metered.js";
import { meter } from "../../support/fixtures/spent.js";

const ROUNDS = 5;

const at = metered();

/**
 * One transaction leads; in parallel, the key is watched from the start, and read once when etcd has started to watch.
 */
const CAMPAIGN = { Txn: 1, Range: 1, Watch: 1, revisions: 1 };
/** Like a lock's: a watch on the predecessor and its own key, and a read after it. */
const JOIN = { Txn: 1, Range: 1, Watch: 1, revisions: 1 };
/** The same behind two others: the entry before the predecessor is watched, too. */
const JOIN_BEHIND_TWO = { ...JOIN, Watch: 2 };
/**
 * The deletion. There were two watches on the deleted key alone, the leader's and that of the second one behind it; one of them is
 * ended. The new leader watches its key, and reads it once.
 */
const HAND_OVER = { Txn: 1, Range: 1, Watch: 2, revisions: 1 };
const WRITE = { Txn: 1, revisions: 1 };

describe("what an election costs etcd", () => {
  it("to campaign with nobody there, to proclaim, to ask who leads, and to resign", async () => {
    const session = await at.session();
    const part = await meter(at.etcd.member);
    for (let n = 0; n < ROUNDS; n++) {
      const election = new Election(session, `budget/alone-${n}`);
      const leadership = await election.campaign("a");
      expect(await part.lap(CAMPAIGN)).toEqual(CAMPAIGN);
      await leadership.proclaim("b");
      expect(await part.lap(WRITE)).toEqual(WRITE);
      await election.leader();
      expect(await part.lap({ Range: 1 })).toEqual({ Range: 1 });
      await leadership.resign();
      expect(await part.lap(WRITE)).toEqual(WRITE);
    }
  });

  it("to join behind a leader, and to take over from it; nothing for those who wait behind", async () => {
    const name = "budget/queue";
    for (let n = 0; n < ROUNDS; n++) {
      await using own = connect({ hosts: at.etcd.endpoints });
      const sessions = await Promise.all([1, 2, 3].map(() => at.session(own)));
      const [first, second, third] = sessions.map((session) => new Election(session, name));
      const part = await meter(at.etcd.member);
      const leader = await first!.campaign("1");
      expect(await part.lap(CAMPAIGN)).toEqual(CAMPAIGN);
      const next = second!.campaign("2");
      expect(await part.lap(JOIN)).toEqual(JOIN);
      const last = third!.campaign("3");
      expect(await part.lap(JOIN_BEHIND_TWO)).toEqual(JOIN_BEHIND_TWO);

      await leader.resign();
      const successor = await next;

      expect(await part.lap(HAND_OVER)).toEqual(HAND_OVER);
      await successor.resign();
      await (await last).resign();
    }
  });

  it("to observe: one read and one watch, whatever happens; nothing for each change", async () => {
    const name = "budget/observed";
    const session = await at.session();
    const observer = new Election(at.cluster, name).observe();
    const part = await meter(at.etcd.member);
    await observer.next();
    expect(await part.lap({ Range: 1, Watch: 1 })).toEqual({ Range: 1, Watch: 1 });

    const leadership = await new Election(session, name).campaign("0");
    expect(await part.lap(CAMPAIGN)).toEqual(CAMPAIGN);
    for (let n = 1; n <= ROUNDS; n++) await leadership.proclaim(String(n));
    for (let n = 0; n <= ROUNDS; n++) await observer.next();

    const proclaimed = { Txn: ROUNDS, revisions: ROUNDS };
    expect(await part.lap(proclaimed)).toEqual(proclaimed);
    await observer.return?.();
    await leadership.resign();
  });
});
