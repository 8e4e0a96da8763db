import { describe, expect, test, vi } from "vitest";
import {
  sessionRange,
  parseEntryKey,
  parseEntryValue,
  entryKey,
  prefixEnd,
  prefixOf,
} from "../../src/keys.js";
import { exclusive, positionOf } from "../../src/lock/queue/lock-mode.js";
import type { Lease } from "../../src/lock/session/lease.js";
import { QueueEntry } from "../../src/lock/queue/entry.js";
import { joinTxn, leaveTxn } from "../../src/lock/queue/txns.js";
import { FakeCluster } from "../support/fakes/fake-connection.js";
import { keyValue } from "../support/fakes/fake-member.js";

const LEASE_ID = 0x694d9a1c0ffeen;

const entryOf = (lease: Lease) => new QueueEntry({ lease, name: "jobs", n: 1, mode: exclusive });

describe("a key of a queue", () => {
  test("is the one that Go's client makes: name, slash, lease ID in lower-case hex", () => {
    expect(entryKey("jobs/nightly", LEASE_ID, 1)).toBe("jobs/nightly/694d9a1c0ffee");
    expect(entryKey("a", 0x00ffn, 1)).toBe("a/ff");
  });

  test("has a number when the session has another place under the name", () => {
    expect(entryKey("jobs", LEASE_ID, 2)).toBe("jobs/694d9a1c0ffee-2");
  });

  test.each([1, 2, 99])("number %i is read back as what it was made of", (n) => {
    const key = entryKey("jobs/nightly", LEASE_ID, n);

    expect(parseEntryKey(key, LEASE_ID)).toEqual({ name: "jobs/nightly", n });
  });

  test.each([
    "jobs/694d9a1c0ffe",
    "jobs/694d9a1c0ffee-1",
    "jobs/694d9a1c0ffee-02",
    "jobs/694d9a1c0ffee-2-3",
    "jobs/694d9a1c0ffee-",
    "jobs/694D9A1C0FFEE",
    "694d9a1c0ffee",
    "/694d9a1c0ffee",
    "jobs/694d9a1c0ffee/x",
  ])("is not %s for that lease", (key) => {
    expect(parseEntryKey(key, LEASE_ID)).toBeUndefined();
  });

  test("lies in the range of its queue, and in that of its session; the neighbours' keys do not", () => {
    const within = (key: string, from: string, to: string) =>
      Buffer.compare(Buffer.from(key), Buffer.from(from)) >= 0 &&
      Buffer.compare(Buffer.from(key), Buffer.from(to)) < 0;
    const queue = (key: string) => within(key, prefixOf("a"), prefixEnd(prefixOf("a")));
    const { key: first, end } = sessionRange("a", 0x7fn);

    expect(["a/7f", "a/b/7f", "a/\u{10FFFF}", "a/"].filter((key) => !queue(key))).toEqual([]);
    expect(["a", "a0", "a-b/7f", "ab/7f", "b/7f"].filter(queue)).toEqual([]);
    expect([1, 2, 10, 12345].filter((n) => !within(entryKey("a", 0x7fn, n), first, end))).toEqual([]);
    expect(["a/7f0", "a/7f/1", "a/7e", "a/80"].filter((key) => within(key, first, end))).toEqual([]);
  });
});

describe("the value of a place", () => {
  test("tells owner, time and id", () => {
    const { value } = entryOf(new FakeCluster().lease());

    const told = parseEntryValue(value);
    expect(told.owner).toBe("owner");
    expect(new Date(told.since!).toISOString()).toBe(told.since);
    expect(told.id).toMatch(/^\w+$/);
  });

  test("is different for every place", () => {
    const lease = new FakeCluster().lease();
    const values = Array.from({ length: 100 }, () => entryOf(lease).value);

    expect(new Set(values).size).toBe(100);
  });

  test.each(["", "hello", "null", "7", "[1]", '{"owner":7}', '{"owner"'])(
    "of another client (%s) tells nothing",
    (value) => {
      expect(parseEntryValue(value)).toEqual({});
    },
  );

  test("tells nothing without an exception, which would cost a board of 20,000 keys half a second", () => {
    const parse = vi.spyOn(JSON, "parse");
    for (const value of ["", "hello", "\ufeff", "127.0.0.1:80", "[1]", '"{'])
      expect(parseEntryValue(value)).toEqual({});

    expect(parse).not.toHaveBeenCalled();
    expect(parseEntryValue(' \n{"owner":"me"}')).toEqual({ owner: "me" });
    parse.mockRestore();
  });
});

describe("where a place stands", () => {
  const entry = entryOf(new FakeCluster().lease()).confirmed(50n);
  const mine = keyValue({ key: entry.key, createRevision: 50n });
  const other = (createRevision: bigint) => keyValue({ key: `jobs/${createRevision}`, createRevision });

  test("is first when it is the only one", () => {
    expect(positionOf(entry, { kvs: [mine], more: false })).toBe("first");
  });

  test("is gone when its key is missing, or belongs to another place by now", () => {
    expect(positionOf(entry, { kvs: [], more: false })).toBe("gone");
    expect(positionOf(entry, { kvs: [other(40n)], more: false })).toBe("gone");
    const later = keyValue({ key: entry.key, createRevision: 51n });
    const stranger = keyValue({ key: "jobs/x", createRevision: 50n });
    expect(positionOf(entry, { kvs: [later], more: false })).toBe("gone");
    expect(positionOf(entry, { kvs: [stranger], more: false })).toBe("gone");
  });

  test("is right behind the holder when there is exactly one other", () => {
    expect(positionOf(entry, { kvs: [mine, other(40n)], more: false })).toMatchObject({
      ahead: 1,
      predecessor: { target: { key: "jobs/40", events: "DELETE" }, revision: 40n, holder: true },
    });
  });

  test.each([
    ["two others", [40n, 30n], false, 2],
    ["one other and more that were not told", [40n], true, 2],
    ["three others and more", [40n, 30n, 20n], true, 4],
  ])("is behind somebody who waits as well when there are %s", (_, others, more, ahead) => {
    const position = positionOf(entry, { kvs: [mine, ...others.map(other)], more });

    expect(position).toMatchObject({ ahead, predecessor: { revision: 40n, holder: false } });
  });
});

describe("a request for a place", () => {
  const entry = entryOf(new FakeCluster().lease());

  test("to join writes nothing when its key is there", () => {
    expect(joinTxn([entry], []).compare).toEqual([{ kind: "created at", key: entry.key, revision: 0n }]);
    expect(joinTxn([entry], []).failure.map(({ kind }) => kind)).toEqual(["range"]);
  });

  test("to leave deletes this very place only: by its value first, by its create revision once that is known", () => {
    const early = leaveTxn(entry, []);
    const later = leaveTxn(entry.confirmed(50n), []);

    expect(early.compare).toEqual([{ kind: "value is", key: entry.key, value: entry.value }]);
    expect(later.compare).toEqual([{ kind: "created at", key: entry.key, revision: 50n }]);
    expect([early, later].map(({ failure }) => failure)).toEqual([[], []]);
  });
});
