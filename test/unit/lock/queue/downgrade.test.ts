import { describe, expect, test } from "vitest";
import type { Compare } from "../../../../src/etcd/port.js";
import {
  EntryBelow,
  exclusive,
  GRANTED,
  reader,
  whenBeside,
  writer,
} from "../../../../src/lock/queue/lock-mode.js";
import { type JoinedEntry, QueueEntry } from "../../../../src/lock/queue/entry.js";
import { PredecessorWait } from "../../../../src/lock/queue/predecessor-wait.js";
import { downgradeTxn } from "../../../../src/lock/queue/txns.js";
import { settle } from "../../../support/fakes/fake-clock.js";
import { FakeCluster, HEADER } from "../../../support/fakes/fake-connection.js";
import { keyValue } from "../../../support/fakes/fake-member.js";

const lease = new FakeCluster().lease();
const entryAt = (revision: bigint, mode = reader): JoinedEntry =>
  new QueueEntry({ lease, name: "jobs", n: Number(revision), mode }).confirmed(revision);

const DOWNGRADED = '{"owner":"a","since":"b","id":"c","downgraded":true}';
const kv = (key: string, createRevision: bigint, value = DOWNGRADED, modRevision = createRevision + 1n) =>
  keyValue({ key, createRevision, modRevision, value });
const told = (...kvs: readonly ReturnType<typeof keyValue>[]) => ({ kvs, more: false, count: kvs.length });
const downgraded = kv("jobs/write/77", 30n);

describe("a reader behind a writer that has become a reader", () => {
  const mine = entryAt(50n);
  const own = told(kv(mine.key, 50n, mine.value));

  test("holds, by the answer to its join and by a read", () => {
    expect(reader.joined(mine, [told(), told(downgraded)])).toBe(GRANTED);
    expect(reader.positionOf(mine, [own, told(), told(downgraded)])).toBe("first");
    expect(reader.positionOf(mine, [told(), told(), told(downgraded)])).toBe("gone");
  });

  test.each([
    ["a waiting writer is between them", [told(kv("jobs/55", 40n, "")), told(downgraded)], 40n, false],
    ["it is a mutex that has this value", [told(kv("jobs/55", 40n)), told()], 40n, false],
    ["it is a writer of a nested name", [told(), told(kv("jobs/write/write/55", 40n))], 40n, false],
    ["it is a writer that still writes", [told(), told(kv("jobs/write/55", 40n, "{}"))], 40n, true],
  ])("waits if %s", (_, answer, revision, mayDowngrade) => {
    expect(reader.joined(mine, answer)).toMatchObject({ predecessor: { revision, mayDowngrade } });
  });

  test("follows that one of its own session no more", () => {
    const writing = entryAt(10n, writer);
    expect(reader.follows(mine, [writing])).toBe(writing);

    writing.downgrades();

    expect(reader.follows(mine, [writing])).toBeUndefined();
    expect(reader.follows(mine, [writing, entryAt(20n, writer)])?.revision).toBe(20n);
    expect(writer.follows(entryAt(60n, writer), [writing])).toBe(writing);
  });
});

describe("a try to read", () => {
  const comparesOf = (...oldest: readonly ReturnType<typeof keyValue>[]): readonly Compare[] | undefined =>
    whenBeside("jobs", oldest)?.(entryAt(50n));

  test("is granted beside it if that one is as it was, and nothing else but readers is there", () => {
    expect(comparesOf(downgraded)).toEqual([
      { kind: "created at", key: "jobs/read/77-50", revision: 0n },
      { kind: "modified at", key: "jobs/write/77", revision: 31n },
      { kind: "nothing in", key: "jobs/", end: "jobs/read/" },
      { kind: "nothing in", key: "jobs/read0", end: "jobs/write/77" },
      { kind: "nothing in", key: "jobs/write/77\0", end: "jobs0" },
    ]);
  });

  test("is granted beside it and its delay key, which were written at once", () => {
    const id = "4aaaaaaaaaaaaaa";
    const both = [kv(`jobs/write/${id}9-2`, 30n), kv(`jobs/write/${id}8-2`, 30n)];

    expect(comparesOf(...both)?.slice(1)).toEqual([
      { kind: "modified at", key: `jobs/write/${id}9-2`, revision: 31n },
      { kind: "modified at", key: `jobs/write/${id}8-2`, revision: 31n },
      { kind: "nothing in", key: "jobs/", end: "jobs/read/" },
      { kind: "nothing in", key: "jobs/read0", end: `jobs/write/${id}8-2` },
      { kind: "nothing in", key: `jobs/write/${id}8-2\0`, end: `jobs/write/${id}9-2` },
      { kind: "nothing in", key: `jobs/write/${id}9-2\0`, end: "jobs0" },
    ]);
  });

  test("is not granted beside any other entry", () => {
    expect(comparesOf()).toBeUndefined();
    expect(comparesOf(kv("jobs/77", 30n))).toBeUndefined();
    expect(comparesOf(kv("jobs/write/77", 30n, "{}"), downgraded)).toBeUndefined();
  });
});

test("a writer that becomes a reader puts its key under the same create revision, with a value that is not sticky", () => {
  const entry = new QueueEntry({
    lease,
    name: "jobs",
    n: 1,
    mode: writer,
    sticky: true,
    reason: "import",
  }).confirmed(9n);

  const { compare, success, failure } = downgradeTxn(entry, [], false);

  expect(compare).toEqual([
    { kind: "created at", key: entry.key, revision: 9n },
    { kind: "modified at", key: entry.key, revision: 9n },
  ]);
  expect(failure).toEqual([{ kind: "range", key: entry.key }]);
  expect(success).toEqual([
    { kind: "put", key: entry.key, leaseId: lease.leaseId, value: entry.downgradedValue },
  ]);
  const { sticky, ...value } = JSON.parse(entry.value) as Record<string, unknown>;
  expect(sticky).toBe(true);
  expect(JSON.parse(entry.downgradedValue)).toEqual({ ...value, downgraded: true });
});

/** A place at revision 50 that waits behind the writer of revision 40, which holds. */
async function waiting() {
  const cluster = new FakeCluster();
  const outcomes: string[] = [];
  // What it reads is that of a mutex: only the watches matter here.
  const entry = new QueueEntry({ lease: cluster.lease(), name: "jobs", n: 1, mode: exclusive }).confirmed(
    50n,
  );
  const below = { key: Buffer.from("jobs/write/40"), createRevision: 40n };
  const predecessor = new EntryBelow(below, true, { mayDowngrade: true });
  const outcome = {
    turnGranted: () => void outcomes.push("granted"),
    keyGone: () => void outcomes.push("gone"),
    waitFailed: () => void outcomes.push("failed"),
  };
  new PredecessorWait(entry, outcome, { state: "waiting", ahead: 1, predecessor });
  cluster.clock.advance(0);
  const [member] = cluster.connected;
  const [stream] = member!.watches;
  const reads = () => member!.of("range");
  const answer = async (revision: bigint, ...kvs: readonly ReturnType<typeof keyValue>[]) => {
    reads()
      .at(-1)!
      .answer({ header: { ...HEADER, revision }, kvs, more: false, count: 9 });
    await settle();
  };
  for (const { watchId } of [...stream!.creates]) stream!.answer({ watchId, created: true }, 60n);
  await settle();
  const mine = keyValue({ key: entry.key, createRevision: 50n, modRevision: 50n });
  await answer(60n, mine, keyValue({ key: "jobs/write/40", createRevision: 40n, modRevision: 40n }));
  const put = async (createRevision: bigint, modRevision: bigint) => {
    const { watchId } = stream!.creates.find(({ events }) => events === "PUT")!;
    const kv = keyValue({ key: "jobs/write/40", createRevision, modRevision });
    stream!.answer({ watchId, events: [{ kind: "PUT", kv }] }, modRevision);
    await settle();
  };
  return { outcomes, stream: stream!, reads, answer, mine, put };
}

describe("a wait behind a writer", () => {
  test("watches the puts of its key beside its end", async () => {
    const { stream, outcomes } = await waiting();

    expect(stream.creates.map(({ key, end, events }) => [String(key), end !== undefined, events])).toEqual([
      ["jobs/77", true, "DELETE"],
      ["jobs/write/40", false, "PUT"],
    ]);
    expect(outcomes).toEqual([]);
  });

  test("reads after a put, and holds only by the answer", async () => {
    const { outcomes, reads, answer, mine, put } = await waiting();

    await put(40n, 61n);
    expect([outcomes, reads().length]).toEqual([[], 2]);
    // Older than the put: a quorum is asked.
    await answer(60n, mine);
    expect([outcomes, reads().length]).toEqual([[], 3]);
    await answer(61n, mine);

    expect(outcomes).toEqual(["granted"]);
  });

  test("joins again if the answer after a put does not show its own key", async () => {
    const { outcomes, answer, put } = await waiting();

    await put(40n, 61n);
    await answer(61n);

    expect(outcomes).toEqual(["gone"]);
  });

  test("ignores the put of another life of the key", async () => {
    const { outcomes, reads, put } = await waiting();

    await put(62n, 62n);

    expect([outcomes, reads().length]).toEqual([[], 1]);
  });
});
