// Whoever takes a key that has stayed reads the clocks, and a listener of the session's state may run then: it locks, or closes the session.
import { expect, test } from "vitest";
import type { TurnWaiter } from "../../../../src/lock/hold/acquire.js";
import type { JoinedEntry } from "../../../../src/lock/queue/entry.js";
import { LockTable, type Queue } from "../../../../src/lock/queue/queue.js";
import { settle } from "../../../support/fakes/fake-clock.js";
import { FakeCluster, HEADER, LEASE_ID } from "../../../support/fakes/fake-connection.js";
import { keyValue } from "../../../support/fakes/fake-member.js";

const TTL_SECONDS = 10;
/** A renewal is overdue, but nothing is lost. */
const JEOPARDY_MS = 6000;
const REVISION = 50n;
const STICKY = {
  options: {
    ...{ label: undefined, maxHoldMs: undefined, maxHoldGraceMs: undefined, warnHoldMs: undefined },
    sticky: true,
  },
} as const;

/** A hold of a sticky lock, whose key stays after its release. `listener`: runs when the state of the session changes. */
async function held(listener: (queue: Queue) => void) {
  const cluster = new FakeCluster();
  const { clock } = cluster;
  const lease = cluster.lease(TTL_SECONDS);
  const locks = LockTable.of(lease);
  const queue = locks.queue("jobs");
  locks.stickiness.begins("jobs");
  const { granted } = queue.join(STICKY);
  await settle();
  const own = keyValue({
    key: `jobs/${LEASE_ID.toString(16)}`,
    createRevision: REVISION,
    modRevision: REVISION,
  });
  const shown = { kvs: [own], more: false, count: 1 };
  const join = cluster.member.of("txn")[0]!;
  join.answer({ succeeded: true, header: { ...HEADER, revision: REVISION }, ranges: [shown] });
  const entry = await granted;
  clock.advance(0);
  const stream = cluster.connected.flatMap(({ watches }) => watches).at(-1)!;
  stream.created("jobs/", 60n);
  await settle();
  const read = cluster.connected.flatMap((member) => member.of("range")).at(-1)!;
  read.answer({ header: { ...HEADER, revision: 60n }, ...shown });
  await settle();
  lease.onState = () => listener(queue);
  return { cluster, lease, queue, entry };
}

test("a key that a listener of the session's state takes is taken once", async () => {
  const within: unknown[] = [];
  const { cluster, queue, entry } = await held((it) => within.push(it.takeKept()));
  expect(queue.keep(entry)).toBe(true);
  cluster.clock.freeze(JEOPARDY_MS);

  const taken = queue.takeKept();

  expect(within).toEqual([entry]);
  expect(taken).toBeUndefined();
  expect(entry.turn).toBe(2);
});

test("a caller that locks in a listener of the session's state waits behind the one that gets the key", async () => {
  const order: string[] = [];
  const lock = (queue: Queue, who: string): void => {
    void queue.join(STICKY).granted.then((entry) => {
      order.push(who);
      if (!queue.keep(entry)) void queue.leave(entry).catch(() => undefined);
    });
  };
  const { cluster, queue, entry } = await held((it) => lock(it, "within"));
  lock(queue, "next");
  cluster.clock.freeze(JEOPARDY_MS);

  expect(queue.keep(entry)).toBe(true);
  await settle();

  expect(order).toEqual(["next", "within"]);
});

test("a key goes to the next in line if a listener of the session's state ends the wait of the first", async () => {
  const line: TurnWaiter<JoinedEntry>[] = [];
  const { cluster, queue, entry } = await held(() => line[0]?.giveUp());
  line.push(queue.join(STICKY), queue.join(STICKY));
  const order: string[] = [];
  line.forEach(({ granted }, n) => void granted.then(() => order.push(`caller ${n}`)));
  cluster.clock.freeze(JEOPARDY_MS);

  expect(queue.keep(entry)).toBe(true);
  await settle();

  expect(order).toEqual(["caller 1"]);
  expect(entry.turn).toBe(2);
});

test("a key that leaves because a listener closes the session is not taken", async () => {
  const { cluster, lease, queue, entry } = await held((it) => void it.lease.close(60_000));
  // A drain lasts while something else is held.
  lease.holds.add({ sessionEnded: () => undefined, describe: () => undefined });
  expect(queue.keep(entry)).toBe(true);
  cluster.clock.freeze(JEOPARDY_MS);

  const taken = queue.takeKept();

  expect(entry.leaving).toBe(true);
  expect(taken).toBeUndefined();
});
