import { describe, expect, test } from "vitest";
import {
  dataOf,
  errorNameOf,
  FLAG,
  type Frame,
  FRAME,
  FRAME_HEADER_BYTES,
  FrameReader,
  goawayFrame,
  headerBlockOf,
  headersFrames,
  Http2Error,
  pingAckFrame,
  pingFrame,
  rstStreamFrame,
  SETTING,
  settingsAckFrame,
  settingsFrame,
  windowUpdateFrame,
  writeFrameHeader,
} from "../../../../../src/etcd/http2/frames.js";
import { codeOf, hex } from "../../../../support/fixtures/http2.js";

const MAX_FRAME = 64;

type Read = readonly [type: number, flags: number, streamId: number, payload: string];

/** A reader, and copies of the frames that it has delivered. */
function newReader() {
  const frames: Read[] = [];
  const handler = {
    frame: ({ type, flags, streamId, payload }: Frame) => {
      frames.push([type, flags, streamId, payload.toString("hex")]);
    },
  };
  return { frames, reader: new FrameReader(handler, MAX_FRAME) };
}

function rawFrame(type: number, flags: number, streamId: number, payload: Buffer): Buffer {
  const frame = Buffer.alloc(FRAME_HEADER_BYTES + payload.length);
  writeFrameHeader(frame, 0, { type, flags, streamId, length: payload.length });
  payload.copy(frame, FRAME_HEADER_BYTES);
  return frame;
}

const OPAQUE = hex("0102030405060708");
/** Each kind of frame, the bytes that it must have, and what a reader must make of them. */
const KINDS: Readonly<Record<string, readonly [frame: Buffer, bytes: string, read: readonly Read[]]>> = {
  settings: [
    settingsFrame([
      [SETTING.HEADER_TABLE_SIZE, 0],
      [SETTING.INITIAL_WINDOW_SIZE, 0x7fffffff],
    ]),
    "00000c 04 00 00000000 0001 00000000 0004 7fffffff",
    [[FRAME.SETTINGS, 0, 0, "00010000000000047fffffff"]],
  ],
  "settings ack": [settingsAckFrame(), "000000 04 01 00000000", [[FRAME.SETTINGS, FLAG.ACK, 0, ""]]],
  ping: [
    pingFrame(OPAQUE),
    "000008 06 00 00000000 0102030405060708",
    [[FRAME.PING, 0, 0, OPAQUE.toString("hex")]],
  ],
  "ping ack": [
    pingAckFrame(OPAQUE),
    "000008 06 01 00000000 0102030405060708",
    [[FRAME.PING, FLAG.ACK, 0, OPAQUE.toString("hex")]],
  ],
  "window update": [
    windowUpdateFrame(0x7ffffffd, 0x12345678),
    "000004 08 00 7ffffffd 12345678",
    [[FRAME.WINDOW_UPDATE, 0, 0x7ffffffd, "12345678"]],
  ],
  "rst stream": [
    rstStreamFrame(3, "CANCEL"),
    "000004 03 00 00000003 00000008",
    [[FRAME.RST_STREAM, 0, 3, "00000008"]],
  ],
  goaway: [
    goawayFrame(5, "ENHANCE_YOUR_CALM", "ö"),
    "00000a 07 00 00000000 00000005 0000000b c3b6",
    [[FRAME.GOAWAY, 0, 0, "000000050000000bc3b6"]],
  ],
  headers: [
    headersFrames(1, hex("828486"), { endStream: true, maxFrameSize: 3 }),
    "000003 01 05 00000001 828486",
    [[FRAME.HEADERS, FLAG.END_STREAM | FLAG.END_HEADERS, 1, "828486"]],
  ],
  "headers without a block": [
    headersFrames(1, Buffer.alloc(0), { endStream: false, maxFrameSize: 3 }),
    "000000 01 04 00000001",
    [[FRAME.HEADERS, FLAG.END_HEADERS, 1, ""]],
  ],
  "headers with continuation": [
    headersFrames(1, hex("01020304050607"), { endStream: true, maxFrameSize: 3 }),
    "000003 01 01 00000001 010203 000003 09 00 00000001 040506 000001 09 04 00000001 07",
    [
      [FRAME.HEADERS, FLAG.END_STREAM, 1, "010203"],
      [FRAME.CONTINUATION, 0, 1, "040506"],
      [FRAME.CONTINUATION, FLAG.END_HEADERS, 1, "07"],
    ],
  ],
  data: [
    rawFrame(FRAME.DATA, FLAG.END_STREAM, 0x01020304, Buffer.alloc(MAX_FRAME, 7)),
    `000040 00 01 01020304 ${"07".repeat(MAX_FRAME)}`,
    [[FRAME.DATA, FLAG.END_STREAM, 0x01020304, "07".repeat(MAX_FRAME)]],
  ],
  unknown: [rawFrame(0xfa, 0xff, 9, hex("00")), "000001 fa ff 00000009 00", [[0xfa, 0xff, 9, "00"]]],
};
const kinds = Object.entries(KINDS).map(([name, [frame, bytes, read]]) => ({ name, frame, bytes, read }));

describe("a frame", () => {
  test.each(kinds)("of $name has the bytes of RFC 9113", ({ frame, bytes }) => {
    expect(frame.toString("hex")).toBe(bytes.replaceAll(" ", ""));
  });

  test.each(kinds)("of $name is read from any two chunks", ({ frame, read }) => {
    for (let at = 0; at <= frame.length; at++) {
      const { frames, reader } = newReader();
      reader.read(frame.subarray(0, at));
      reader.read(frame.subarray(at));

      expect(frames, `split at ${at}`).toEqual(read);
    }
  });

  test("header can describe a payload of 2^24 - 1 bytes at any offset", () => {
    const target = Buffer.alloc(11, 0xee);
    writeFrameHeader(target, 1, { type: FRAME.DATA, flags: 0, streamId: 0x7fffffff, length: 0xffffff });

    expect(target.toString("hex")).toBe("eeffffff00007fffffffee");
  });

  test("of ping needs 8 bytes", () => {
    expect(() => pingFrame(Buffer.alloc(7))).toThrow(RangeError);
    expect(() => pingAckFrame(Buffer.alloc(9))).toThrow(RangeError);
  });
});

describe("a frame reader", () => {
  const all = Buffer.concat(kinds.map(({ frame }) => frame));
  const allRead = kinds.flatMap(({ read }) => read);

  test("reads all kinds in a row from chunks of any size", () => {
    for (let size = 1; size <= all.length; size++) {
      const { frames, reader } = newReader();
      for (let at = 0; at < all.length; at += size) reader.read(all.subarray(at, at + size));

      expect(frames, `chunks of ${size}`).toEqual(allRead);
    }
  });

  test("does not copy the payload of a frame that is whole in its chunk", () => {
    const chunk = rawFrame(FRAME.DATA, 0, 1, hex("aabb"));
    let payload: Buffer | undefined;
    new FrameReader({ frame: (frame) => (payload = frame.payload) }, MAX_FRAME).read(chunk);
    chunk[FRAME_HEADER_BYTES] = 0xcc;

    expect(payload?.toString("hex")).toBe("ccbb");
  });

  test("does not depend on a chunk after it has read it", () => {
    const { frames, reader } = newReader();
    const frame = rawFrame(FRAME.DATA, 0, 1, hex("aabb"));
    for (const at of [...frame.keys()]) {
      const chunk = Buffer.from(frame.subarray(at, at + 1));
      reader.read(chunk);
      chunk.fill(0);
    }

    expect(frames).toEqual([[FRAME.DATA, 0, 1, "aabb"]]);
  });

  test("keeps no chunk in memory once it has read it", () => {
    const seen: Frame[] = [];
    const reader = new FrameReader({ frame: (frame) => seen.push(frame) }, MAX_FRAME);
    reader.read(rawFrame(FRAME.DATA, 0, 1, hex("aabb")));

    expect(seen.map(({ payload }) => payload.length)).toEqual([0]);
  });

  test("ignores the reserved bit of a stream ID", () => {
    const { frames, reader } = newReader();
    reader.read(hex("000000 00 00 80000001"));

    expect(frames).toEqual([[FRAME.DATA, 0, 1, ""]]);
  });

  test("throws on a frame above the limit as soon as it has its header", () => {
    const header = hex("000041 00 00 00000001");
    const { frames, reader } = newReader();
    reader.read(header.subarray(0, -1));

    expect(codeOf(() => reader.read(header.subarray(-1)))).toBe("FRAME_SIZE_ERROR");
    expect(codeOf(() => newReader().reader.read(header))).toBe("FRAME_SIZE_ERROR");
    expect(frames).toEqual([]);
  });

  test("delivers what came before the frame that is too large", () => {
    const { frames, reader } = newReader();
    const chunk = Buffer.concat([pingFrame(OPAQUE), hex("ffffff 00 00 00000001")]);

    expect(codeOf(() => reader.read(chunk))).toBe("FRAME_SIZE_ERROR");
    expect(frames.map(([type]) => type)).toEqual([FRAME.PING]);
  });

  test("passes on what the handler throws, and delivers nothing after it", () => {
    let count = 0;
    const reader = new FrameReader(
      {
        frame: () => {
          count++;
          throw new Http2Error("PROTOCOL_ERROR", "no");
        },
      },
      MAX_FRAME,
    );

    expect(codeOf(() => reader.read(all))).toBe("PROTOCOL_ERROR");
    expect(count).toBe(1);
  });
});

const { DATA, HEADERS } = FRAME;
const { PADDED, PRIORITY } = FLAG;
const frameOf = (type: number, flags: number, payload: string, streamId = 1): Frame => ({
  ...{ type, flags, streamId },
  payload: hex(payload),
});

describe("the content of a frame", () => {
  test.each([
    ["plain data", dataOf, frameOf(DATA, 0, "aabb"), "aabb"],
    ["empty data", dataOf, frameOf(DATA, 0, ""), ""],
    ["padded data", dataOf, frameOf(DATA, PADDED, "02 aabb 0000"), "aabb"],
    ["data padded with nothing", dataOf, frameOf(DATA, PADDED, "00 aabb"), "aabb"],
    ["padding only", dataOf, frameOf(DATA, PADDED, "02 0000"), ""],
    ["data with the flag PRIORITY, which means nothing", dataOf, frameOf(DATA, PRIORITY, "aabb"), "aabb"],
    ["a plain block", headerBlockOf, frameOf(HEADERS, 0, "82"), "82"],
    ["a padded block", headerBlockOf, frameOf(HEADERS, PADDED, "01 82 00"), "82"],
    ["a block with priority", headerBlockOf, frameOf(HEADERS, PRIORITY, "00000000ff 82"), "82"],
    ["a padded block with priority", headerBlockOf, frameOf(HEADERS, 0x28, "01 00000000ff 82 00"), "82"],
    ["an empty block, padded, with priority", headerBlockOf, frameOf(HEADERS, 0x28, "01 00000000ff 00"), ""],
  ])("is found in %s", (_, contentOf, frame, content) => {
    expect(contentOf(frame).toString("hex")).toBe(content);
  });

  test.each([
    ["padding as long as the data", dataOf, frameOf(DATA, PADDED, "02 00"), "PROTOCOL_ERROR"],
    ["padding longer than the frame", dataOf, frameOf(DATA, PADDED, "ff 00"), "PROTOCOL_ERROR"],
    ["no length of the padding", dataOf, frameOf(DATA, PADDED, ""), "FRAME_SIZE_ERROR"],
    ["data on stream 0", dataOf, frameOf(DATA, 0, "aa", 0), "PROTOCOL_ERROR"],
    ["no length of the padding", headerBlockOf, frameOf(HEADERS, PADDED, ""), "FRAME_SIZE_ERROR"],
    ["a part of the priority", headerBlockOf, frameOf(HEADERS, PRIORITY, "00000000"), "FRAME_SIZE_ERROR"],
    ["a part of both", headerBlockOf, frameOf(HEADERS, 0x28, "00 00000000"), "FRAME_SIZE_ERROR"],
    ["padding for priority", headerBlockOf, frameOf(HEADERS, 0x28, "01 00000000ff"), "PROTOCOL_ERROR"],
    ["headers on stream 0", headerBlockOf, frameOf(HEADERS, 0, "82", 0), "PROTOCOL_ERROR"],
  ])("is refused with %s", (_, contentOf, frame, code) => {
    expect(codeOf(() => contentOf(frame))).toBe(code);
  });
});

describe("an error code", () => {
  test("has a name, and is an internal error if it is unknown", () => {
    expect([0x0, 0x7, 0xd].map(errorNameOf)).toEqual(["NO_ERROR", "REFUSED_STREAM", "HTTP_1_1_REQUIRED"]);
    expect([0xe, 0xffffffff].map(errorNameOf)).toEqual(["INTERNAL_ERROR", "INTERNAL_ERROR"]);
  });
});
