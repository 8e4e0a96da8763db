// A watch reports the deletion of a key before the answer that grants it, which comes on another stream.
import { afterEach, describe, expect, test, vi } from "vitest";
import type { CheckedLock } from "../../../../src/base/options/lock.js";
import { ExclusiveHoldHandle } from "../../../../src/lock/hold/hold.js";
import { exclusive, reader, writer } from "../../../../src/lock/queue/lock-mode.js";
import { permit } from "../../../../src/lock/queue/permit-mode.js";
import { LockTable } from "../../../../src/lock/queue/queue.js";
import { settle } from "../../../support/fakes/fake-clock.js";
import { FakeCluster, HEADER, LEASE_ID } from "../../../support/fakes/fake-connection.js";
import { keyValue } from "../../../support/fakes/fake-member.js";

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
  const joined = async (revision: bigint, key = KEY) => {
    const header = { ...HEADER, revision };
    const kvs = [keyValue({ key, createRevision: revision, modRevision: revision })];
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

test("a permit is known to be gone when the put that announces its grant doesn't find it", async () => {
  const { queue, txns } = world();
  const waiter = queue.join({ mode: permit(2) });
  const header = { ...HEADER, revision: JOINED };
  const kvs = [keyValue({ key: KEY, createRevision: JOINED, modRevision: JOINED })];
  const empty = { header, kvs: [], count: 0, more: false };
  // What is before it leaves room, but did not say how many permits there are.
  const [join] = await txns();
  join!.answer({ succeeded: true, header, ranges: [{ ...empty, kvs, count: 1 }, empty] });
  const entry = await waiter.granted;
  queue.grant(entry, { state: "granted", visible: false });
  const announce = (await txns()).at(-1)!;
  expect(entry.knownGone).toBe(false);
  announce.answer({ succeeded: false, header: { ...HEADER, revision: JOINED + 1n }, ranges: [] });
  await settle();
  expect(entry.knownGone).toBe(true);
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

describe("an answer that should show an entry of the session, and does not", () => {
  const PATH = "jobs/";
  const ALL = { key: PATH, end: "jobs0" };
  const NEWEST = { ...ALL, order: "newest first", limit: 1 } as const;
  const OLDEST = { ...ALL, order: "oldest first", limit: 1 } as const;

  test.each([
    ["the range is empty", ALL, [], true],
    ["the range has the key", ALL, [JOINED], false],
    ["the range has other keys only", ALL, [JOINED - 1n, JOINED + 1n], true],
    ["the range ends before the key", { key: PATH, end: `${KEY.slice(0, -1)}` }, [], false],
    ["only the key was read", { key: KEY }, [], true],
    ["another key was read", { key: `${KEY}-2` }, [], false],
    ["only older entries were read", { ...ALL, maxCreateRevision: JOINED - 1n }, [], false],
    ["the newest entry is older", NEWEST, [JOINED - 1n], true, "more"],
    ["the newest entry is younger", NEWEST, [JOINED + 1n], false, "more"],
    ["the only entry is younger", NEWEST, [JOINED + 1n], true],
    ["the oldest entry is younger", OLDEST, [JOINED + 1n], true, "more"],
    ["the oldest entry is older", OLDEST, [JOINED - 1n], false, "more"],
    ["the only entry is older", OLDEST, [JOINED - 1n], true],
  ])("is known to be gone: %s", async (_, range, found, gone, more = "") => {
    const { queue, joined } = world();
    const waiter = queue.join();
    await joined(JOINED);
    const entry = await waiter.granted;
    const kvs = found.map((createRevision) =>
      keyValue({ key: createRevision === JOINED ? KEY : `jobs/${createRevision}`, createRevision }),
    );
    const results = [{ kvs, count: kvs.length, more: more !== "" }];

    queue.own.shownBy([range], results, JOINED);
    expect(entry.knownGone, "by its own join").toBe(false);

    queue.own.shownBy([range], results, JOINED + 5n);
    expect(entry.knownGone).toBe(gone);
  });

  test.each([
    ["without its key: it isn't granted, and its caller joins again", [], 2],
    ["with its key: it is granted", [JOINED], 1],
    ["that is older: it is granted", [], 1, JOINED - 1n],
  ])("has joined before, and is told of it after an answer %s", async (_, found, joins, at = JOINED + 5n) => {
    const { queue, txns, joined } = world();
    const waiter = queue.join();
    await txns();
    const kvs = found.map((createRevision) => keyValue({ key: KEY, createRevision }));
    queue.own.shownBy([ALL], [{ kvs, count: kvs.length, more: false }], at);

    await joined(JOINED);
    expect(await txns()).toHaveLength(joins);
    await joined(JOINED + 7n);

    expect(await waiter.granted).toMatchObject({ revision: joins > 1 ? JOINED + 7n : JOINED });
  });

  test("is remembered for a join of several names whose queue was idle meanwhile", async () => {
    const { cluster, lease, txns, joined } = world();
    // The requests of both joins are under way at once.
    cluster.clock.afterPendingEvents = (run) => cluster.clock.after(0, run);
    const table = LockTable.of(lease);
    const wanted = { names: ["jobs", "more"], mode: exclusive, kind: "all", limits: {} } as const;
    const joining = table.joiner.joinAll(wanted);
    const [late] = await txns();
    const waiter = table.queue("jobs").join();
    await settle();
    cluster.clock.advance(0);
    await joined(JOINED + 5n, `${KEY}-2`);
    const leaving = table.queue("jobs").leave(await waiter.granted);
    cluster.clock.advance(0);
    (await txns())
      .at(-1)!
      .answer({ succeeded: true, header: { ...HEADER, revision: JOINED + 6n }, ranges: [] });
    await leaving;

    late!.answer({ succeeded: true, header: { ...HEADER, revision: JOINED }, ranges: [] });

    const [job, other] = await joining;
    expect([job!.entry.knownGone, other!.entry.knownGone]).toEqual([true, false]);
  });

  test("was made after the answer, of an etcd that was restored since: it is granted", async () => {
    const { cluster, lease, queue, txns, joined } = world();
    cluster.clock.afterPendingEvents = (run) => cluster.clock.after(0, run);
    const wanted = { names: ["jobs", "more"], mode: exclusive, kind: "all", limits: {} } as const;
    void LockTable.of(lease).joiner.joinAll(wanted);
    await txns();
    queue.own.shownBy([ALL], [{ kvs: [], count: 0, more: false }], JOINED + 1000n);
    const waiter = queue.join();
    await settle();
    cluster.clock.advance(0);

    await joined(JOINED, `${KEY}-2`);

    expect(await waiter.granted).toMatchObject({ revision: JOINED, knownGone: false });
  });

  test("stays known to be gone after an answer that is older than the entry", async () => {
    const { queue, joined, deleted } = world();
    const waiter = queue.join();
    await joined(JOINED);
    const entry = await waiter.granted;
    deleted(JOINED + 1n);

    queue.own.shownBy([ALL], [{ kvs: [], count: 0, more: false }], JOINED - 1n);

    expect(entry.knownGone).toBe(true);
  });

  test("isn't granted by a lagging member after the readers beside it were read", async () => {
    const { cluster, queue, txns } = world();
    const waiters = [queue.join({ mode: reader }), queue.join({ mode: reader })];
    for (const revision of [JOINED + 1n, JOINED + 2n]) {
      const header = { ...HEADER, revision };
      const other = keyValue({ key: "jobs/write/1a", createRevision: JOINED });
      const [nothing, found] = [[], [other]].map((kvs) => ({ header, kvs, count: kvs.length, more: false }));
      (await txns()).at(-1)!.answer({ succeeded: true, header, ranges: [undefined, nothing!, found!] });
    }
    const [first, entry] = (await txns(), queue.own.joined);
    waiters[0]!.turnGranted();
    await settle();
    const header = { ...HEADER, revision: JOINED + 4n };
    const kvs = [keyValue({ key: first!.key, createRevision: first!.revision })];
    cluster.member.of("range").at(-1)!.answer({ header, kvs, count: 1, more: false });
    await settle();

    waiters[1]!.turnGranted();

    expect([first!.held, entry!.held, queue.own.joined.includes(entry!)]).toEqual([true, false, false]);
  });

  test("has ended when its caller gets it after a join of the same session was shown the queue", async () => {
    const { queue, txns, joined } = world();
    const waiter = queue.join({ mode: writer });
    await joined(JOINED, KEY.replace("/", "/write/"));
    const lock = new ExclusiveHoldHandle(queue, await waiter.granted, false);
    const reading = queue.join({ mode: reader });
    const header = { ...HEADER, revision: JOINED + 2n };
    const empty = { header, kvs: [], count: 0, more: false };
    (await txns()).at(-1)!.answer({ succeeded: true, header, ranges: [undefined, empty, empty] });
    await reading.granted;

    lock.started({ kind: "writer", name: "jobs", options: {} as CheckedLock });

    expect([lock.held, lock.signal.aborted]).toEqual([false, true]);
  });

  test("isn't granted by a lagging member after a leave of the same session was shown the queue", async () => {
    const { queue, txns, joined } = world();
    const first = queue.join({ mode: writer });
    await joined(JOINED, KEY.replace("/", "/write/"));
    const held = await first.granted;
    const waiters = [queue.join({ mode: reader }), queue.join({ mode: reader })];
    for (const revision of [JOINED + 1n, JOINED + 2n]) {
      const header = { ...HEADER, revision };
      const found = {
        header,
        kvs: [keyValue({ key: held.key, createRevision: JOINED })],
        count: 1,
        more: false,
      };
      const nothing = { header, kvs: [], count: 0, more: false };
      (await txns()).at(-1)!.answer({ succeeded: true, header, ranges: [undefined, nothing, found] });
    }
    const [entry, next] = (await txns(), queue.own.joined.slice(1));
    void queue.leave(held);
    const header = { ...HEADER, revision: JOINED + 4n };
    const nothing = { header, kvs: [], count: 0, more: false };
    const kvs = [keyValue({ key: next!.key, createRevision: next!.revision })];
    (await txns()).at(-1)!.answer({
      succeeded: true,
      header,
      ranges: [undefined, { header, kvs, count: 1, more: false }, nothing, nothing],
    });

    expect(await waiters[1]!.granted).toBe(next);
    waiters[0]!.turnGranted();
    expect([entry!.held, queue.own.joined.includes(entry!)]).toEqual([false, false]);
  });
});
