import { inspect } from "node:util";
import { describe, expect, test } from "vitest";
import { pathIn } from "../../../src/observe/board-queues.js";
import { cursorOf, positionOf } from "../../../src/observe/list.js";
import { exactKey, SeenEntry, splitQueue } from "../../../src/lock/queue/seen-entry.js";
import { stateOf } from "../../../src/observe/inspect.js";
import { keyValue } from "../../support/fakes/fake-member.js";

const SINCE = "2026-01-02T03:04:05.678Z";
const value = (owner: string) => JSON.stringify({ owner, since: SINCE, id: "x" });
const state = (values: readonly string[], limit = 100, prefix = "") => {
  const path = `${prefix}jobs`;
  const entries = values.map((each, n) => {
    const kv = keyValue({
      key: `${path}/${n + 1}`,
      value: each,
      createRevision: BigInt(n + 1),
      leaseId: 0x6an,
    });
    return new SeenEntry(kv);
  });
  const ttls = new Map([[0x6an, 9000]]);
  return stateOf({ name: "jobs", path, revision: 2n ** 60n, split: splitQueue(path, entries), limit, ttls });
};

describe("a state", () => {
  test("is data that can be compared and sent as JSON", () => {
    const both = state([value("a"), ""]);

    expect(Object.keys(both)).toEqual(["name", "kind", "holders", "waiters", "total", "revision"]);
    expect(JSON.parse(JSON.stringify(both))).toMatchObject({
      kind: "mutex",
      holders: [
        { state: "holding", owner: "a", since: SINCE, revision: "1", leaseId: "106", ttlRemainingMs: 9000 },
      ],
      waiters: [{ state: "waiting", key: "jobs/2" }],
      total: { holders: 1, waiters: 1 },
      revision: (2n ** 60n).toString(),
    });
  });

  test("takes no key for that of a dead one whose lease only looks like one", () => {
    const leaseId = 0x4000_0000_0000_001fn;
    const stateWith = (last: string, text: string) =>
      new SeenEntry(keyValue({ key: `jobs/${last}`, leaseId, value: text })).contenderIn("jobs", "holding")
        .state;
    const own = leaseId.toString(16);
    const permit = JSON.stringify({ owner: "a", since: SINCE, id: "x", permits: 2 });

    expect(stateWith(own, value("a"))).toBe("dead");
    expect(stateWith(`${own}-2`, value("a"))).toBe("dead");
    expect(stateWith("6a1f", value("a"))).toBe("holding");
    expect([stateWith(own, ""), stateWith(own, permit)]).toEqual(["holding", "holding"]);
  });

  test("says that a sticky key may be kept while nobody holds, and takes the value of no candidate or dead one for that", () => {
    const sticky = JSON.stringify({ owner: "a", since: SINCE, id: "x", sticky: true });
    const both = state([sticky, value("b")]);
    const seen = (leaseId: bigint, text: string) =>
      new SeenEntry(keyValue({ key: `jobs/${leaseId.toString(16)}`, leaseId, value: text })).contenderIn(
        "jobs",
        "holding",
      ).sticky;

    expect([both.holders[0], both.waiters[0]]).toMatchObject([{ sticky: true }, { sticky: false }]);
    expect(inspect(both)).toMatch(/1 held or kept, 1 waiting\n {2}held or kept {2}a .*\n {2}waiting {2}b /);
    expect(seen(0x6an, sticky)).toBe(true);
    expect(seen(0x6an, JSON.stringify({ sticky: true }))).toBe(false);
    expect(seen(0x4000_0000_0000_001fn, sticky)).toBe(false);
  });

  test("counts those that it does not show", () => {
    const { waiters, total } = state(Array<string>(10).fill(""), 3);

    expect(waiters).toHaveLength(3);
    expect(total).toEqual({ holders: 1, waiters: 9 });
  });

  test("is shown in a line for each contender, without any control character", () => {
    const reason = JSON.stringify({ owner: "web-1", reason: "\u202edeploy\n" });
    const text = inspect(state([value("host\u001b[2J\n\u202e"), reason, ""], 1));

    expect(text.split("\n")).toHaveLength(4);
    expect(text).toContain("1 holding, 2 waiting");
    expect(text).toContain('because "\\u202edeploy\\u000a"  revision');
    expect(text).toContain("host\\u001b[2J\\u000a\\u202e");
    expect(text).toContain(`lease 6a  since ${SINCE}  9 s left`);
    expect(text).toContain("and 1 more");
  });

  test("has 256 bytes of an owner at most, whole characters, and no date that is none", () => {
    const [long] = state([value("é".repeat(300))]).holders;
    const [odd] = state([
      JSON.stringify({ owner: "\ud800".repeat(300), since: "x".repeat(100), id: "" }),
    ]).holders;

    expect(long?.owner).toBe("é".repeat(128));
    expect(Buffer.byteLength(odd?.owner ?? "")).toBeLessThanOrEqual(256);
    expect(odd?.since).toBeUndefined();
  });

  test("knows the bytes of a key that is no text", () => {
    const key = Buffer.from("é/j/?");
    key[key.length - 1] = 0xff;
    const split = splitQueue("é/j", [new SeenEntry({ ...keyValue({}), key })]);
    const { holders } = stateOf({ name: "j", path: "é/j", revision: 1n, split, limit: 1 });

    expect(holders[0]?.key).toBe("é/j/\ufffd");
    expect(exactKey(holders[0]!)).toEqual(key);
  });

  test("has the names without the prefix of the cluster, and the keys with it", () => {
    const { name, holders } = state([""], 1, "prod/");

    expect(name).toBe("jobs");
    expect(holders).toMatchObject([{ name: "jobs", key: "prod/jobs/1" }]);
    expect(exactKey(holders[0]!)).toBe("prod/jobs/1");
  });
});

describe("a cursor", () => {
  const position = {
    revision: 2n ** 60n,
    key: Buffer.from("jobs/é\xff\0", "latin1"),
    above: ["jobs", "jobs/é"],
  };

  test("is read as it was written, for the same prefix only", () => {
    const cursor = cursorOf("jobs/", position);

    expect(positionOf("jobs/", cursor)).toEqual(position);
    expect(positionOf("jobs/", undefined)).toBeUndefined();
    expect(() => positionOf("jobs", cursor)).toThrow(RangeError);
  });

  const forged = (...fields: unknown[]) => Buffer.from(JSON.stringify(fields)).toString("base64url");
  test.each([
    ["nothing", ""],
    ["no JSON", "x"],
    ["JSON that is no list", Buffer.from("{}").toString("base64url")],
    ["another version", forged(2, "jobs/", "1", "am9icy8=", [])],
    ["a key outside the prefix", forged(1, "jobs/", "1", "eA==", [])],
    ["no revision", forged(1, "jobs/", "-1", "am9icy8=", [])],
    ["a revision over 64 bits", forged(1, "jobs/", "9".repeat(19), "am9icy8=", [])],
    ["names that are none", forged(1, "jobs/", "1", "am9icy8=", [1])],
  ])("with %s is rejected", (_, cursor) => {
    expect(() => positionOf("jobs/", cursor)).toThrow(
      /Expected cursor to be a cursor that list\(\) has returned/,
    );
  });
});

test.each([
  ["jobs/6a1f", "jobs"],
  ["jobs/read/6a1f", "jobs"],
  ["jobs/write/6a1f", "jobs"],
  ["jobs/a/6a1f", "jobs/a"],
  ["read/6a1f", "read"],
  ["config", undefined],
  ["/registry/pods/x", undefined],
  ["jobs//x", undefined],
])("the key %s belongs to the name %s, with any prefix of the cluster", (key, name) => {
  expect(pathIn(Buffer.from(key), "")).toBe(name);
  for (const prefix of ["prod/", "/", "read/", "a/read/"])
    expect(pathIn(Buffer.from(`${prefix}${key}`), prefix)).toBe(name && `${prefix}${name}`);
});
