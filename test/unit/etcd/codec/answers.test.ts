import { describe, expect, test } from "vitest";
import {
  decodeLease,
  decodeRange,
  decodeTimeToLive,
  decodeToken,
  decodeTxns,
  decodeWatch,
} from "../../../../src/etcd/codec/answers.js";
import {
  bytesField,
  fixed32Field,
  fixed64Field,
  integerField,
  varint,
} from "../../../support/fixtures/wire-format.js";

const join = (...fields: Buffer[]) => Buffer.concat(fields);
const header = (revision: bigint) =>
  bytesField(
    1,
    join(integerField(1, 2n ** 64n - 1n), integerField(2, 9), integerField(3, revision), integerField(4, 2)),
  );
const HEADER = { clusterId: "18446744073709551615", memberId: "9", revision: 41n, raftTerm: 2n };
const keyValue = join(
  bytesField(1, "k"),
  integerField(2, 40),
  integerField(3, 41),
  integerField(4, 2),
  bytesField(5, "vé"),
  integerField(6, -2n),
);
const KEY_VALUE = {
  key: Buffer.from("k"),
  value: "vé",
  createRevision: 40n,
  modRevision: 41n,
  leaseId: -2n,
};
const range = join(bytesField(2, keyValue), integerField(3, 1), integerField(4, 300));
const RANGE = { kvs: [KEY_VALUE], more: true, count: 300 };
const NO_RANGE = { kvs: [], more: false, count: 0 };

describe("an answer", () => {
  test("to a range has the keys, whether there are more, and how many", () => {
    expect(decodeRange(join(header(41n), range))).toStrictEqual({ header: HEADER, ...RANGE });
    expect(decodeRange(header(41n))).toStrictEqual({ header: HEADER, ...NO_RANGE });
  });

  test("to a transaction has one part for each operation", () => {
    const put = bytesField(3, bytesField(2, ""));
    const body = join(header(41n), integerField(2, 1), bytesField(3, bytesField(1, range)), put);

    expect(decodeTxns(body, 1)).toStrictEqual([
      { header: HEADER, succeeded: true, ranges: [RANGE, undefined] },
    ]);
  });

  test("to several transactions has one part for each, and the header of all", () => {
    const failed = bytesField(3, bytesField(4, bytesField(3, bytesField(1, ""))));
    const succeeded = bytesField(3, bytesField(4, integerField(2, 1)));

    expect(decodeTxns(join(failed, succeeded, header(41n)), 2)).toStrictEqual([
      { header: HEADER, succeeded: false, ranges: [NO_RANGE] },
      { header: HEADER, succeeded: true, ranges: [] },
    ]);
    expect(() => decodeTxns(join(header(41n), failed), 2)).toThrow("not as many answers as transactions");
    expect(() => decodeTxns(join(header(41n), bytesField(3, ""), failed), 2)).toThrow(
      "not the answer to a transaction",
    );
  });

  test("about a lease has its ID and time to live, which is negative for a lease that etcd does not have", () => {
    const body = join(header(41n), integerField(2, 2n ** 63n - 1n), integerField(3, -1n), bytesField(5, "k"));
    const lease = { header: HEADER, leaseId: 2n ** 63n - 1n, ttlSeconds: -1 };

    expect(decodeLease(body)).toStrictEqual(lease);
    expect(decodeTimeToLive(body)).toStrictEqual({ ...lease, keys: [Buffer.from("k")] });
  });

  test("of a watch has its events", () => {
    const deleted = bytesField(11, join(integerField(1, 1), bytesField(2, keyValue)));
    const put = bytesField(11, bytesField(2, ""));

    expect(decodeWatch(join(header(41n), integerField(2, 7), deleted, put))).toStrictEqual({
      header: HEADER,
      watchId: 7,
      created: false,
      cancelled: false,
      cancelReason: "",
      compacted: false,
      events: [
        { kind: "DELETE", kv: KEY_VALUE },
        {
          kind: "PUT",
          kv: { key: Buffer.alloc(0), value: "", createRevision: 0n, modRevision: 0n, leaseId: 0n },
        },
      ],
    });
    expect(() => decodeWatch(join(header(41n), bytesField(11, integerField(1, 1))))).toThrow(
      "an event without a key",
    );
  });

  test("of a watch says that it was created, or cancelled and why", () => {
    const created = decodeWatch(join(header(41n), integerField(3, 1)));
    const cancelled = decodeWatch(
      join(header(41n), integerField(2, -1n), integerField(4, 1), integerField(5, 30), bytesField(6, "old")),
    );

    expect(created).toMatchObject({ created: true, cancelled: false, compacted: false });
    expect(cancelled).toMatchObject({ watchId: -1, cancelled: true, cancelReason: "old", compacted: true });
  });

  test("with a token may have no header", () => {
    expect(decodeToken(bytesField(2, "name.17"))).toBe("name.17");
    expect(decodeToken(Buffer.alloc(0))).toBe("");
  });

  test("without a header throws", () => {
    for (const decode of [decodeRange, decodeLease, decodeTimeToLive, decodeWatch])
      expect(() => decode(range)).toThrow("an answer without a header");
    expect(() => decodeTxns(range, 1)).toThrow("an answer without a header");
  });

  test("has keys of its own: the bytes that were received may be overwritten", () => {
    const long = "k".repeat(100);
    const body = join(header(41n), bytesField(2, keyValue), bytesField(2, bytesField(1, long)));
    const { kvs } = decodeRange(body);
    body.fill(0);

    expect(kvs.map(({ key }) => key.toString())).toEqual(["k", long]);
  });
});

describe("a field", () => {
  test("that is unknown is skipped, whatever its type", () => {
    const unknown = join(
      integerField(100, -1n),
      fixed64Field(101),
      fixed32Field(102),
      bytesField(2 ** 29 - 1, "x"),
    );
    const body = join(unknown, header(41n), bytesField(2, join(unknown, keyValue)), unknown);

    expect(decodeRange(body)).toStrictEqual({ ...RANGE, header: HEADER, more: false, count: 0 });
  });

  test.each([
    ["more", fixed64Field(3)],
    ["count", bytesField(4, "x")],
    ["kvs", fixed32Field(2)],
  ])("%s of another type than etcd's makes the answer unusable", (name, field) => {
    expect(() => decodeRange(join(header(41n), field))).toThrow(`the field ${name} has a wrong type`);
  });

  test("that occurs twice has its last value", () => {
    const body = join(header(7n), integerField(4, 1), header(41n), integerField(4, 2));

    expect(decodeRange(body)).toStrictEqual({ header: HEADER, ...NO_RANGE, count: 2 });
  });
});

describe("bytes that are no message", () => {
  const isRejected = (bytes: Buffer, reason: string) =>
    expect(() => decodeRange(join(header(41n), bytes))).toThrow(reason);

  test("throw where a message is cut off", () => {
    const body = join(header(41n), bytesField(2, keyValue));

    for (let length = header(41n).length + 1; length < body.length; length++)
      expect(() => decodeRange(body.subarray(0, length)), `${length}`).toThrow("the message is cut off");
    isRejected(fixed64Field(100).subarray(0, -1), "the message is cut off");
    isRejected(fixed32Field(100).subarray(0, -1), "the message is cut off");
  });

  test("throw where a length leads out of the message that it is in", () => {
    for (const length of [5, 2 ** 31, 2 ** 32 - 1, 2 ** 32, 2n ** 63n, -1n]) {
      isRejected(join(varint(2 * 8 + 2), varint(length)), "the message is cut off");
      // The key would end within the body, but not within its message.
      const inner = join(varint(10), varint(length));
      isRejected(join(bytesField(2, inner), bytesField(100, Buffer.alloc(64))), "the message is cut off");
    }
  });

  test("throw where an integer leads out of the message that it is in", () => {
    isRejected(join(bytesField(2, Buffer.from([0x10, 0x80])), integerField(4, 1)), "the message is cut off");
  });

  test("throw for an integer of eleven bytes, not for one of ten", () => {
    const padded = (bytes: number) => Buffer.from([0x20, ...Array<number>(bytes - 1).fill(0x80), 0]);

    expect(decodeRange(join(header(41n), padded(10)))).toStrictEqual({ header: HEADER, ...NO_RANGE });
    isRejected(padded(11), "an integer longer than ten bytes");
  });

  test("throw for a field number that cannot be, and for groups", () => {
    isRejected(Buffer.from([0x00, 0x01]), "a field with an impossible number");
    isRejected(join(varint(2n ** 32n), varint(0)), "a field with an impossible number");
    for (const type of [3, 4, 6, 7])
      isRejected(Buffer.from([64 + type]), "a field with an unknown wire type");
  });
});
