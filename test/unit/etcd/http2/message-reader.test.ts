import { setFlagsFromString } from "node:v8";
import { runInNewContext } from "node:vm";
import fc from "fast-check";
import { describe, expect, test } from "vitest";
import { MessageReader } from "../../../../src/etcd/http2/stream.js";
import { grpcMessage, uint32 } from "../../../support/servers/http2-peer.js";

setFlagsFromString("--expose-gc");
const collectGarbage = runInNewContext("gc") as () => void;

/** What is in use after a garbage collection. */
function usedBytes(): number {
  collectGarbage();
  const { heapUsed, external } = process.memoryUsage();
  return heapUsed + external;
}

const IGNORED = { message: () => {} };
const prefix = (bytes: number): Buffer => Buffer.concat([Buffer.of(0), uint32(bytes)]);

describe("the reader of gRPC messages", () => {
  test("finds the messages, however the data is cut", () => {
    fc.assert(
      fc.property(
        fc.array(fc.uint8Array({ maxLength: 40 }), { maxLength: 8 }),
        fc.array(fc.integer({ min: 0, max: 30 }), { minLength: 1 }),
        (contents, sizes) => {
          const data = Buffer.concat(contents.map((each) => grpcMessage(Buffer.from(each))));
          const reader = new MessageReader();
          const found: Buffer[] = [];
          for (let at = 0, n = 0; at < data.length; n++) {
            const end = n < 1000 ? at + sizes[n % sizes.length]! : data.length;
            reader.read(data.subarray(at, end), { message: (each) => found.push(Buffer.from(each)) });
            at = end;
          }
          expect(found).toEqual(contents.map((each) => Buffer.from(each)));
          expect(reader.incomplete).toBe(false);
        },
      ),
    );
  });

  test("is incomplete from the first byte of a message to its last", () => {
    const reader = new MessageReader();
    const states = [...grpcMessage("ab")].map((byte) => {
      reader.read(Buffer.of(byte), IGNORED);
      return reader.incomplete;
    });
    expect(states).toEqual([true, true, true, true, true, true, false]);
  });

  test.each([
    ["compressed", Buffer.of(1, 0, 0, 0, 1), /compressed/],
    ["announced with 4 GiB", prefix(0xffff_ffff), /4294967295/],
  ])(
    "refuses a message that is %s as soon as its prefix is there, in one piece or in five",
    (_, data, text) => {
      expect(() => new MessageReader().read(data, IGNORED)).toThrow(text);
      const reader = new MessageReader();
      expect(() => [...data].forEach((byte) => reader.read(Buffer.of(byte), IGNORED))).toThrow(text);
    },
  );

  test("keeps what has arrived of a long message, however small the pieces, and no more", () => {
    const reader = new MessageReader();
    const before = usedBytes();
    reader.read(prefix(200 * 2 ** 20), IGNORED);
    // As sockets read: each piece is a part of a chunk that holds much else.
    for (let n = 0; n < 500; n++) {
      const chunk = Buffer.alloc(64 * 1024, 1);
      for (let at = 0; at < 1000; at++) reader.read(chunk.subarray(at, at + 1), IGNORED);
    }
    // The chunks have 32 MiB.
    expect(usedBytes() - before).toBeLessThan(16e6);
  });
});
