import { describe, expect, test } from "vitest";
import { entryFound, isLockValue, isSameGroup, mayMeet, type LockKind } from "../../src/kinds.js";
import { checkValue } from "../../src/base/options/check.js";
import { parseEntryValue } from "../../src/keys.js";
import { QueueEntry } from "../../src/lock/queue/entry.js";
import { weighted } from "../../src/lock/queue/permit-mode.js";
import { FakeCluster } from "../support/fakes/fake-connection.js";

const LEASE = 0x6a1fn;
const OURS = '{"owner":"host:1","since":"2026-01-02T03:04:05.678Z","id":"1q2w3e"}';
const PERMIT = OURS.replace("}", ',"permits":3}');
const WEIGHTED = OURS.replace("}", ',"weighted":{"permits":10,"weight":3}}');
const PRIORITY = OURS.replace("}", ',"priority":{"level":-3,"agingMs":30000}}');
const GRANTED = OURS.replace("}", ',"priority":{"level":-3,"agingMs":30000,"granted":true}}');
const WEB = OURS.replace("}", ',"client":"c"}');

const found = (key: string, value = "", leaseId = LEASE, prefix = "") =>
  entryFound("a", { key: Buffer.from(`${prefix}${key}`), value, leaseId }, prefix);

describe("what a key under a name shows", () => {
  test.each([
    ["a/6a1f", OURS, "a", "mutex"],
    ["a/6a1f-2", OURS, "a", "mutex"],
    ["a/6a1f", PERMIT, "a", "permit"],
    ["a/6a1f", WEIGHTED, "a", "weighted"],
    ["a/6a1f", PRIORITY, "a", "priority"],
    ["a/6a1f-2", GRANTED, "a", "priority"],
    ["a/6a1f", PRIORITY.replace("05.678", "05"), "a", "unknown"],
    ["a/6a1f", "", "a", "unknown"],
    ["a/6a1f", "10.0.0.1:80", "a", "leadership"],
    ["a/6a1f", "{}", "a", "leadership"],
    ["a/6a1f", `{"owner":"${"x".repeat(5000)}"}`, "a", "leadership"],
    ["a/read/6a1f", OURS, "a", "reader"],
    ["a/read/6a1f-7", "", "a", "reader"],
    ["a/write/6a1f", OURS, "a", "writer"],
    ["a/write/6a1f", WEB, "a", "web_lock"],
    ["a/17/6a1f", OURS, "a/17", "mutex"],
    ["a/17/6a1f", "", "a/17", "unknown"],
    ["a/17/read/6a1f", OURS, "a/17", "reader"],
    ["a/17/b/c/6a1f", PERMIT, "a/17/b/c", "permit"],
    ["a/read/x/6a1f", "x", "a/read/x", "leadership"],
  ])("%s with the value %s is an entry of %s, and its kind is %s", (key, value, name, kind) => {
    expect(found(key, value)).toEqual({ name, kind });
  });

  test.each([
    ["has no lease", "a/6a1f", 0n],
    ["has no lease, and its last part is 0", "a/0", 0n],
    ["has another lease than its last part says", "a/6a1f", 7n],
    ["has no lease's ID for its last part", "a/config", LEASE],
    ["has a number that no entry has", "a/6a1f-1", LEASE],
    ["is one of Go's recipe for readers and writers", "a/read/0000000000000001", LEASE],
  ])("is nothing if it %s", (_, key, leaseId) => {
    expect(found(key, OURS, leaseId)).toBeUndefined();
  });

  test.each([
    ["one field more", OURS.replace("}", ',"role":"x"}')],
    ["another order", '{"owner":"h","id":"1","since":"2026-01-02T03:04:05.678Z"}'],
    ["another form of time", '{"owner":"h","since":"today","id":"1"}'],
    ["another form of ID", '{"owner":"h","since":"2026-01-02T03:04:05.678Z","id":"ID 1"}'],
    ["space between the fields", OURS.replace(",", ", ")],
  ])("is unknown if the value resembles that of a mutex, but has %s: it may be a candidate's", (_, value) => {
    expect(found("a/6a1f", value)).toEqual({ name: "a", kind: "unknown" });
    expect(isLockValue(value)).toBe(false);
  });

  test("is the kind of a mutex or a permit for exactly the values that this library writes", () => {
    expect([OURS, PERMIT, WEIGHTED, "", "x"].map(isLockValue)).toEqual([true, true, true, false, false]);
  });

  test.each([
    ["more than there are", { permits: 3, weight: 4 }],
    ["nothing", { permits: 3, weight: 0 }],
    ["a part of a permit", { permits: 3, weight: 1.5 }],
    ["a text", { permits: 3, weight: "1" }],
    ["an unknown part", { permits: 3 }],
    ["one of more than there can be", { permits: 1001, weight: 1 }],
    ["one of an unknown number", { weight: 1 }],
    ["what is no object", 3],
    ["a list", [3, 1]],
    ["null", null],
  ])("is unknown if it says that it takes %s", (_, weighted) => {
    const value = OURS.replace("}", `,"weighted":${JSON.stringify(weighted)}}`);
    expect(found("a/6a1f", value)).toEqual({ name: "a", kind: "unknown" });
    expect(parseEntryValue(value).weighted).toBeUndefined();
  });

  test("is a permit's, as for an older client, if it says both", () => {
    const value = OURS.replace("}", ',"permits":2,"weighted":{"permits":10,"weight":3}}');
    expect(found("a/6a1f", value)).toEqual({ name: "a", kind: "permit" });
    expect(parseEntryValue(value)).toMatchObject({ permits: 2 });
    expect(parseEntryValue(value).weighted).toBeUndefined();
  });

  test("is none that an older client counts: without a number of permits, its calls are rejected, or wait", () => {
    const written = new QueueEntry({
      lease: new FakeCluster().lease(),
      name: "a",
      n: 1,
      mode: weighted(10, 3),
    });
    const { owner, since, id, permits } = parseEntryValue(written.value);
    expect(permits).toBeUndefined();
    expect(JSON.stringify({ owner, since, id })).not.toBe(written.value);
    expect(found("a/6a1f", written.value)).toEqual({ name: "a", kind: "weighted" });
  });
});

test.each([
  ["a level that is no whole number", { level: 0.5, agingMs: 1 }],
  ["a level out of range", { level: -1001, agingMs: 1 }],
  ["no level", { agingMs: 1 }],
  ["an agingMs of nothing", { level: 1, agingMs: 0 }],
  ["an agingMs beyond a timer", { level: 1, agingMs: 2 ** 31 }],
  ["a grant that is no true", { level: 1, agingMs: 1, granted: 1 }],
  ["null", null],
])("the value of a call with a priority has no such one: %s", (_, priority) => {
  const value = OURS.replace("}", `,"priority":${JSON.stringify(priority)}}`);
  expect(found("a/6a1f", value)).toEqual({ name: "a", kind: "unknown" });
  expect(parseEntryValue(value).priority).toBeUndefined();
});

describe("kinds", () => {
  const groups: readonly (readonly LockKind[])[] = [
    ["mutex", "all", "reader", "writer", "web_lock"],
    ["permit"],
    ["weighted"],
    ["priority"],
    ["leadership"],
  ];
  const groupOf = (kind: LockKind) => groups.findIndex((group) => group.includes(kind));
  const pairs = groups.flat().flatMap((a) => groups.flat().map((b) => [a, b] as const));

  test.each(pairs)("meet within their group only: %s and %s", (a, b) => {
    expect(mayMeet(a, b)).toBe(groupOf(a) === groupOf(b));
    expect(isSameGroup(a, b)).toBe(groupOf(a) === groupOf(b));
  });

  test.each(groups.flat())(
    "of an unknown client may be met by %s unless permits are counted, or priorities",
    (kind) => {
      expect(mayMeet(kind, "unknown")).toBe(!["permit", "weighted", "priority"].includes(kind));
      expect(isSameGroup(kind, "unknown")).toBe(false);
    },
  );
});

test.each([
  ["a mutex", { owner: "a:1", since: "2026-01-01T00:00:00.000Z", id: "1a" }],
  ["a permit", { owner: "a:1", since: "2026-01-01T00:00:00.000Z", id: "1a", permits: 3 }],
])("no candidate may have the value of %s: it would be taken for one", (_, value) => {
  expect(() => checkValue("value", JSON.stringify(value))).toThrow(
    /^Expected value to be other than the value of a lock's entry, got /,
  );
  expect(checkValue("value", JSON.stringify({ ...value, since: "now", permits: undefined }))).toBeDefined();
});
