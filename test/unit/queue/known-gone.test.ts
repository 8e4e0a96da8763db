// A watch reports the deletion of a key before the answer that grants it, which comes on another stream.
import { afterEach, describe, expect, test, vi } from "vitest";
import type { CheckedLock } from "../../../src/options/lock.js";
import { ExclusiveHoldHandle } from "../../../src/hold/hold.js";
import { LockTable } from "../../../src/queue/queue.js";
import { settle } from "../../support/fakes/fake-clock.js";
import { FakeCluster, HEADER, LEASE_ID } from "../../support/fakes/fake-connection.js";
import { keyValue } from "../../support/fakes/fake-member.js";

const TTL_SECONDS = 10;
const KEY = `jobs/${LEASE_ID.toString(16)}`;
const JOINED = HEADER.revision;

/** A watch of the key that the session's first entry gets, which nobody listens to. */
function world() {
  const cluster = new FakeCluster();
  const lease = cluster.lease(TTL_SECONDS);
  const listener = { created() {}, events() {}, interrupted() {}, refused() {} };
  const watch = cluster.services.watches.watch({ key: KEY, events: "DELETE", reuseFrom: 0n }, listener);
  cluster.clock.advance(0);
  const stream = cluster.member.watches[0]!;
  stream.created(KEY, 1n);
  watch.keepForReuse();
  const txns = async () => {
    await settle();
    return cluster.member.of("txn");
  };
  /** Answers the latest transaction: it has put its key at that revision, into an empty queue. */
  const joined = async (revision: bigint) => {
    const header = { ...HEADER, revision };
    const kvs = [keyValue({ key: KEY, createRevision: revision, modRevision: revision })];
    const join = (await txns()).at(-1)!;
    join.answer({ succeeded: true, header, ranges: [{ header, kvs, count: 1, more: false }] });
    await settle();
  };
  const deleted = (revision: bigint) => stream.deleted(KEY, revision);
  return { cluster, lease, queue: LockTable.of(lease).queue("jobs"), txns, joined, deleted };
}

describe("an entry whose deletion is known before the answer that grants it", () => {
  test("is not granted: its caller joins again", async () => {
    const { queue, txns, joined, deleted } = world();
    const waiter = queue.join();
    await txns();
    deleted(JOINED + 1n);

    await joined(JOINED);
    expect([await txns(), queue.own.joined]).toMatchObject([{ length: 2 }, []]);

    await joined(JOINED + 2n);
    expect(await waiter.granted).toMatchObject({ revision: JOINED + 2n, held: true });
  });

  test("is not granted to a try either", async () => {
    const { queue, txns, joined, deleted } = world();
    const tried = queue.tryJoin({});
    await txns();
    deleted(JOINED + 1n);

    await joined(JOINED);
    await joined(JOINED + 2n);

    expect(await tried).toMatchObject({ revision: JOINED + 2n, held: true });
    expect(await txns()).toHaveLength(2);
  });

  test("is granted if it was an earlier entry of that key", async () => {
    const { queue, txns, joined, deleted } = world();
    const waiter = queue.join();
    await txns();
    deleted(JOINED - 1n);

    await joined(JOINED);

    expect(await waiter.granted).toMatchObject({ revision: JOINED, held: true });
  });
});

test("a deletion that was reported before the entry was made says nothing: a restored etcd has lower revisions", async () => {
  const { queue, joined, deleted } = world();
  deleted(JOINED + 1000n);
  const waiter = queue.join();

  await joined(JOINED);

  expect(await waiter.granted).toMatchObject({ revision: JOINED, held: true });
});

describe("a hold whose key is deleted in the turn of its grant", () => {
  afterEach(() => vi.restoreAllMocks());

  test.each([true, false])(
    "has ended when its caller gets it, who is warned unless: looks %s",
    async (looks) => {
      const warn = vi.spyOn(process, "emitWarning").mockImplementation(() => undefined);
      const { cluster, queue, joined, deleted } = world();
      const waiter = queue.join();
      await joined(JOINED);
      const lock = new ExclusiveHoldHandle(queue, await waiter.granted, false);
      deleted(JOINED + 1n);
      lock.started({ kind: "mutex", name: "jobs", options: {} as CheckedLock });

      expect(lock.held).toBe(false);
      if (looks) expect(lock.signal.aborted).toBe(true);
      await settle();
      expect(warn).not.toHaveBeenCalled();
      await cluster.clock.pass(TTL_SECONDS * 500);
      expect(warn).toHaveBeenCalledTimes(looks ? 0 : 1);
    },
  );
});
