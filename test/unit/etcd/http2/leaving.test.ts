import { describe, expect, test } from "vitest";
import {
  answerFrames,
  CODES,
  dataFrame,
  goawayFrame,
  grpcMessage,
  responseFrame,
  rstFrame,
  SETTINGS,
  startPeer,
  trailersFrame,
} from "../../../support/servers/http2-peer.js";
import { OK, PeerClient, startPair, says } from "../../../support/fixtures/peer-calls.js";

const LAST_ID = 0x7fff_ffff;

describe("GOAWAY", () => {
  test("with an error, streams above its last ID and unsent ones were not processed; those below go on", async () => {
    await using pair = await startPair({ settings: [[SETTINGS.MAX_CONCURRENT_STREAMS, 2]] });
    const { connection, client, first } = pair;
    const [above, unsent] = client.calls(2);
    await connection.request();
    connection.send(goawayFrame(pair.id, CODES.INTERNAL, "maintenance"));
    const failure = { failed: "lost", text: says(/maintenance/), inDoubt: false };
    expect(await above!.end).toEqual(failure);
    expect(await unsent!.end).toEqual(failure);
    expect(unsent!.told).toEqual(["failed"]);
    connection.send(answerFrames(pair.id, "answer"));
    expect([await first.end, first.texts]).toEqual([OK, ["answer"]]);
    expect(await connection.goaway()).toBe(CODES.NO_ERROR);
    expect(await connection.closed).toBe(true);
  });

  test("without an error, streams above its last ID and unsent ones move to a new connection, whole", async () => {
    await using pair = await startPair({ settings: [[SETTINGS.MAX_CONCURRENT_STREAMS, 2]] });
    const [above, unsent] = pair.client.calls(2);
    await pair.connection.body(await pair.connection.request(), grpcMessage("request 0").length);
    pair.connection.send(goawayFrame(pair.id, CODES.NO_ERROR));
    const second = await pair.peer.connection(1);
    second.greet();
    const ids = await second.requests(2);
    const texts = ["request 0", "request 1"].map((text) => grpcMessage(text));
    const bodies = await Promise.all(ids.map((id, n) => second.body(id, texts[n]!.length)));
    expect(bodies).toEqual(texts);
    second.send(...ids.map((id, n) => answerFrames(id, `answer ${n}`)));
    expect([await above!.end, above!.texts]).toEqual([OK, ["answer 0"]]);
    expect([await unsent!.end, unsent!.texts]).toEqual([OK, ["answer 1"]]);
    pair.connection.send(answerFrames(pair.id, "answer"));
    expect([await pair.first.end, pair.first.texts]).toEqual([OK, ["answer"]]);
  });

  test("a call that each connection turns away fails in the end: it was not processed", async () => {
    await using peer = await startPeer();
    const call = new PeerClient({ port: peer.port }).call();
    let count = 0;
    const turnAway = async (): Promise<void> => {
      for (; ; count++) {
        const connection = await peer.connection(count);
        connection.greet();
        connection.send(goawayFrame(0, CODES.NO_ERROR));
      }
    };
    void turnAway().catch(() => undefined);
    expect(await call.end).toMatchObject({ failed: "left", inDoubt: false });
    expect(count).toBe(17);
  });

  test("what was sent of a bidirectional stream is not sent again, nor a call that was answered in part", async () => {
    await using pair = await startPair();
    const stream = pair.client.stream();
    const answered = pair.client.call();
    const [, id] = await pair.connection.requests(2);
    pair.connection.send(responseFrame(id!), goawayFrame(pair.id, CODES.NO_ERROR));
    expect(await stream.end).toMatchObject({ failed: "left", inDoubt: false });
    expect(await answered.end).toMatchObject({ failed: "left" });
  });

  test("the next call goes to a new connection, also while the old one is in use", async () => {
    await using pair = await startPair();
    pair.connection.send(goawayFrame(LAST_ID, CODES.NO_ERROR));
    await pair.connection.barrier();
    const next = pair.client.call("next");
    const second = await pair.peer.connection(1);
    second.greet();
    second.send(answerFrames(await second.request(), "from the second"));
    expect([await next.end, next.texts]).toEqual([OK, ["from the second"]]);
    pair.connection.send(answerFrames(pair.id, "from the first"));
    expect([await pair.first.end, pair.first.texts]).toEqual([OK, ["from the first"]]);
  });

  test("a second GOAWAY may lower the last ID", async () => {
    await using pair = await startPair();
    const [second] = pair.client.calls(1);
    await pair.connection.request();
    pair.connection.send(goawayFrame(LAST_ID, CODES.NO_ERROR));
    await pair.connection.barrier();
    expect(second!.isOver).toBe(false);
    pair.connection.send(goawayFrame(pair.id, CODES.INTERNAL));
    expect(await second!.end).toMatchObject({ failed: "lost", inDoubt: false });
    expect(pair.first.isOver).toBe(false);
  });

  test("with ENHANCE_YOUR_CALM the failure says so", async () => {
    await using pair = await startPair();
    const second = pair.client.call();
    await pair.connection.request();
    pair.connection.send(goawayFrame(pair.id, CODES.ENHANCE_YOUR_CALM, "too_many_pings"));
    expect(await second.end).toMatchObject({
      failed: "calm",
      text: says(/too_many_pings/),
      inDoubt: false,
    });
    pair.connection.close();
    expect(await pair.first.end).toMatchObject({ failed: "calm", inDoubt: true });
  });

  test("right behind the greeting: waiting calls move", async () => {
    await using peer = await startPeer();
    const call = new PeerClient({ port: peer.port }).call();
    const connection = await peer.connection();
    connection.greet();
    connection.send(goawayFrame(0, CODES.NO_ERROR));
    const second = await peer.connection(1);
    second.greet();
    second.send(answerFrames(await second.request(), "answer"));
    expect(await call.end).toEqual(OK);
    expect(await connection.closed).toBe(true);
  });

  test("a stream that is still open when the connection ends may have been processed", async () => {
    await using pair = await startPair();
    pair.connection.send(goawayFrame(LAST_ID, CODES.NO_ERROR));
    pair.connection.close();
    expect(await pair.first.end).toMatchObject({ failed: "left", inDoubt: true });
  });
});

describe("RST_STREAM", () => {
  test.each([
    ["REFUSED_STREAM: not processed", CODES.REFUSED_STREAM, { failed: "reset", inDoubt: false }],
    ["CANCEL: in doubt", CODES.CANCEL, { failed: "reset", inDoubt: true }],
    ["INTERNAL_ERROR: in doubt", CODES.INTERNAL, { failed: "reset", inDoubt: true }],
    ["NO_ERROR: in doubt", CODES.NO_ERROR, { failed: "reset", inDoubt: true }],
    ["a code that nobody knows: in doubt", 0xbeef, { failed: "reset", inDoubt: true }],
    ["ENHANCE_YOUR_CALM: calm", CODES.ENHANCE_YOUR_CALM, { failed: "calm", inDoubt: true }],
  ])("%s", async (_, code, end) => {
    await using pair = await startPair();
    // A call that was sent before the client had the peer's SETTINGS could go again.
    await pair.connection.barrier();
    const reset = pair.client.call();
    const id = await pair.connection.request();
    pair.connection.send(rstFrame(id, code), answerFrames(pair.id, "answer"));
    expect(await reset.end).toMatchObject(end);
    expect(await pair.first.end).toEqual(OK);
    await pair.connection.barrier();
    expect(pair.connection.all("RST_STREAM")).toEqual([]);
  });

  test("after a part of the answer the call is in doubt", async () => {
    await using pair = await startPair();
    const message = grpcMessage("answer");
    pair.connection.send(responseFrame(pair.id), dataFrame(pair.id, message), rstFrame(pair.id, 8));
    expect(await pair.first.end).toMatchObject({ failed: "reset", inDoubt: true });
  });

  test("after the whole answer it changes nothing", async () => {
    await using pair = await startPair();
    pair.connection.send(answerFrames(pair.id, "answer"), rstFrame(pair.id, CODES.NO_ERROR));
    expect(await pair.first.end).toEqual(OK);
    await pair.connection.barrier();
    expect(pair.first.told).toEqual(["sent", "answered", "ended"]);
  });
});

describe("a cancelled call", () => {
  test("is reset with CANCEL; what the peer still sends for it is ignored, and nobody is told", async () => {
    await using pair = await startPair();
    pair.first.cancel();
    expect((await pair.connection.next("RST_STREAM")).payload.readUInt32BE(0)).toBe(CODES.CANCEL);
    pair.connection.send(answerFrames(pair.id, "too late"), rstFrame(pair.id, 2));
    await pair.connection.barrier();
    expect(pair.first.told).toEqual(["sent"]);
    const next = pair.client.call();
    pair.connection.send(answerFrames(await pair.connection.request(), "answer"));
    expect(await next.end).toEqual(OK);
  });

  test("may be cancelled within each of its hooks: nothing follows", async () => {
    for (const during of ["sent", "answered"]) {
      await using pair = await startPair();
      const call = pair.client.newCall();
      call.on = (name) => name === during && call.cancel();
      pair.client.channel.start(call);
      const id = await pair.connection.request();
      pair.connection.send(
        responseFrame(id),
        dataFrame(id, Buffer.concat([grpcMessage("a"), grpcMessage("b")])),
      );
      pair.connection.send(trailersFrame(id));
      await pair.connection.barrier();
      expect(call.told.at(-1)).toBe(during);
      const frames = pair.connection.frames.filter(({ streamId }) => streamId === id).map(({ type }) => type);
      expect(frames).toEqual(
        during === "sent" ? ["HEADERS", "RST_STREAM"] : ["HEADERS", "DATA", "RST_STREAM"],
      );
    }
  });

  test("that another call's listener cancels is not told of the connection's end", async () => {
    await using pair = await startPair();
    const second = pair.client.call();
    pair.first.on = () => second.cancel();
    await pair.connection.request();
    pair.connection.reset();
    await pair.first.end;
    expect(second.told).toEqual(["sent"]);
  });

  test("before the connection is open is never sent", async () => {
    await using peer = await startPeer();
    const client = new PeerClient({ port: peer.port });
    const [cancelled, other] = client.calls(2);
    cancelled!.cancel();
    const connection = await peer.connection();
    connection.greet();
    const id = await connection.request();
    connection.send(answerFrames(id, "answer"));
    expect(await other!.end).toEqual(OK);
    await connection.barrier();
    expect([cancelled!.told, connection.all("HEADERS").length]).toEqual([[], 1]);
    expect(connection.all("RST_STREAM")).toEqual([]);
  });
});

describe("stream IDs", () => {
  test("when all are used, the next call goes to a new connection, and the old one ends with its last call", async () => {
    await using pair = await startPair({ firstStreamId: LAST_ID });
    expect(pair.id).toBe(LAST_ID);
    const next = pair.client.call();
    const second = await pair.peer.connection(1);
    second.greet();
    second.send(answerFrames(await second.request(), "second"));
    expect(await next.end).toEqual(OK);
    pair.connection.send(answerFrames(pair.id, "first"));
    expect(await pair.first.end).toEqual(OK);
    await pair.connection.closed;
  });

  test("calls that wait for the connection when its last ID is used were not processed", async () => {
    await using peer = await startPeer();
    const client = new PeerClient({ port: peer.port }, { firstStreamId: LAST_ID });
    const [first, second] = client.calls(2);
    const connection = await peer.connection();
    connection.greet();
    expect(await second!.end).toMatchObject({ failed: "retired", inDoubt: false });
    connection.send(answerFrames(await connection.request(), "answer"));
    expect(await first!.end).toEqual(OK);
  });
});
