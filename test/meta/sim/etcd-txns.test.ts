// The simulated etcd's transactions.
import { describe, expect, it } from "vitest";
import type { Compare, Operation, Txn } from "../../../src/etcd/port.js";
import { del, keysOf, put, setUp, txn } from "./etcd-setup.js";

const request = (...txns: readonly Txn[]) => ({ kind: "txns" as const, txns });
const DUPLICATE = "etcdserver: duplicate key given in txn request";
const TOO_MANY = "etcdserver: too many operations in txn request";

describe("a compare", () => {
  const holds = (compare: Compare): boolean => {
    const { run, txns } = setUp();
    run(put("a", "1"));
    run(put("a", "2"));
    run(put("b", ""));
    return txns(txn({ compare: [compare] }))[0]!.succeeded;
  };

  it.each<[Compare, boolean]>([
    [{ kind: "created at", key: "a", revision: 2n }, true],
    [{ kind: "created at", key: "a", revision: 3n }, false],
    [{ kind: "created at", key: "a", revision: 0n }, false],
    [{ kind: "created at", key: "x", revision: 0n }, true],
    [{ kind: "modified at", key: "a", revision: 3n }, true],
    [{ kind: "modified at", key: "x", revision: 0n }, true],
    [{ kind: "value is", key: "a", value: "2" }, true],
    [{ kind: "value is", key: "b", value: "" }, true],
    [{ kind: "value is", key: "x", value: "" }, false],
    [{ kind: "nothing in", key: "a", end: "b" }, false],
    [{ kind: "nothing in", key: "c", end: "\0" }, true],
  ])("%o: %s", (compare, expected) => {
    expect(holds(compare)).toBe(expected);
  });
});

describe("a transaction", () => {
  it("executes its failure branch if a compare fails", () => {
    const { txns, range } = setUp();
    const compare: Compare[] = [{ kind: "created at", key: "a", revision: 9n }];

    const [answer] = txns(txn({ compare, success: [put("a")], failure: [put("b")] }));

    expect(answer).toMatchObject({ succeeded: false, header: { revision: 2n }, ranges: [undefined] });
    expect(keysOf(range("a", { end: "z" }))).toEqual(["b"]);
  });

  it("reads what its operations before have written", () => {
    const { run } = setUp();
    run(put("a"));
    const all: Operation = { kind: "range", key: "a", end: "z" };

    const { ranges } = run(all, put("b"), all, del("a"), all);

    expect(ranges.map((range) => range && keysOf(range))).toEqual([
      ["a"],
      undefined,
      ["a", "b"],
      undefined,
      ["b"],
    ]);
  });

  it("takes an empty end for none if it can write, and for an open one otherwise", () => {
    const { run } = setUp();
    run(put("a"), put("b"));
    const range: Operation = { kind: "range", key: "a", end: "" };

    expect(run(range).ranges[0]).toMatchObject({ count: 2 });
    expect(run(range, del("x")).ranges[0]).toMatchObject({ count: 1 });
  });

  it("rejects a range of a revision that it makes itself", () => {
    const { refusal, etcd } = setUp();

    const text = refusal(request(txn({ success: [put("b"), { kind: "range", key: "a", revision: 2n }] })));

    expect(text).toBe("etcdserver: mvcc: required revision is a future revision");
    expect(etcd.store.revision).toBe(1n);
  });

  it("reports a missing lease before a missing revision in 3.4 and 3.5", () => {
    const text = (version: "3.5" | "3.6") =>
      setUp(version).refusal(
        request(txn({ success: [{ kind: "range", key: "a", revision: 9n }, put("b", "", 7n)] })),
      );

    expect(text("3.5")).toBe("etcdserver: requested lease not found");
    expect(text("3.6")).toBe("etcdserver: mvcc: required revision is a future revision");
  });

  it("may not write a key twice", () => {
    const { refusal } = setUp();

    expect(refusal(request(txn({ success: [put("a"), put("a")] })))).toBe(DUPLICATE);
    expect(refusal(request(txn({ failure: [put("a"), del("a")] })))).toBe(DUPLICATE);
  });

  it("has at most 128 operations in a branch", () => {
    const { run, refusal } = setUp();
    const puts = Array.from({ length: 129 }, (_, i) => put(`${i}`));

    expect(refusal(request(txn({ success: puts })))).toBe(TOO_MANY);
    expect(run(...puts.slice(1)).header.revision).toBe(2n);
  });
});

describe("several transactions in one request", () => {
  const NOTHING: Compare = { kind: "nothing in", key: "q/", end: "q0" };

  it("are each judged by the state before all of them, and share a revision", () => {
    const { txns, range } = setUp();

    const answers = txns(
      txn({ compare: [NOTHING], success: [put("q/1")] }),
      txn({ compare: [NOTHING], success: [put("q/2")] }),
    );

    expect(answers).toMatchObject([
      { succeeded: true, header: { revision: 2n } },
      { succeeded: true, header: { revision: 2n } },
    ]);
    expect(range("q/", { end: "q0" }).kvs.map(({ createRevision }) => createRevision)).toEqual([2n, 2n]);
  });

  it("without effect have the present revision", () => {
    const { txns, run } = setUp();
    run(put("a"));

    expect(txns(txn({}), txn({ success: [del("b")] }))).toMatchObject([
      { header: { revision: 2n } },
      { header: { revision: 2n } },
    ]);
  });

  it("may not put a key that one before puts or deletes, but may delete what one before puts", () => {
    const { refusal, txns, range, etcd } = setUp();

    expect(refusal(request(txn({ success: [put("a")] }), txn({ failure: [put("a")] })))).toBe(DUPLICATE);
    expect(refusal(request(txn({ success: [del("a")] }), txn({ success: [put("a")] })))).toBe(DUPLICATE);
    txns(txn({ success: [put("a")] }), txn({ success: [del("a")] }));
    expect(range("a").kvs).toEqual([]);
    expect(etcd.store.history[0]!.events.map(({ kind }) => kind)).toEqual(["PUT", "DELETE"]);
  });

  it("count as operations: those of each have what the number of transactions leaves of 128", () => {
    const { refusal, txns } = setUp();
    const of = (name: string, count: number) =>
      txn({ success: Array.from({ length: count }, (_, i) => put(`${name}${i}`)) });

    expect(txns(of("a", 126), of("b", 126))).toHaveLength(2);
    expect(refusal(request(of("a", 127), of("b", 1)))).toBe(TOO_MANY);
    expect(refusal(request(...Array.from({ length: 129 }, () => txn({}))))).toBe(TOO_MANY);
  });
});
