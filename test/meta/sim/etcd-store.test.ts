// The simulated etcd's keys and revisions.
import { describe, expect, it } from "vitest";
import { type Change, Store } from "../../sim/etcd/store.js";
import { del, keysOf, put, setUp } from "./etcd-setup.js";

describe("a put", () => {
  it("keeps the create revision of a key, and counts its versions", () => {
    const { run, range, etcd } = setUp();
    run(put("a", "1"));
    run(put("b"));
    run(put("a", "2"));

    expect(range("a").kvs).toEqual([
      { key: Buffer.from("a"), value: "2", createRevision: 2n, modRevision: 4n, leaseId: 0n },
    ]);
    expect(etcd.store.versionOf("a")).toBe(2n);
  });

  it("creates the key anew after a deletion", () => {
    const { run, range, etcd } = setUp();
    run(put("a"));
    run(del("a"));
    run(put("a"));

    expect(range("a").kvs).toMatchObject([{ createRevision: 4n, modRevision: 4n }]);
    expect(etcd.store.versionOf("a")).toBe(1n);
  });

  it("with a lease that does not exist is rejected, and changes nothing", () => {
    const { refusal, etcd } = setUp();

    const text = refusal({
      ...{
        kind: "txns",
        txns: [{ queues: [], compare: [], success: [put("b"), put("a", "", 7n)], failure: [] }],
      },
    });

    expect(text).toBe("etcdserver: requested lease not found");
    expect(etcd.store.revision).toBe(1n);
    expect(etcd.store.keys).toEqual([]);
  });
});

describe("a deletion", () => {
  it("that finds nothing makes no revision", () => {
    const { run } = setUp();
    run(put("a"));

    expect(run(del("b")).header.revision).toBe(2n);
    expect(run(del("a")).header.revision).toBe(3n);
    expect(run(del("a")).header.revision).toBe(3n);
  });
});

describe("a range", () => {
  it("has the keys before its end, in the order of their bytes", () => {
    const { run, range } = setUp();
    // U+FFFD comes after the surrogates of U+1F600 in UTF-16, but before it in UTF-8.
    run(put("a"), put("\u{1f600}"), put("b"), put("�"), put("c"));

    expect(keysOf(range("a", { end: "c" }))).toEqual(["a", "b"]);
    expect(keysOf(range("b", { end: "\0" }))).toEqual(["b", "c", "�", "\u{1f600}"]);
    expect(keysOf(range("c", { end: "a" }))).toEqual([]);
  });

  it("sorts by create revision in both directions", () => {
    const { run, range } = setUp();
    for (const key of ["b", "c", "a"]) run(put(key));

    expect(keysOf(range("a", { end: "z", order: "oldest first" }))).toEqual(["b", "c", "a"]);
    expect(keysOf(range("a", { end: "z", order: "newest first" }))).toEqual(["a", "c", "b"]);
  });

  it("filters before it applies the limit, and counts the whole range", () => {
    const { run, range } = setUp();
    for (const key of ["d", "c", "b", "a"]) run(put(key));
    const options = { end: "z", maxCreateRevision: 3n };

    expect(range("a", { ...options, limit: 2 })).toMatchObject({ more: false, count: 4 });
    expect(keysOf(range("a", { ...options, limit: 2 }))).toEqual(["c", "d"]);
    const first = range("a", { ...options, limit: 1, order: "newest first" });
    expect(keysOf(first)).toEqual(["c"]);
    expect(first).toMatchObject({ more: true, count: 4 });
  });

  it("reads the past, until that is compacted", () => {
    const { run, range, refusal, ask } = setUp();
    run(put("a", "1"));
    run(put("a", "2"));
    run(del("a"));
    run(put("b"));
    const at = (revision: bigint) => ({ kind: "range" as const, range: { key: "a", revision } });

    expect(range("a", { revision: 2n }).kvs).toMatchObject([{ value: "1" }]);
    expect(range("a", { revision: 4n })).toMatchObject({ kvs: [], header: { revision: 5n } });
    expect(refusal(at(6n))).toBe("etcdserver: mvcc: required revision is a future revision");
    ask({ kind: "compact", revision: 3n });
    expect(range("a", { revision: 3n }).kvs).toMatchObject([{ value: "2" }]);
    expect(refusal(at(2n))).toBe("etcdserver: mvcc: required revision has been compacted");
  });

  it("of keys only leaves the values out, and in 3.7 the leases", () => {
    const leaseOf = (version: "3.6" | "3.7") => {
      const { run, range, ask } = setUp(version);
      ask({ kind: "grant", leaseId: 7n, ttlSeconds: 5 });
      run(put("a", "1", 7n));
      return range("a", { keysOnly: true }).kvs;
    };

    expect(leaseOf("3.6")).toMatchObject([{ value: "", leaseId: 7n }]);
    expect(leaseOf("3.7")).toMatchObject([{ value: "", leaseId: 0n }]);
  });

  it.each([
    ["3.6", ["b", "c"]],
    ["3.7", ["b"]],
  ] as const)("with an end that is empty is open up to 3.6 (%s)", (version, expected) => {
    const { run, range } = setUp(version);
    for (const key of ["a", "b", "c"]) run(put(key));

    expect(keysOf(range("b", { end: "" }))).toEqual(expected);
  });
});

describe("a change that another store repeats", () => {
  it("leaves the same keys, versions, past and notifications", () => {
    const [first, second] = [new Store(), new Store()];
    const seen: Change[] = [];
    second.onChange((change) => seen.push(change));
    first.write(() => {
      for (const key of ["a", "b"]) first.put({ key, value: "1", leaseId: 7n });
    });
    first.write(() => first.put({ key: "a", value: "2", leaseId: 0n }));
    first.write(() => first.delete("b"));

    for (const change of first.history) second.repeat(change);

    const stateOf = (store: Store) => ({
      keys: store.keys,
      versions: ["a", "b"].map((key) => store.versionOf(key)),
      past: [2n, 3n, 4n].map((revision) => store.read({ key: "a", end: "" }, revision)),
      history: store.history,
      revision: store.revision,
    });
    expect(stateOf(second)).toEqual(stateOf(first));
    expect(stateOf(second)).toMatchObject({ versions: [2n, 0n], revision: 4n });
    expect(seen).toEqual(first.history);
  });
});
