// What the requests say is compared with etcd3's in fuzz-codec.test.ts.
import { describe, expect, test } from "vitest";
import { encodeKeepalive, encodeRange, encodeTxns } from "../../../../src/etcd/http2/codec-write.js";
import type { Txn } from "../../../../src/etcd/port.js";

describe("requests after one another", () => {
  test("each have bytes of their own", () => {
    const requests = Array.from({ length: 2000 }, (_, i) => encodeRange({ key: `key ${i}` }));

    expect(requests.map((request) => request.subarray(7).toString())).toEqual(
      requests.map((__, i) => `key ${i}`),
    );
  });

  test("are whole after one that could not be encoded", () => {
    const flawed = {
      queues: [],
      compare: [],
      success: [{ kind: "put", key: "k", value: "v", leaseId: {} }],
      failure: [],
    };

    expect(() => encodeTxns([flawed as unknown as Txn])).toThrow(Error);
    expect(encodeKeepalive(1n).toString("hex")).toBe("00000000020801");
  });
});
