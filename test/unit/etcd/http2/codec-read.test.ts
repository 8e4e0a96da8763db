// What is read in answers is compared with what etcd3 reads in fuzz-codec.test.ts.
import { describe, expect, test } from "vitest";
import { decodeRange } from "../../../../src/etcd/http2/codec-read.js";
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
const NO_RANGE = { kvs: [], more: false, count: 0 };

describe("an answer", () => {
  test("has keys of its own: the bytes that were received may be overwritten", () => {
    const long = "k".repeat(100);
    const body = join(header(41n), bytesField(2, keyValue), bytesField(2, bytesField(1, long)));
    const { kvs } = decodeRange(body);
    body.fill(0);

    expect(kvs.map(({ key }) => key.toString())).toEqual(["k", long]);
  });
});

describe("a field", () => {
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
