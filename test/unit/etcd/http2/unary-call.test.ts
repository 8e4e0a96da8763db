import { describe, expect, test } from "vitest";
import { EtcdRefusedError } from "../../../../src/errors.js";
import { UnaryStream } from "../../../../src/etcd/http2/stream.js";
import { type CallOptions, UnansweredError } from "../../../../src/etcd/port.js";
import {
  answerFrames,
  CODES,
  dataFrame,
  frame,
  goawayFrame,
  grpcMessage,
  headersFrame,
  responseFrame,
  rstFrame,
  SETTINGS,
  startPeer,
  trailersFrame,
} from "../../../support/servers/http2-peer.js";
import { settle } from "../../../support/fakes/fake-clock.js";
import { PeerClient, startPair, type Pair } from "../../../support/fixtures/peer-calls.js";

/** Starts a unary call whose answer is text; "bad" cannot be decoded. */
function start({ client }: Pick<Pair, "client">, options: Partial<CallOptions> = {}): Promise<string> {
  const decode = (message: Buffer): string => {
    if (message.toString() === "bad") throw new RangeError("bad");
    return message.toString();
  };
  const method = { path: "/test.Service/Method", decode };
  const request = { method, headers: client.headers, message: grpcMessage("request") };
  return new UnaryStream(client.peer, request, { timeoutMs: 1000, ...options }).run();
}

const unanswered = (text: string, inDoubt: boolean): unknown =>
  expect.objectContaining({ message: expect.stringContaining(text) as string, inDoubt });

/** What a call ends with if the peer sends that. */
async function outcome(frames: (id: number) => readonly Buffer[]): Promise<unknown> {
  await using pair = await startPair();
  const answer = start(pair);
  pair.connection.send(...frames(await pair.connection.request()));
  return await answer.catch((error: unknown) => error);
}

describe("a unary call", () => {
  test("resolves with the decoded answer", async () => {
    expect(await outcome((id) => [answerFrames(id, "answer")])).toBe("answer");
  });

  test("keeps its answer while other bytes arrive before the status", async () => {
    await using pair = await startPair();
    const { connection } = pair;
    const answer = start(pair);
    const id = await connection.request();
    connection.send(responseFrame(id), dataFrame(id, grpcMessage("answer")));
    await connection.barrier();
    connection.send(frame("UNKNOWN", 0, { payload: Buffer.alloc(1000, "z") }));
    await connection.barrier();
    connection.send(trailersFrame(id));
    expect(await answer).toBe("answer");
  });

  test.each<[string, (id: number) => readonly Buffer[], string]>([
    [
      "with two messages",
      (id) => [responseFrame(id), ...["a", "b"].map((each) => dataFrame(id, grpcMessage(each)))],
      "more than one answer",
    ],
    [
      "with two messages in one frame",
      (id) => [
        responseFrame(id),
        dataFrame(id, Buffer.concat([grpcMessage("a"), grpcMessage("b")])),
        trailersFrame(id),
      ],
      "more than one answer",
    ],
    ["without a message", (id) => [responseFrame(id), trailersFrame(id)], "without a message"],
    ["that cannot be decoded", (id) => [answerFrames(id, "bad")], "malformed response"],
    [
      "without a status",
      (id) => [responseFrame(id), dataFrame(id, grpcMessage("a"), { endStream: true })],
      "without a status",
    ],
    ["that is reset", (id) => [rstFrame(id, CODES.INTERNAL)], "reset the call"],
  ])("whose answer comes %s is in doubt", async (_, frames, text) => {
    const error = await outcome(frames);
    expect(error).toBeInstanceOf(UnansweredError);
    expect(error).toEqual(unanswered(text, true));
  });

  test.each<[string, (id: number) => readonly Buffer[]]>([
    ["REFUSED_STREAM", (id) => [rstFrame(id, CODES.REFUSED_STREAM)]],
    ["a GOAWAY below it", () => [goawayFrame(1, CODES.INTERNAL)]],
  ])("that ends with %s was not processed", async (_, frames) => {
    expect(await outcome(frames)).toMatchObject({ name: "UnansweredError", inDoubt: false });
  });

  test("that ends with ENHANCE_YOUR_CALM says so", async () => {
    const calm = await outcome((id) => [rstFrame(id, CODES.ENHANCE_YOUR_CALM)]);
    expect(calm).toMatchObject({ kind: "calm" });
    expect(calm).toMatchObject({ inDoubt: true });
  });

  test("rejects with etcd's own refusal", async () => {
    const error = await outcome((id) => [
      headersFrame(
        id,
        [
          [":status", "200"],
          ["content-type", "application/grpc"],
          ["grpc-status", "7"],
          ["grpc-message", "etcdserver: permission denied"],
        ],
        { endStream: true },
      ),
    ]);
    expect(error).toBeInstanceOf(EtcdRefusedError);
  });

  test("ends at its time limit, is reset, and is in doubt", async () => {
    await using pair = await startPair();
    const answer = start(pair);
    const id = await pair.connection.request();
    pair.client.clock.advance(1002);
    await expect(answer).rejects.toEqual(unanswered("no answer within 1000 ms", true));
    expect((await pair.connection.next("RST_STREAM")).streamId).toBe(id);
  });

  test("that was not sent when its time is over is not in doubt", async () => {
    await using pair = await startPair({ settings: [[SETTINGS.MAX_CONCURRENT_STREAMS, 1]] });
    const answer = start(pair);
    pair.client.clock.advance(1002);
    const why =
      "not sent within 1000 ms: the member allows no more streams on a connection (MAX_CONCURRENT_STREAMS: 1)";
    await expect(answer).rejects.toEqual(unanswered(why, false));
  });

  test("that a leaving peer turned away is not in doubt while it waits for another connection", async () => {
    await using pair = await startPair();
    const answer = start(pair);
    await pair.connection.request();
    pair.connection.send(goawayFrame(pair.id, CODES.NO_ERROR));
    await pair.peer.connection(1);
    pair.client.clock.advance(1002);
    await expect(answer).rejects.toEqual(unanswered("no connection within 1000 ms", false));
  });

  test("that found no connection says so when its time is over", async () => {
    await using peer = await startPeer();
    const client = new PeerClient({ port: peer.port });
    const answer = start({ client });
    client.clock.advance(1002);
    await expect(answer).rejects.toEqual(unanswered("no connection within 1000 ms", false));
  });

  test("is in doubt from onSent on when its caller gives up", async () => {
    await using pair = await startPair();
    const abort = new AbortController();
    let sent = 0;
    const answer = start(pair, { signal: abort.signal, onSent: () => sent++ });
    const id = await pair.connection.request();
    expect(sent).toBe(1);
    abort.abort();
    await expect(answer).rejects.toMatchObject({ kind: "cancelled" });
    await expect(answer).rejects.toMatchObject({ inDoubt: true });
    pair.connection.send(answerFrames(id, "too late"));
    await pair.connection.barrier();
  });

  test("is not sent if its caller has given up", async () => {
    await using pair = await startPair();
    await expect(start(pair, { signal: AbortSignal.abort() })).rejects.toMatchObject({ inDoubt: false });
    await pair.connection.barrier();
    expect(pair.connection.all("HEADERS")).toHaveLength(1);
  });

  test("whose caller gives up within onSent is reset, and settles once", async () => {
    await using pair = await startPair();
    const abort = new AbortController();
    const answer = start(pair, { signal: abort.signal, onSent: () => abort.abort() });
    await expect(answer).rejects.toMatchObject({ kind: "cancelled", inDoubt: true });
    await pair.connection.next("RST_STREAM");
    await pair.connection.barrier();
    expect(pair.connection.all("DATA")).toHaveLength(1);
  });

  test("is not sent in the place of one that ends with the same abort", async () => {
    await using pair = await startPair({ settings: [[SETTINGS.MAX_CONCURRENT_STREAMS, 2]] });
    const abort = new AbortController();
    const { signal } = abort;
    const sent: number[] = [];
    const calls = [1, 2].map((n) => start(pair, { signal, onSent: () => void sent.push(n) }));
    await pair.connection.request();
    abort.abort();
    await expect(calls[0]).rejects.toMatchObject({ kind: "cancelled", inDoubt: true });
    await expect(calls[1]).rejects.toMatchObject({ kind: "cancelled", inDoubt: false });
    await pair.connection.next("RST_STREAM");
    await pair.connection.barrier();
    expect(sent).toEqual([1]);
  });

  test("leaves neither a timer nor a listener", async () => {
    await using pair = await startPair();
    const abort = new AbortController();
    const answer = start(pair, { signal: abort.signal });
    pair.connection.send(answerFrames(await pair.connection.request(), "answer"));
    expect(await answer).toBe("answer");
    abort.abort();
    pair.client.clock.advance(2000);
    await settle();
    expect(pair.connection.all("RST_STREAM")).toEqual([]);
  });
});
