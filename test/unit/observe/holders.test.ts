import fc from "fast-check";
import { describe, expect, test } from "vitest";
import type { KeyValue, Range } from "../../../src/etcd/port.js";
import { QueueEntry } from "../../../src/lock/queue/entry.js";
import {
  exclusive,
  type LockMode,
  type RangeResult,
  reader,
  writer,
} from "../../../src/lock/queue/lock-mode.js";
import { permit, weighted } from "../../../src/lock/queue/permit-mode.js";
import { byAge, kindOfQueue, SeenEntry, splitQueue } from "../../../src/lock/queue/seen-entry.js";
import { FakeCluster } from "../../support/fakes/fake-connection.js";
import { keyValue } from "../../support/fakes/fake-member.js";

const lease = new FakeCluster().lease();
const NAME = "jobs";

/** etcd's answer for one range of these keys. */
function answer(kvs: readonly KeyValue[], range: Range): RangeResult {
  const from = Buffer.from(range.key);
  const end = range.end === undefined ? Buffer.concat([from, Buffer.of(0)]) : Buffer.from(range.end);
  const inside = kvs.filter(({ key }) => key.compare(from) >= 0 && key.compare(end) < 0);
  const sign = range.order === "newest first" ? -1 : 1;
  const found = inside
    .filter(({ createRevision }) => createRevision <= (range.maxCreateRevision ?? createRevision))
    .sort((a, b) => sign * Number(a.createRevision - b.createRevision));
  const { limit = found.length } = range;
  return { kvs: found.slice(0, limit), more: found.length > limit, count: inside.length };
}

/** Whether the lock mode of this entry would let it hold. */
function holdsByMode(entry: QueueEntry & { readonly revision: bigint }, kvs: readonly KeyValue[]): boolean {
  const position = (all: boolean) =>
    entry.mode.positionOf(
      entry,
      entry.mode.reads(entry, all).map((range) => answer(kvs, range)),
    );
  const first = position(false);
  return (first === "unclear" ? position(true) : first) === "first";
}

const FOREIGN = [
  "jobs/6a1f",
  "jobs/read",
  "jobs/config",
  "jobs/nested/6a1f",
  "jobs/read/x/y",
  "jobs/write/a/b",
];
const VALUES = [
  "",
  "leader-1",
  "null",
  '{"permits":2}',
  '{"permits":1001}',
  '{"weighted":{"permits":3,"weight":2}}',
  '{"weighted":{"permits":2,"weight":3}}',
  "\u0000\u001b[2J",
  "x".repeat(5000),
];

type Item = { readonly mode: LockMode } | { readonly key: string; readonly value: string };
const item: fc.Arbitrary<Item> = fc.oneof(
  fc
    .constantFrom(exclusive, reader, reader, writer, permit(1), permit(2), permit(3))
    .map((mode) => ({ mode })),
  fc
    .constantFrom(...[1, 2, 3].map((weight) => weighted(3, weight)), weighted(5, 4), weighted(1, 1))
    .map((mode) => ({ mode })),
  fc.record({ key: fc.constantFrom(...FOREIGN), value: fc.constantFrom(...VALUES) }),
);

/** `downgraded`: the oldest entry is a writer that has become a reader. No other one can be. */
function queueOf(items: readonly Item[], downgraded = false) {
  const ours: (QueueEntry & { readonly revision: bigint })[] = [];
  const kvs = items.map((each, n) => {
    const createRevision = BigInt(n + 10);
    if (!("mode" in each))
      return keyValue({
        key: `${each.key}${n}`,
        value: each.value,
        createRevision,
        modRevision: createRevision,
      });
    const entry = new QueueEntry({ lease, name: NAME, n: n + 1, mode: each.mode }).confirmed(createRevision);
    ours.push(entry);
    const isDowngraded = downgraded && n === 0 && each.mode === writer;
    const { key } = entry;
    const value = isDowngraded ? entry.downgradedValue : entry.value;
    return keyValue({ key, value, createRevision, modRevision: createRevision, leaseId: lease.leaseId });
  });
  return { ours, kvs };
}

const entries = (kvs: readonly KeyValue[]) => kvs.map((kv) => new SeenEntry(kv)).sort(byAge);
const kindOf = (kvs: readonly KeyValue[]) => kindOfQueue(NAME, entries(kvs));
const split = (kvs: readonly KeyValue[]) => {
  const { holders, waiters } = splitQueue(NAME, entries(kvs));
  return { holders: holders.map(({ key }) => String(key)), waiters: waiters.map(({ key }) => String(key)) };
};

describe("who holds", () => {
  test("is what the lock mode of each entry says of itself, among any other keys", () => {
    fc.assert(
      fc.property(fc.array(item, { maxLength: 9 }), fc.boolean(), (items, downgraded) => {
        const { ours, kvs } = queueOf(items, downgraded);
        const { holders } = split(kvs);

        for (const entry of ours)
          expect([entry.key, holders.includes(entry.key)]).toEqual([entry.key, holdsByMode(entry, kvs)]);
        expect(holders.length > 0).toBe(kvs.length > 0);
      }),
      { numRuns: 500 },
    );
  });

  test("is a writer that has become a reader with the readers behind it, up to the next other entry", () => {
    const modes = [writer, reader, reader, writer, reader].map((mode) => ({ mode }));

    expect(split(queueOf(modes, true).kvs)).toEqual({
      holders: ["jobs/write/77", "jobs/read/77-2", "jobs/read/77-3"],
      waiters: ["jobs/write/77-4", "jobs/read/77-5"],
    });
    expect(split(queueOf(modes).kvs).holders).toEqual(["jobs/write/77"]);
  });

  test("does not depend on the order in which the keys are read", () => {
    const { kvs } = queueOf([{ mode: permit(2) }, { mode: exclusive }, { mode: permit(2) }]);

    expect(split([...kvs].reverse())).toEqual(split(kvs));
    expect(split(kvs)).toEqual({ holders: ["jobs/77"], waiters: ["jobs/77-2", "jobs/77-3"] });
  });

  test("is one key of any kind for Go's mutex: a key without a lease holds as well, for as long as it is there", () => {
    const junk = keyValue({ key: "jobs/config", value: "x", createRevision: 1n });
    const go = keyValue({ key: "jobs/6a1f", createRevision: 2n, leaseId: 0x6a1fn });

    expect(split([go, junk])).toEqual({ holders: ["jobs/config"], waiters: ["jobs/6a1f"] });
  });
});

describe("the kind of a queue", () => {
  const kind = (key: string, value: string, leaseId = 7n) => kindOf([keyValue({ key, value, leaseId })]);

  test.each([
    ["a mutex", exclusive, "mutex"],
    ["a reader", reader, "rwlock"],
    ["a writer", writer, "rwlock"],
    ["a permit", permit(3), "semaphore"],
    ["a weighted permit", weighted(3, 2), "semaphore"],
  ] as const)("is that of %s", (_, mode, expected) => {
    expect(kindOf(queueOf([{ mode }]).kvs)).toBe(expected);
  });

  test.each([
    ["Go's mutex and etcdctl lock", "jobs/694d8f3a2b1c0d9e", "", "mutex"],
    ["a candidate", "jobs/6a1f", "host:17", "election"],
    ["a candidate with JSON as its value", "jobs/6a1f", '{"id":"x"}', "election"],
    ["a member of another group", "jobs/6a1f", '{"member":"a","value":"","owner":"host:1"}', "election"],
    ["a key of another form", "jobs/config", "", "unknown"],
    ["an entry of a nested name", "jobs/night/6a1f", "", "unknown"],
  ])("is told by the key and value of %s", (_, key, value, expected) => {
    expect(kind(key, value)).toBe(expected);
    expect(kind(key, value, 0n)).toBe("unknown");
  });

  test("is that of a group by its directory and the value of a member: all of them are there at once, and nobody waits", () => {
    const member = (n: number, value: string) =>
      new SeenEntry(
        keyValue({ key: `jobs/members/${n}`, value, createRevision: BigInt(n), leaseId: BigInt(n) }),
      );
    const told = '{"member":"a","value":"x","owner":"host:1","capacity":1,"state":"active"}';
    const group = [member(1, told), member(2, told), member(3, told)];

    expect(kindOfQueue("jobs/members", group)).toBe("members");
    expect(kindOfQueue("jobs", group)).toBe("unknown");
    expect(splitQueue("jobs/members", group)).toEqual({ holders: group, waiters: [] });
    expect(group[0]).toMatchObject({ owner: "host:1", value: undefined });
    // A candidate of an election of this name, and a mutex.
    for (const value of ["leader-1", '{"member":"a"}', ""])
      expect(kindOfQueue("jobs/members", [member(1, value)])).not.toBe("members");
    expect(splitQueue("jobs/members", [member(1, ""), member(2, "")]).waiters).toHaveLength(1);
  });

  test("is taken from the oldest entry that shows it, and is unknown without values", () => {
    const { kvs } = queueOf([{ key: "jobs/config", value: "" }, { mode: permit(2) }, { mode: exclusive }]);

    expect(kindOf(kvs)).toBe("semaphore");
    const keysOnly = kvs.map((kv) => new SeenEntry({ ...kv, value: "" }, false));
    expect(kindOfQueue(NAME, keysOnly)).toBe("unknown");
  });
});
