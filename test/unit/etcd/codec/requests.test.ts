import { describe, expect, test } from "vitest";
import {
  encodeAuthenticate,
  encodeGrant,
  encodeKeepalive,
  encodeRange,
  encodeRevoke,
  encodeTimeToLive,
  encodeTxns,
  encodeWatchCancel,
  encodeWatchCreate,
  encodeWatchProgress,
} from "../../../../src/etcd/codec/requests.js";
import type { Txn } from "../../../../src/etcd/port.js";

/** In hexadecimal: the flag, the length and the message. */
const hex = (request: Buffer) =>
  [request.subarray(0, 1), request.subarray(1, 5), request.subarray(5)].map((part) => part.toString("hex"));
const framed = (...fields: string[]) => {
  const message = fields.join("").replaceAll(" ", "");
  return ["00", (message.length / 2).toString(16).padStart(8, "0"), message];
};

const NOTHING: Txn = { queues: [], compare: [], success: [], failure: [] };
const PUT: Txn = { ...NOTHING, success: [{ kind: "put", key: "k", value: "v", leaseId: 5n }] };
const DELETE: Txn = { ...NOTHING, failure: [{ kind: "delete", key: "k" }] };

describe("a transaction", () => {
  test("has its compares, each with the revision or value that it names", () => {
    const request = encodeTxns([
      {
        ...NOTHING,
        compare: [
          { kind: "created at", key: "a", revision: 0n },
          { kind: "modified at", key: "a", revision: 300n },
          { kind: "nothing in", key: "a", end: "b" },
          { kind: "value is", key: "a", value: "" },
        ],
      },
    ]);

    expect(hex(request)).toEqual(
      framed(
        "0a 07 1001 1a0161 2800",
        "0a 08 1002 1a0161 30ac02",
        "0a 0b 1001 1a0161 2800 82040162",
        "0a 07 1003 1a0161 3a00",
      ),
    );
  });

  test("has the operations of both branches", () => {
    const { failure } = DELETE;
    const request = encodeTxns([{ ...PUT, failure: [...failure, { kind: "range", key: "k", limit: 1 }] }]);

    expect(hex(request)).toEqual(
      framed("12 0a 12 08 0a016b 120176 1805", "1a 05 1a 03 0a016b", "1a 07 0a 05 0a016b 1801"),
    );
  });

  test("is put into another one when it is sent with others", () => {
    expect(hex(encodeTxns([PUT, DELETE]))).toEqual(
      framed("12 0e 22 0c 120a 1208 0a016b 120176 1805", "12 09 22 07 1a05 1a03 0a016b"),
    );
    expect(hex(encodeTxns([]))).toEqual(framed());
  });

  test("of any size has the length of each part before it", () => {
    const value = "é".repeat(10_000);
    const request = encodeTxns([{ ...NOTHING, success: [{ kind: "put", key: "k", value, leaseId: 0n }] }]);

    expect(hex(request)).toEqual(
      framed("12 ad9c01 12 a99c01 0a016b", `12 a09c01 ${Buffer.from(value).toString("hex")}`, "1800"),
    );
  });
});

describe("a range", () => {
  test("has only what is asked for", () => {
    expect(hex(encodeRange({ key: Buffer.from([0xff]) }))).toEqual(framed("0a01ff"));
    expect(hex(encodeRange({ key: "a", serializable: false }))).toEqual(framed("0a0161"));
  });

  test("has its end, limit, order, consistency and filter", () => {
    const range = { key: "a", end: "b", limit: 2, maxCreateRevision: 7n, serializable: true } as const;

    expect(hex(encodeRange({ ...range, order: "oldest first" }))).toEqual(
      framed("0a0161 120162 1802 2801 3002 3801 6807"),
    );
    expect(hex(encodeRange({ key: "a", order: "newest first" }))).toEqual(framed("0a0161 2802 3002"));
    expect(
      hex(encodeRange({ key: "a", end: Buffer.from([0xc0]), limit: 1, revision: 300n, keysOnly: true })),
    ).toEqual(framed("0a0161 1201c0 1801 20ac02 4001"));
  });
});

describe("a lease", () => {
  test("is named by 64 bits, negative ones too", () => {
    expect(hex(encodeRevoke(2n ** 63n - 1n))).toEqual(framed("08 ffffffffffffffff7f"));
    expect(hex(encodeRevoke(-1n))).toEqual(framed("08 ffffffffffffffffff01"));
    expect(hex(encodeKeepalive(2n ** 53n + 1n))).toEqual(framed("08 8180808080808010"));
    expect(hex(encodeTimeToLive(2n ** 32n))).toEqual(framed("08 8080808010 1001"));
    expect(hex(encodeTimeToLive(5n, { withoutKeys: true }))).toEqual(framed("0805"));
    expect(hex(encodeGrant(128n, 15))).toEqual(framed("080f 108001"));
  });
});

describe("a password", () => {
  test("is sent as UTF-8 beside the name", () => {
    expect(hex(encodeAuthenticate("root", "ß"))).toEqual(framed("0a04726f6f74 1202c39f"));
  });
});

describe("a watch", () => {
  const watch = { watchId: 3, key: "a", startRevision: 0n } as const;

  test("is created from a revision, without the events that are not wanted", () => {
    expect(hex(encodeWatchCreate({ ...watch, events: "ALL" }))).toEqual(framed("0a07 0a0161 1800 3803"));
    expect(hex(encodeWatchCreate({ ...watch, events: "DELETE" }))).toEqual(
      framed("0a0a 0a0161 1800 2a0100 3803"),
    );
    expect(hex(encodeWatchCreate({ ...watch, end: "b", startRevision: 200n, events: "PUT" }))).toEqual(
      framed("0a0e 0a0161 120162 18c801 2a0101 3803"),
    );
  });

  test("is cancelled by its ID, and the stream is asked for its progress", () => {
    expect(hex(encodeWatchCancel(200))).toEqual(framed("1203 08c801"));
    expect(hex(encodeWatchProgress())).toEqual(framed("1a00"));
  });
});

describe("requests after one another", () => {
  test("each have bytes of their own", () => {
    const requests = Array.from({ length: 2000 }, (_, i) => encodeRange({ key: `key ${i}` }));

    expect(requests.map((request) => request.subarray(7).toString())).toEqual(
      requests.map((__, i) => `key ${i}`),
    );
  });

  test("are whole after one that could not be encoded", () => {
    const flawed = { ...PUT, success: [{ kind: "put", key: "k", value: "v", leaseId: {} }] };

    expect(() => encodeTxns([flawed as unknown as Txn])).toThrow(Error);
    expect(hex(encodeKeepalive(1n))).toEqual(framed("0801"));
  });
});
