import { describe, expect, test } from "vitest";
import {
  answerFrames,
  dataFrame,
  FLAGS,
  frame,
  grpcMessage,
  responseFrame,
  rstFrame,
  SETTINGS,
  settingsFrame,
  trailersFrame,
  windowFrame,
} from "../../../support/servers/http2-peer.js";
import { OK, startPair, says } from "../../../support/fixtures/peer-calls.js";

const window = (bytes: number): Buffer => settingsFrame([[SETTINGS.INITIAL_WINDOW_SIZE, bytes]]);
const PREFIX = 5;

describe("sending within the peer's windows", () => {
  test("a request longer than the stream's window goes on with each WINDOW_UPDATE", async () => {
    await using pair = await startPair({ settings: [[SETTINGS.INITIAL_WINDOW_SIZE, 100]] });
    const { connection, client } = pair;
    const text = Buffer.alloc(300, "x");
    const call = client.call(text);
    const id = await connection.request();
    await connection.barrier();
    expect(connection.bodySoFar(id)).toHaveLength(100);
    connection.send(windowFrame(id, 150));
    await connection.barrier();
    expect(connection.bodySoFar(id)).toHaveLength(250);
    connection.send(windowFrame(id, 1000));
    expect(await connection.body(id, 300 + PREFIX)).toEqual(grpcMessage(text));
    expect(connection.all("DATA").filter(({ flags }) => flags & FLAGS.END_STREAM)).toHaveLength(2);
    connection.send(answerFrames(id, "answer"));
    expect(await call.end).toEqual(OK);
  });

  test("requests longer than the connection's window go on, in order, as it opens", async () => {
    await using pair = await startPair({ settings: [[SETTINGS.INITIAL_WINDOW_SIZE, 1_000_000]] });
    const { connection, client } = pair;
    const used = (await connection.body(pair.id, 10)).length;
    const calls = [client.call(Buffer.alloc(65_535, 1)), client.call(Buffer.alloc(50, 2))];
    const [large, small] = [await connection.request(), await connection.request()];
    await connection.barrier();
    expect(connection.bodySoFar(large)).toHaveLength(65_535 - used);
    expect(connection.bodySoFar(small)).toHaveLength(0);
    connection.send(windowFrame(0, used + PREFIX + 7));
    await connection.barrier();
    expect([connection.bodySoFar(large).length, connection.bodySoFar(small).length]).toEqual([65_540, 7]);
    connection.send(windowFrame(0, 1000));
    expect(await connection.body(small, 55)).toEqual(grpcMessage(Buffer.alloc(50, 2)));
    connection.send(answerFrames(large, "a"), answerFrames(small, "b"));
    for (const call of calls) expect(await call.end).toEqual(OK);
  });

  test("a request longer than a frame leaves in frames of the size that the peer permits", async () => {
    await using pair = await startPair({ settings: [[SETTINGS.MAX_FRAME_SIZE, 20_000]] });
    const text = Buffer.alloc(50_000, "x");
    pair.client.call(text);
    const id = await pair.connection.request();
    expect(await pair.connection.body(id, 50_005)).toEqual(grpcMessage(text));
    const sizes = pair.connection.all("DATA").filter(({ streamId }) => streamId === id);
    expect(sizes.map(({ payload }) => payload.length)).toEqual([20_000, 20_000, 10_005]);
  });

  test("a larger initial window applies to open streams", async () => {
    await using pair = await startPair({ settings: [[SETTINGS.INITIAL_WINDOW_SIZE, 50]] });
    pair.client.call(Buffer.alloc(100));
    const id = await pair.connection.request();
    await pair.connection.barrier();
    expect(pair.connection.bodySoFar(id)).toHaveLength(50);
    pair.connection.send(window(80));
    await pair.connection.barrier();
    expect(pair.connection.bodySoFar(id)).toHaveLength(80);
    pair.connection.send(window(1000));
    expect(await pair.connection.body(id, 105)).toHaveLength(105);
  });

  test("a smaller initial window makes the window of an open stream negative: it opens above zero", async () => {
    await using pair = await startPair({ settings: [[SETTINGS.INITIAL_WINDOW_SIZE, 50]] });
    pair.client.call(Buffer.alloc(100));
    const id = await pair.connection.request();
    await pair.connection.barrier();
    // 50 bytes are used: the window is -40, then 0, then 1.
    pair.connection.send(window(10), windowFrame(id, 40));
    await pair.connection.barrier();
    expect(pair.connection.bodySoFar(id)).toHaveLength(50);
    pair.connection.send(windowFrame(id, 1));
    await pair.connection.barrier();
    expect(pair.connection.bodySoFar(id)).toHaveLength(51);
    pair.connection.send(window(100));
    expect(await pair.connection.body(id, 105)).toHaveLength(105);
  });

  test("a window above 2^31-1 ends the connection", async () => {
    for (const at of [0, 1]) {
      await using pair = await startPair();
      pair.connection.send(windowFrame(at, 0x7fff_ffff));
      expect(await pair.first.end).toMatchObject({
        failed: "protocol",
        text: says(/2\^31-1/),
      });
      expect(await pair.connection.goaway()).toBe(3);
    }
  });

  test("WINDOW_UPDATE on a stream that is over is ignored", async () => {
    await using pair = await startPair();
    pair.connection.send(answerFrames(pair.id, "answer"), windowFrame(pair.id, 0x7fff_ffff));
    await pair.connection.barrier();
    expect(await pair.first.end).toEqual(OK);
  });

  test("an answer to an unfinished request resets it: the peer must not wait for the rest", async () => {
    await using pair = await startPair({ settings: [[SETTINGS.INITIAL_WINDOW_SIZE, 50]] });
    const call = pair.client.call(Buffer.alloc(100));
    const id = await pair.connection.request();
    await pair.connection.barrier();
    pair.connection.send(answerFrames(id, "too long"));
    expect([await call.end, call.texts]).toEqual([OK, ["too long"]]);
    expect((await pair.connection.next("RST_STREAM")).streamId).toBe(id);
    pair.connection.send(windowFrame(id, 1000), answerFrames(pair.id, "answer"));
    expect(await pair.first.end).toEqual(OK);
    expect(pair.connection.bodySoFar(id)).toHaveLength(50);
  });
});

describe("the limit of concurrent streams", () => {
  const settings = [[SETTINGS.MAX_CONCURRENT_STREAMS, 1]] as const;

  test("further calls wait, and go on when one ends, one after the other", async () => {
    await using pair = await startPair({ settings });
    const calls = pair.client.calls(3);
    await pair.connection.barrier();
    expect(pair.connection.all("HEADERS")).toHaveLength(1);
    let id = pair.id;
    for (const call of calls) {
      pair.connection.send(answerFrames(id, "answer"));
      id = await pair.connection.request();
      await pair.connection.barrier();
      expect([call.told, call.isOver]).toEqual([["sent"], false]);
    }
    expect(pair.connection.all("HEADERS").map(({ streamId }) => streamId)).toEqual([1, 3, 5, 7]);
  });

  test("calls go on when the peer resets the stream in their way, or raises the limit", async () => {
    await using pair = await startPair({ settings });
    pair.client.calls(2);
    pair.connection.send(rstFrame(pair.id, 2));
    expect(await pair.connection.request()).toBe(3);
    pair.connection.send(settingsFrame([[SETTINGS.MAX_CONCURRENT_STREAMS, 2]]));
    expect(await pair.connection.request()).toBe(5);
  });

  test("a call cancelled while it waits is never sent, nor reset", async () => {
    await using pair = await startPair({ settings });
    const [cancelled, next] = pair.client.calls(2);
    cancelled!.cancel();
    pair.connection.send(answerFrames(pair.id, "answer"));
    const id = await pair.connection.request();
    await pair.connection.barrier();
    expect(id).toBe(3);
    expect((await pair.connection.body(id, 10)).toString()).toContain("request 1");
    expect([cancelled!.told, next!.told]).toEqual([[], ["sent"]]);
    expect(pair.connection.all("RST_STREAM")).toEqual([]);
  });

  test("a call cancelled on the peer's side of the limit makes room for the next", async () => {
    await using pair = await startPair({ settings });
    pair.client.call("next");
    pair.first.cancel();
    expect((await pair.connection.next("RST_STREAM")).streamId).toBe(pair.id);
    expect(await pair.connection.request()).toBe(3);
  });

  test("urgent streams go first", async () => {
    await using pair = await startPair({ settings });
    pair.client.call("ordinary");
    const urgent = pair.client.stream({ urgent: true });
    urgent.write(grpcMessage("urgent"));
    pair.connection.send(answerFrames(pair.id, "answer"));
    const id = await pair.connection.request();
    expect((await pair.connection.body(id, 11)).toString("latin1", PREFIX)).toBe("urgent");
  });

  test("a thousand calls behind a limit of 10 all end, and never more than 10 are open", async () => {
    await using pair = await startPair({ settings: [[SETTINGS.MAX_CONCURRENT_STREAMS, 10]] });
    const calls = pair.client.calls(1000);
    await pair.connection.barrier();
    expect(pair.connection.all("HEADERS")).toHaveLength(10);
    pair.connection.send(answerFrames(pair.id, "answer"));
    for (let n = 0; n < 1000; n++)
      pair.connection.send(answerFrames(await pair.connection.request(), "answer"));
    for (const call of calls) expect(await call.end).toEqual(OK);
  });
});

describe("receiving", () => {
  test("an answer of 40 MiB arrives: windows are widened as it is read", async () => {
    await using pair = await startPair();
    const { connection, id, first } = pair;
    const message = grpcMessage(Buffer.alloc(40 * 1024 * 1024, "y"));
    connection.send(responseFrame(id));
    let [stream, whole] = [4 * 1024 * 1024, 16 * 1024 * 1024];
    let seen = 0;
    const widen = (): void => {
      for (const { streamId, payload } of connection.all("WINDOW_UPDATE").slice(seen)) {
        if (streamId === 0) whole += payload.readUInt32BE(0);
        else stream += payload.readUInt32BE(0);
      }
      seen = connection.all("WINDOW_UPDATE").length;
    };
    seen = 1;
    for (let at = 0; at < message.length; at += 16_384) {
      const part = message.subarray(at, at + 16_384);
      while (Math.min(stream, whole) < part.length) {
        await connection.barrier();
        const before = seen;
        widen();
        expect(seen).toBeGreaterThan(before);
      }
      stream -= part.length;
      whole -= part.length;
      connection.send(dataFrame(id, part));
    }
    connection.send(trailersFrame(id));
    expect(await first.end).toEqual(OK);
    expect(first.messages[0]).toHaveLength(40 * 1024 * 1024);
  });

  test("padding counts: a window is widened by it, too", async () => {
    await using pair = await startPair();
    const { connection, id } = pair;
    connection.send(responseFrame(id), dataFrame(id, Buffer.of(0, 0, 0xf0, 0, 0)));
    // 130 times 16,384 bytes are more than half of the window, and without the padding less.
    const payload = Buffer.concat([Buffer.of(255), Buffer.alloc(16_383)]);
    for (let n = 0; n < 130; n++) connection.send(frame("DATA", id, { flags: FLAGS.PADDED, payload }));
    expect((await connection.next("WINDOW_UPDATE", id)).payload.readUInt32BE(0)).toBeGreaterThan(2 ** 21);
  });

  test("data of cancelled calls opens the connection's window again", async () => {
    await using pair = await startPair();
    pair.first.cancel();
    await pair.connection.next("RST_STREAM");
    const opened = pair.connection.all("WINDOW_UPDATE").length;
    for (let bytes = 0; bytes <= 8 * 1024 * 1024; bytes += 16_384)
      pair.connection.send(dataFrame(pair.id, Buffer.alloc(16_384)));
    await pair.connection.barrier();
    const updates = pair.connection.all("WINDOW_UPDATE").slice(opened);
    expect(updates.map(({ streamId }) => streamId)).toEqual([0]);
    expect(updates[0]?.payload.readUInt32BE(0)).toBeGreaterThan(8 * 1024 * 1024);
  });
});
