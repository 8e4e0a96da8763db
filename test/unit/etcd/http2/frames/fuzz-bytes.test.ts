// Random bytes from a peer. LEASEHOLD_FUZZ is the number of inputs for each test.
import fc from "fast-check";
import { describe, expect, test } from "vitest";
import {
  dataOf,
  type Frame,
  FRAME,
  FRAME_HEADER_BYTES,
  FrameReader,
  headerBlockOf,
  writeFrameHeader,
} from "../../../../../src/etcd/http2/frames.js";
import { encodeHeaders, HeaderDecoder } from "../../../../../src/etcd/http2/hpack.js";
import { FuzzTally } from "../../../../support/fixtures/fuzz-tally.js";
import { codeOf, FUZZ_RUNS } from "../../../../support/fixtures/http2.js";

const MAX_FRAME = 48;
const MAX_LIST = 200;
const RUNS = { numRuns: FUZZ_RUNS };
const TIME_LIMIT_MS = 30_000 + FUZZ_RUNS * 10;
const tally = new FuzzTally(Math.ceil(FUZZ_RUNS / 25));

const bytes = (maxLength: number) =>
  fc.uint8Array({ maxLength, size: "max" }).map((array) => Buffer.from(array));

/** A frame that claims any length, with a payload that mostly has it. */
const frames = fc
  .record({
    type: fc.nat(11),
    flags: fc.nat(255),
    streamId: fc.nat(3),
    payload: bytes(MAX_FRAME),
    lie: fc.oneof({ weight: 30, arbitrary: fc.constant(0) }, fc.integer({ min: 1, max: 1 << 20 })),
  })
  .map(({ type, flags, streamId, payload, lie }) => {
    const frame = Buffer.alloc(FRAME_HEADER_BYTES + payload.length);
    writeFrameHeader(frame, 0, { type, flags, streamId, length: payload.length + lie });
    payload.copy(frame, FRAME_HEADER_BYTES);
    return frame;
  });

/** What a reader makes of chunks: the frames, as text, and the error that ended it. */
function read(chunks: readonly Buffer[]) {
  const found: string[] = [];
  let longest = 0;
  const decoder = new HeaderDecoder(MAX_LIST);
  const handler = {
    frame: (frame: Frame) => {
      const { type, flags, streamId, payload } = frame;
      found.push(`${type} ${flags} ${streamId} ${payload.toString("hex")}`);
      longest = Math.max(longest, payload.length);
      // Each of them throws nothing but an Http2Error, which ends the connection.
      if (type === FRAME.DATA) codeOf(() => dataOf(frame));
      if (type === FRAME.HEADERS) codeOf(() => decoder.decode(headerBlockOf(frame)));
    },
  };
  const reader = new FrameReader(handler, MAX_FRAME);
  const error = codeOf(() => chunks.forEach((chunk) => reader.read(chunk)));
  return { found, longest, error };
}

/** Cuts at the positions, which may be equal or beyond the end. */
const cut = (whole: Buffer, positions: readonly number[]): readonly Buffer[] => {
  const sorted = [0, ...positions, whole.length].sort((a, b) => a - b);
  return sorted.slice(1).map((end, n) => whole.subarray(sorted[n], end));
};

describe("a frame reader that receives nonsense", () => {
  const streams = fc.array(fc.oneof({ weight: 9, arbitrary: frames }, bytes(40)), { maxLength: 8 });

  test(
    "throws an Http2Error or nothing, and does not depend on how chunks are cut",
    { timeout: TIME_LIMIT_MS },
    () => {
      fc.assert(
        fc.property(streams, fc.array(fc.nat(400), { maxLength: 12 }), (parts, positions) => {
          tally.input();
          const whole = Buffer.concat(parts);
          const atOnce = read([whole]);
          const isCut = positions.some((at) => at > 0 && at < whole.length);
          tally.add({ frames: atOnce.found.length, splittings: isCut ? 1 : 0 });

          expect([undefined, "FRAME_SIZE_ERROR"]).toContain(atOnce.error);
          expect(atOnce.longest).toBeLessThanOrEqual(MAX_FRAME);
          expect(read(cut(whole, positions))).toEqual(atOnce);
        }),
        RUNS,
      );
    },
  );
});

describe("a decoder of headers that receives nonsense", () => {
  const headers = fc
    .array(fc.tuple(fc.constantFrom(":status", "a", "grpc-message"), fc.string({ unit: "grapheme-ascii" })))
    .map((pairs) => encodeHeaders(pairs));
  const changed = fc
    .tuple(headers, fc.array(fc.tuple(fc.nat(), fc.nat(255)), { minLength: 1, maxLength: 3 }))
    .map(([block, changes]) => {
      for (const [at, byte] of changes) if (block.length > 0) block[at % block.length] = byte;
      return block;
    });

  test("throws an Http2Error or returns no more than the limit", { timeout: TIME_LIMIT_MS }, () => {
    const decoder = new HeaderDecoder(MAX_LIST);
    const seen = new Set<string | undefined>();
    fc.assert(
      fc.property(fc.oneof(bytes(200), changed), (block) => {
        tally.input();
        tally.add({ headers: 1 });
        const code = codeOf(() => {
          const decoded = decoder.decode(block);
          const sizes = [...decoded].map(([name, value]) => name.length + value.length + 32);

          // ", " between the values of a repeated header is less than the 32 bytes that each counts for
          expect(sizes.reduce((sum, size) => sum + size, 0)).toBeLessThanOrEqual(MAX_LIST);
          expect([...new HeaderDecoder(MAX_LIST).decode(block)]).toEqual([...decoded]);
        });
        seen.add(code);
      }),
      RUNS,
    );

    expect([...seen].sort()).toEqual(["COMPRESSION_ERROR", "ENHANCE_YOUR_CALM", undefined]);
  });
});
