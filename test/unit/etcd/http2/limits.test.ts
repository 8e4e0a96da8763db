import { describe, expect, test } from "vitest";
import {
  answerFrames,
  CODES,
  dataFrame,
  FLAGS,
  frame,
  grpcMessage,
  headersFrame,
  pingFrame,
  responseFrame,
  rstFrame,
  SETTINGS,
  settingsFrame,
  startPeer,
  trailersFrame,
  uint32,
  windowFrame,
} from "../../../support/servers/http2-peer.js";
import { settle } from "../../../support/fakes/fake-clock.js";
import { OK, PeerClient, startPair, says } from "../../../support/fixtures/peer-calls.js";

const many = (count: number, bytes: Buffer): Buffer =>
  Buffer.concat(Array.from({ length: count }, () => bytes));
const EMPTY = Buffer.alloc(0);

describe("before the peer's SETTINGS", () => {
  test("requests follow the preface, as many as any peer is expected to allow", async () => {
    await using peer = await startPeer();
    const client = new PeerClient({ port: peer.port });
    const calls = Array.from({ length: 120 }, () => client.call());
    const connection = await peer.connection();

    const early = await connection.requests(100);
    await settle();
    expect(connection.all("HEADERS")).toHaveLength(100);

    connection.greet([[SETTINGS.MAX_CONCURRENT_STREAMS, 110]]);
    const later = await connection.requests(10);
    await connection.barrier();
    expect(connection.all("HEADERS")).toHaveLength(110);
    for (const id of [...early, ...later]) connection.send(answerFrames(id, "answer"));
    for (const id of await connection.requests(10)) connection.send(answerFrames(id, "answer"));
    for (const call of calls) expect(await call.end).toEqual(OK);
  });

  test("requests that the peer refuses, as it allows fewer, are sent again under its limit", async () => {
    await using peer = await startPeer();
    const client = new PeerClient({ port: peer.port });
    const calls = client.calls(30);
    const connection = await peer.connection();
    const early = await connection.requests(30);
    connection.greet([[SETTINGS.MAX_CONCURRENT_STREAMS, 10]]);
    connection.send(...early.slice(10).map((id) => rstFrame(id, CODES.REFUSED_STREAM)));
    await connection.barrier();
    expect(connection.all("HEADERS")).toHaveLength(30);

    for (const id of early.slice(0, 10)) connection.send(answerFrames(id, "answer"));
    for (let n = 0; n < 20; n++) {
      const id = await connection.request();
      expect((await connection.body(id, 15)).toString("latin1", 5)).toMatch(/^request [12]\d$/);
      connection.send(answerFrames(id, "answer"));
    }
    for (const call of calls) expect(await call.end).toEqual(OK);
    expect(peer.connections).toHaveLength(1);
  });

  test("a long message is sent as far as the window that every stream has at first", async () => {
    await using peer = await startPeer();
    const client = new PeerClient({ port: peer.port });
    const call = client.call(Buffer.alloc(100_000));
    const connection = await peer.connection();
    const id = await connection.request();

    await connection.body(id, 65_535);
    await settle();
    expect(connection.bodySoFar(id)).toHaveLength(65_535);

    connection.greet([[SETTINGS.INITIAL_WINDOW_SIZE, 70_000]]);
    await connection.barrier();
    expect(connection.bodySoFar(id)).toHaveLength(65_535);
    call.cancel();
  });
});

describe("limits against a hostile peer", () => {
  test.each([
    ["PING", pingFrame()],
    ["answers to PING", frame("PING", 0, { flags: FLAGS.ACK, payload: Buffer.alloc(8) })],
    ["SETTINGS", settingsFrame([[SETTINGS.MAX_CONCURRENT_STREAMS, 9]])],
    ["acknowledgments of SETTINGS", frame("SETTINGS", 0, { flags: FLAGS.ACK })],
    ["RST_STREAM of a stream that is over", rstFrame(1, 2)],
    ["empty DATA", dataFrame(3, EMPTY)],
    ["padding", frame("DATA", 3, { flags: FLAGS.PADDED, payload: Buffer.of(0) })],
    ["PRIORITY", frame("PRIORITY", 1, { payload: Buffer.alloc(5) })],
    ["frames of unknown types", frame("UNKNOWN", 1)],
    ["GOAWAY", frame("GOAWAY", 0, { payload: uint32(3, 0) })],
    ["WINDOW_UPDATE of the connection", windowFrame(0, 1)],
    ["WINDOW_UPDATE of a stream", windowFrame(3, 1)],
    ["WINDOW_UPDATE of a stream that is over", windowFrame(1, 1)],
    ["headers of a stream that is over", headersFrame(1, [["a", "b"]])],
    ["interim responses", headersFrame(3, [[":status", "103"]])],
  ])("a flood of %s ends the connection", async (_, bytes) => {
    await using pair = await startPair();
    const call = pair.client.call();
    pair.connection.send(answerFrames(pair.id, "answer"));
    await pair.connection.request();
    pair.connection.send(responseFrame(3), many(3000, bytes));
    expect(await call.end).toMatchObject({
      failed: "protocol",
      text: says(/carry nothing/),
      inDoubt: true,
    });
    expect(await pair.connection.goaway()).toBe(CODES.ENHANCE_YOUR_CALM);
    await pair.connection.closed;
  });

  test("pings and window updates between answers, as Go's servers send them, are no flood", async () => {
    await using pair = await startPair();
    let id = pair.id;
    for (let n = 0; n < 1500; n++) {
      const call = pair.client.call();
      pair.connection.send(windowFrame(0, 5), pingFrame(), pingFrame(), answerFrames(id, "answer"));
      id = await pair.connection.request();
      if (n % 500 === 499) pair.connection.send(answerFrames(id, "answer"));
      if (n % 500 === 499) expect(await call.end).toEqual(OK);
      if (n % 500 === 499) id = (pair.client.call(), await pair.connection.request());
    }
  });

  test("window updates for each of thousands of requests without an answer are no flood", async () => {
    await using pair = await startPair();
    pair.client.calls(3000);
    const ids = await pair.connection.requests(3000);
    pair.connection.send(...ids.flatMap((id) => [windowFrame(0, 12), windowFrame(id, 12)]));
    await pair.connection.barrier();
    expect(pair.first.isOver).toBe(false);
  });

  test("the answers to thousands of calls that were given up meanwhile are no flood", async () => {
    await using pair = await startPair();
    const calls = pair.client.calls(3000);
    const ids = await pair.connection.requests(3000);
    for (const call of calls) call.cancel();
    pair.connection.send(...ids.map((id) => Buffer.concat([responseFrame(id), trailersFrame(id)])));
    await pair.connection.barrier();
    expect(pair.first.isOver).toBe(false);
  });

  test("the longest of the messages that exceed the memory of the process fails its call alone", async () => {
    await using pair = await startPair({ maxKeptBytes: 60_000 });
    await using other = await startPair({ maxKeptBytes: 60_000 });
    const calls = [pair.first, pair.client.call()];
    const ids = [pair.id, await pair.connection.request()];
    const message = grpcMessage(Buffer.alloc(40_000));
    const start = ({ connection }: typeof pair, id: number, bytes: number) =>
      connection.send(responseFrame(id), dataFrame(id, message.subarray(0, bytes)));

    start(pair, ids[0]!, 15_000);
    start(pair, ids[1]!, 15_000);
    await pair.connection.barrier();
    pair.connection.send(dataFrame(ids[1]!, message.subarray(15_000, 31_000)));
    await pair.connection.barrier();
    expect(calls.some((each) => each.isOver)).toBe(false);
    start(other, other.id, 16_000);
    expect(await calls[1]!.end).toMatchObject({ failed: "protocol", text: says(/memory/), inDoubt: true });

    for (const { connection, id, first, at } of [
      { ...pair, at: 15_000 },
      { ...other, at: 16_000 },
    ]) {
      connection.send(dataFrame(id, message.subarray(at, 31_000)));
      connection.send(dataFrame(id, message.subarray(31_000)), trailersFrame(id));
      expect(await first.end).toEqual(OK);
    }
  });

  test("a thousand pings a second for a long time are no flood", async () => {
    await using pair = await startPair();
    for (let n = 0; n < 5; n++) {
      pair.connection.send(many(900, pingFrame()));
      await pair.connection.barrier();
      pair.client.clock.advance(1100);
    }
    expect(pair.first.isOver).toBe(false);
  });

  test("the reset of ten thousand open calls is no flood: each ends with its own reason", async () => {
    await using pair = await startPair();
    const calls = pair.client.calls(10_000);
    const ids = await pair.connection.requests(10_000);
    pair.connection.send(...ids.map((id) => rstFrame(id, CODES.REFUSED_STREAM)));
    for (const call of calls) expect(await call.end).toMatchObject({ failed: "reset", inDoubt: false });
    expect(pair.first.isOver).toBe(false);
  });

  test("a header list above the limit ends the connection", async () => {
    await using pair = await startPair();
    // Each header of the static table is one byte here, and 42 in the list.
    pair.connection.send(
      frame("HEADERS", pair.id, { flags: FLAGS.END_HEADERS, payload: Buffer.alloc(16_000, 0x88) }),
    );
    expect(await pair.first.end).toMatchObject({
      failed: "protocol",
      text: says(/bytes of headers/),
    });
    expect(await pair.connection.goaway()).toBe(CODES.ENHANCE_YOUR_CALM);
  });

  test("CONTINUATION without an end ends the connection, also if the frames are empty", async () => {
    for (const [count, payload] of [
      [10, Buffer.alloc(16_000)],
      [200, EMPTY],
    ] as const) {
      await using pair = await startPair();
      pair.connection.send(
        frame("HEADERS", pair.id),
        many(count, frame("CONTINUATION", pair.id, { payload })),
      );
      expect(await pair.first.end).toMatchObject({
        failed: "protocol",
        text: says(/without an end/),
      });
      expect(await pair.connection.goaway()).toBe(CODES.ENHANCE_YOUR_CALM);
    }
  });

  test.each([
    ["DATA", frame("DATA", 1, { length: 16_385 })],
    ["of an unknown type", frame("UNKNOWN", 0, { length: 0xff_ffff })],
  ])("a frame %s longer than allowed ends the connection before its content arrives", async (_, bytes) => {
    await using pair = await startPair();
    pair.connection.send(bytes);
    expect(await pair.first.end).toMatchObject({
      failed: "protocol",
      text: says(/frame of \d+ bytes: at most 16384/),
    });
    expect(await pair.connection.goaway()).toBe(6);
  });

  test("a message announced with 4 GiB fails the call at once; others go on", async () => {
    await using pair = await startPair();
    const other = pair.client.call();
    const otherId = await pair.connection.request();
    const prefix = Buffer.concat([Buffer.of(0), uint32(0xffff_ffff)]);
    pair.connection.send(responseFrame(pair.id), dataFrame(pair.id, prefix), answerFrames(otherId, "answer"));
    expect(await pair.first.end).toMatchObject({
      failed: "protocol",
      text: says(/4294967295 bytes/),
      inDoubt: true,
    });
    expect((await pair.connection.next("RST_STREAM")).streamId).toBe(pair.id);
    expect(await other.end).toEqual(OK);
  });

  test("a peer that sends pings without reading the answers loses the connection, interleaved with answers or not", async () => {
    await using pair = await startPair();
    pair.connection.pause();
    const burst = Buffer.concat([many(900, pingFrame()), dataFrame(1, Buffer.of(0))]);
    pair.connection.send(responseFrame(1));
    while (!pair.first.isOver) {
      if (pair.connection.socket.destroyed || !pair.connection.socket.writable) break;
      pair.connection.send(burst);
      await new Promise((resolve) => setImmediate(resolve));
    }
    expect(await pair.first.end).toMatchObject({
      failed: "protocol",
      text: says(/does not read/),
    });
  });

  test("headers and trailers of streams that are over are read, and forgotten", async () => {
    await using pair = await startPair();
    pair.first.cancel();
    await pair.connection.next("RST_STREAM");
    pair.connection.send(headersFrame(1, [["a", "b"]]), dataFrame(1, grpcMessage("x")), trailersFrame(1));
    await pair.connection.barrier();
    expect(pair.first.told).toEqual(["sent"]);
  });
});
