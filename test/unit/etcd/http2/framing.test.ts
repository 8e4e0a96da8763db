import { describe, expect, test } from "vitest";
import {
  CODES,
  dataFrame,
  FLAGS,
  frame,
  grpcMessage,
  headerBlock,
  pingFrame,
  RESPONSE,
  responseFrame,
  SETTINGS,
  settingsFrame,
  trailersFrame,
  uint32,
} from "../../../support/servers/http2-peer.js";
import { OK, startPair, says } from "../../../support/fixtures/peer-calls.js";

const pad = (bytes: Buffer): Buffer => Buffer.concat([Buffer.of(3), bytes, Buffer.alloc(3)]);
const PRIORITY_FIELDS = Buffer.from([0, 0, 0, 0, 15]);

describe("frames of the peer", () => {
  test("a header block may be cut into CONTINUATION frames", async () => {
    await using pair = await startPair();
    const { connection, id, first } = pair;
    const block = headerBlock(RESPONSE);
    const parts = [...block].map((byte) => Buffer.of(byte));
    connection.send(
      frame("HEADERS", id),
      ...parts.slice(0, 40).map((payload) => frame("CONTINUATION", id, { payload })),
      frame("CONTINUATION", id, { payload: block.subarray(40), flags: FLAGS.END_HEADERS }),
      dataFrame(id, grpcMessage("answer")),
      frame("HEADERS", id, { payload: headerBlock([["grpc-status", "5"]]), flags: FLAGS.END_STREAM }),
      frame("CONTINUATION", id, {
        payload: headerBlock([["grpc-message", "gone"]]),
        flags: FLAGS.END_HEADERS,
      }),
    );
    expect(await first.end).toEqual({ status: 5, details: "gone" });
    expect(first.texts).toEqual(["answer"]);
  });

  test("another frame in the middle of a header block ends the connection", async () => {
    await using pair = await startPair();
    const { connection, id, first } = pair;
    connection.send(frame("HEADERS", id), pingFrame());
    expect(await first.end).toMatchObject({ failed: "protocol", inDoubt: true });
    expect(await connection.goaway()).toBe(1);
  });

  test("padding and priority fields are left out", async () => {
    await using pair = await startPair();
    const { connection, id, first } = pair;
    const flags = FLAGS.PADDED | FLAGS.PRIORITY | FLAGS.END_HEADERS;
    const trailers = headerBlock([["grpc-status", "0"]]);
    connection.send(
      frame("HEADERS", id, { flags, payload: pad(Buffer.concat([PRIORITY_FIELDS, headerBlock(RESPONSE)])) }),
      frame("DATA", id, { flags: FLAGS.PADDED, payload: pad(grpcMessage("answer")) }),
      frame("DATA", id, { flags: FLAGS.PADDED, payload: pad(Buffer.alloc(0)) }),
      frame("HEADERS", id, {
        flags: FLAGS.PADDED | FLAGS.END_HEADERS | FLAGS.END_STREAM,
        payload: pad(trailers),
      }),
    );
    expect([await first.end, first.texts]).toEqual([OK, ["answer"]]);
  });

  test("padding longer than its frame ends the connection", async () => {
    await using pair = await startPair();
    const { connection, id, first } = pair;
    connection.send(responseFrame(id), frame("DATA", id, { flags: FLAGS.PADDED, payload: Buffer.of(9, 1) }));
    expect(await first.end).toMatchObject({ failed: "protocol", text: says(/padding/) });
  });

  test("PRIORITY and frames of unknown types are ignored, also on streams that were never opened", async () => {
    await using pair = await startPair();
    const { connection, id, first } = pair;
    connection.send(
      frame("PRIORITY", 99, { payload: PRIORITY_FIELDS }),
      frame("UNKNOWN", 98, { payload: Buffer.from("whatever"), flags: 255 }),
      responseFrame(id),
      frame("UNKNOWN", id, { payload: Buffer.alloc(100) }),
      dataFrame(id, grpcMessage("answer")),
      frame("PRIORITY", id, { payload: PRIORITY_FIELDS }),
      trailersFrame(id),
    );
    expect([await first.end, first.texts]).toEqual([OK, ["answer"]]);
  });

  test("each PING is answered with its bytes, after a tenth of a second and not with the next call", async () => {
    await using pair = await startPair();
    const { connection, client } = pair;
    const acks = () => connection.all("PING").filter(({ flags }) => flags === FLAGS.ACK);
    connection.send(pingFrame("abcdefgh"), pingFrame("12345678"));
    await connection.barrier();
    expect(acks()).toHaveLength(0);
    client.clock.advance(101);
    await expect.poll(() => acks().length).toBe(2);
    expect(acks().map(({ payload }) => payload.toString())).toEqual(["abcdefgh", "12345678"]);
  });

  test("more than 1 KiB of answers to PINGs does not wait", async () => {
    await using pair = await startPair();
    pair.connection.send(...Array.from({ length: 61 }, () => pingFrame("abcdefgh")));
    const acks = () => pair.connection.all("PING").filter(({ flags }) => flags === FLAGS.ACK);
    await expect.poll(() => acks().length).toBe(61);
  });

  test("SETTINGS are acknowledged, each time", async () => {
    await using pair = await startPair();
    pair.connection.send(settingsFrame([[SETTINGS.MAX_CONCURRENT_STREAMS, 7]]), settingsFrame());
    await pair.connection.barrier();
    const acks = pair.connection.all("SETTINGS").filter(({ flags }) => flags === FLAGS.ACK);
    expect(acks.map(({ payload }) => payload.length)).toEqual([0, 0, 0, 0]);
  });

  test.each([
    ["DATA on a stream that was never opened", dataFrame(9, Buffer.alloc(1))],
    ["HEADERS on a stream that was never opened", responseFrame(9)],
    ["RST_STREAM on a stream that was never opened", frame("RST_STREAM", 9, { payload: uint32(8) })],
    ["WINDOW_UPDATE on a stream that was never opened", frame("WINDOW_UPDATE", 9, { payload: uint32(8) })],
    ["HEADERS on a stream of the peer's", responseFrame(2)],
    ["DATA on stream 0", dataFrame(0, Buffer.alloc(1))],
    ["RST_STREAM on stream 0", frame("RST_STREAM", 0, { payload: uint32(8) })],
    ["PUSH_PROMISE", frame("PUSH_PROMISE", 1, { payload: uint32(2) })],
    ["CONTINUATION without HEADERS", frame("CONTINUATION", 1, { flags: FLAGS.END_HEADERS })],
    ["SETTINGS on a stream", frame("SETTINGS", 1)],
    ["SETTINGS that are cut off", frame("SETTINGS", 0, { payload: Buffer.alloc(5) })],
    ["SETTINGS that enable push", settingsFrame([[2, 1]])],
    ["SETTINGS with an initial window of 2^31", settingsFrame([[SETTINGS.INITIAL_WINDOW_SIZE, 2 ** 31]])],
    ["SETTINGS with a frame size below 2^14", settingsFrame([[SETTINGS.MAX_FRAME_SIZE, 16_383]])],
    [
      "an acknowledgment of SETTINGS with content",
      frame("SETTINGS", 0, { flags: 1, payload: Buffer.alloc(6) }),
    ],
    ["a PING of 7 bytes", frame("PING", 0, { payload: Buffer.alloc(7) })],
    ["a GOAWAY of 7 bytes", frame("GOAWAY", 0, { payload: Buffer.alloc(7) })],
    ["a WINDOW_UPDATE of nothing", frame("WINDOW_UPDATE", 0, { payload: uint32(0) })],
    ["a header block that is cut off", frame("HEADERS", 1, { flags: 4, payload: Buffer.of(0, 5, 1) })],
    ["a header of the dynamic table", frame("HEADERS", 1, { flags: 4, payload: Buffer.of(0x80 | 70) })],
  ])("%s ends the connection, with the reason", async (_, bytes) => {
    await using pair = await startPair();
    pair.connection.send(bytes);
    const end = await pair.first.end;
    expect(end).toMatchObject({ failed: "protocol", inDoubt: true });
    expect(await pair.connection.goaway()).not.toBe(CODES.NO_ERROR);
    await pair.connection.closed;
  });
});
