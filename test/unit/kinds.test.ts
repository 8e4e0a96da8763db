import { describe, expect, test } from "vitest";
import { entryFound, isLockValue, isSameGroup, mayMeet, type LockKind } from "../../src/kinds.js";
import { checkValue } from "../../src/base/options/check.js";

const LEASE = 0x6a1fn;
const OURS = '{"owner":"host:1","since":"2026-01-02T03:04:05.678Z","id":"1q2w3e"}';
const PERMIT = OURS.replace("}", ',"permits":3}');
const WEB = OURS.replace("}", ',"client":"c"}');

const found = (key: string, value = "", leaseId = LEASE, prefix = "") =>
  entryFound("a", { key: Buffer.from(`${prefix}${key}`), value, leaseId }, prefix);

describe("what a key under a name shows", () => {
  test.each([
    ["a/6a1f", OURS, "a", "mutex"],
    ["a/6a1f-2", OURS, "a", "mutex"],
    ["a/6a1f", PERMIT, "a", "permit"],
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
    expect([OURS, PERMIT, "", "x"].map(isLockValue)).toEqual([true, true, false, false]);
  });
});

describe("kinds", () => {
  const groups: readonly (readonly LockKind[])[] = [
    ["mutex", "all", "reader", "writer", "web_lock"],
    ["permit"],
    ["leadership"],
  ];
  const groupOf = (kind: LockKind) => groups.findIndex((group) => group.includes(kind));
  const pairs = groups.flat().flatMap((a) => groups.flat().map((b) => [a, b] as const));

  test.each(pairs)("meet within their group only: %s and %s", (a, b) => {
    expect(mayMeet(a, b)).toBe(groupOf(a) === groupOf(b));
    expect(isSameGroup(a, b)).toBe(groupOf(a) === groupOf(b));
  });

  test.each(groups.flat())("of an unknown client may be met by %s unless permits are counted", (kind) => {
    expect(mayMeet(kind, "unknown")).toBe(kind !== "permit");
    expect(isSameGroup(kind, "unknown")).toBe(false);
  });
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
