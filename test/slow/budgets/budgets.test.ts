import { afterEach, describe, expect, it } from "vitest";
import { connect, Mutex, type Cluster } from "../../../src/index.js";
import { metered, times } from "../../support/fixtures/metered.js";
import { meter } from "../../support/fixtures/spent.js";

const ROUNDS = 100;

const at = metered();

describe("what it costs etcd", () => {
  it("to lock and release with nobody waiting: one transaction each, and nothing else", async () => {
    const mutex = new Mutex(await at.session(), "budget/alone");
    await (await mutex.lock()).release();

    const meterOf = await meter(at.etcd.member);
    for (let n = 0; n < ROUNDS; n++) await (await mutex.lock()).release();

    expect(await meterOf.read()).toEqual(times(ROUNDS, { Txn: 2, revisions: 2 }));
  });

  it("to be refused by tryLock: one transaction, and not one revision", async () => {
    const other = new Mutex(await at.session(), "budget/busy");
    // Another client's place: one of this session's locks would start to watch its key if the rounds took more than a
    // second.
    await at.etcd.etcdctl(["put", "budget/busy/1", "held"]);

    const meterOf = await meter(at.etcd.member);
    for (let n = 0; n < ROUNDS; n++) expect(await other.tryLock()).toBeUndefined();

    expect(await meterOf.read()).toEqual(times(ROUNDS, { Txn: 1 }));
  });
});

// A place costs its transaction, a watch on its predecessor and itself, and one read of the queue.
const JOIN = { Txn: 1, Range: 1, Watch: 1, revisions: 1 };
/** The same behind two others: the entry before the predecessor, which holds, is watched, too. Behind more, only that entry is. */
const JOIN_BEHIND = [JOIN, { ...JOIN, Watch: 2 }, JOIN, JOIN, JOIN];
// The watch still exists from the last time, and has missed nothing.
const JOIN_AGAIN = { Txn: 1, revisions: 1 };
// The release's transaction: its event shows the next one that it holds.
const HAND_OVER = { Txn: 1, revisions: 1 };

describe("what a contended lock costs etcd", () => {
  const replicas: Cluster[] = [];
  // Watches that they keep for reuse would be cancelled while a later test counts.
  afterEach(() => Promise.all(replicas.splice(0).map((replica) => replica.close({ drainMs: 0 }))));

  /** Contenders with separate connections, like separate processes. */
  const contenders = (count: number, name: string) =>
    Promise.all(
      Array.from({ length: count }, async () => {
        const replica = connect({ hosts: at.etcd.endpoints });
        replicas.push(replica);
        return new Mutex(await at.session(replica), name);
      }),
    );

  it("to join, and to take over from the holder, with two contenders", async () => {
    const [a, b] = (await contenders(2, "budget/two")) as [Mutex, Mutex];
    const part = await meter(at.etcd.member);
    let holder = await a.lock();
    await part.lap({ Txn: 1 });
    // Each waits behind the other one for the first time.
    for (const mutex of [b, a]) {
      const waiting = mutex.lock();
      expect(await part.lap(JOIN)).toEqual(JOIN);
      await holder.release();
      holder = await waiting;
      expect(await part.lap(HAND_OVER)).toEqual(HAND_OVER);
    }

    const whole = await meter(at.etcd.member);
    for (let n = 0; n < ROUNDS; n++) {
      const waiting = (n % 2 === 0 ? b : a).lock();
      expect(await part.lap(JOIN_AGAIN)).toEqual(JOIN_AGAIN);
      await holder.release();
      holder = await waiting;
      expect(await part.lap(HAND_OVER)).toEqual(HAND_OVER);
    }

    expect(await whole.read()).toEqual(times(ROUNDS, { Txn: 2, revisions: 2 }));
    await holder.release();
  });

  it("no read to take over and to release at once", async () => {
    const [a, b] = (await contenders(2, "budget/short")) as [Mutex, Mutex];
    const part = await meter(at.etcd.member);
    const takeTurns = async (join: Record<string, number>) => {
      const holder = await a.lock();
      await part.lap({ Txn: 1, revisions: 1 });
      const turn = b.lock().then((lock) => lock.release());
      await part.lap(join);
      await holder.release();
      await turn;
      await part.lap({ Txn: 2, revisions: 2 });
    };
    await takeTurns(JOIN);

    const whole = await meter(at.etcd.member);
    for (let n = 0; n < ROUNDS; n++) await takeTurns(JOIN_AGAIN);

    expect(await whole.read()).toEqual(times(ROUNDS, { Txn: 4, revisions: 4 }));
  });

  it("nothing for the waiters behind the one whose turn it is", async () => {
    const mutexes = await contenders(5, "budget/many");
    // Another client's place: a hold of this one would begin to watch its key after a second.
    await at.etcd.etcdctl(["put", "budget/many/1", "held"]);
    const [next] = await joinedOneByOne(mutexes);

    const handOver = await meter(at.etcd.member);
    await at.etcd.etcdctl(["del", "budget/many/1"]);
    await next;
    const taken = { DeleteRange: 1, revisions: 1 };
    expect(await handOver.lap(taken)).toEqual(taken);
  });
});

/** Each has its place, its watches and its answer before the next one calls. */
async function joinedOneByOne(mutexes: readonly Mutex[]) {
  const waiting = [];
  const join = await meter(at.etcd.member);
  for (const [n, mutex] of mutexes.entries()) {
    const lock = mutex.lock();
    lock.catch(() => {}); // Calls that are still waiting at the end end with their sessions.
    waiting.push(lock);
    expect(await join.lap(JOIN_BEHIND[n]!)).toEqual(JOIN_BEHIND[n]);
  }
  return waiting;
}
