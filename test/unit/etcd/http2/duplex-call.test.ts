import { describe, expect, test } from "vitest";
import { DuplexStream } from "../../../../src/etcd/http2/stream.js";
import {
  CODES,
  dataFrame,
  grpcMessage,
  responseFrame,
  rstFrame,
  SETTINGS,
  settingsFrame,
  startPeer,
  trailersFrame,
} from "../../../support/servers/http2-peer.js";
import { settle } from "../../../support/fakes/fake-clock.js";
import { PeerClient, startPair } from "../../../support/fixtures/peer-calls.js";

class RecordedStream {
  readonly answers: string[] = [];
  readonly errors: Error[] = [];
  readonly stream: DuplexStream<string>;
  onAnswer: () => void = () => {};

  constructor(client: PeerClient) {
    const decode = (message: Buffer): string => {
      if (message.toString() === "bad") throw new RangeError("bad");
      return message.toString();
    };
    const method = { path: "/test.Service/Method", decode };
    const request = { method, headers: client.headers };
    this.stream = new DuplexStream(client.peer, request, {
      answer: (answer) => {
        this.answers.push(answer);
        this.onAnswer();
      },
      ended: (error) => void this.errors.push(error),
    });
  }
}

const messages = (id: number, ...texts: string[]): Buffer =>
  Buffer.concat([responseFrame(id), dataFrame(id, Buffer.concat(texts.map(grpcMessage)))]);

describe("a bidirectional stream", () => {
  test("says what it waits for if the member allows no more streams, until it is open", async () => {
    await using pair = await startPair({ settings: [[SETTINGS.MAX_CONCURRENT_STREAMS, 1]] });
    const { stream } = new RecordedStream(pair.client);

    expect(stream.holdUp).toBe(
      "the member allows no more streams on a connection (MAX_CONCURRENT_STREAMS: 1)",
    );
    pair.connection.send(settingsFrame([[SETTINGS.MAX_CONCURRENT_STREAMS, 2]]));
    await pair.connection.request();
    expect(stream.holdUp).toBeUndefined();
  });

  test("keeps what is written before the connection is open", async () => {
    await using peer = await startPeer();
    const { stream } = new RecordedStream(new PeerClient({ port: peer.port }));
    stream.write(grpcMessage("one"));
    stream.write(grpcMessage("two"));
    const connection = await peer.connection();
    connection.greet();
    const body = await connection.body(await connection.request(), 16);
    expect(body).toEqual(Buffer.concat([grpcMessage("one"), grpcMessage("two")]));
  });

  test("answers until it is closed, also within an answer", async () => {
    await using pair = await startPair();
    const recorded = new RecordedStream(pair.client);
    recorded.onAnswer = () => recorded.answers.length === 2 && recorded.stream.close();
    const id = await pair.connection.request();
    pair.connection.send(messages(id, "a", "b", "c"), trailersFrame(id));
    expect((await pair.connection.next("RST_STREAM")).payload.readUInt32BE(0)).toBe(CODES.CANCEL);
    await pair.connection.barrier();
    recorded.stream.close();
    recorded.stream.write(grpcMessage("nothing"));
    await pair.connection.barrier();
    expect([recorded.answers, recorded.errors]).toEqual([["a", "b"], []]);
    expect(pair.connection.bodySoFar(id)).toHaveLength(0);
  });

  test.each<[string, (id: number) => readonly Buffer[], string]>([
    ["an answer that cannot be decoded", (id) => [messages(id, "bad", "b")], "malformed response"],
    ["a status of success", (id) => [responseFrame(id), trailersFrame(id)], "ended the stream"],
    [
      "a status of failure",
      (id) => [responseFrame(id), trailersFrame(id, "14", [["grpc-message", "etcdserver: no leader"]])],
      "no leader",
    ],
    ["a reset", (id) => [rstFrame(id, CODES.INTERNAL)], "reset the call"],
    ["compressed data", (id) => [responseFrame(id), dataFrame(id, Buffer.of(1, 0, 0, 0, 0))], "compressed"],
  ])("ends once, with the reason, after %s", async (_, frames, text) => {
    await using pair = await startPair();
    const recorded = new RecordedStream(pair.client);
    const id = await pair.connection.request();
    pair.connection.send(...frames(id), rstFrame(id, CODES.CANCEL));
    await pair.connection.barrier();
    recorded.stream.close();
    expect(recorded.answers).toEqual([]);
    expect(recorded.errors.map(({ message }) => message)).toEqual([expect.stringContaining(text)]);
  });

  test("on a connection that has failed ends after its constructor has returned", async () => {
    await using pair = await startPair();
    pair.connection.reset();
    await pair.first.end;
    const recorded = new RecordedStream(pair.client);
    expect(recorded.errors).toEqual([]);
    await settle();
    expect(recorded.errors).toHaveLength(1);
  });
});
