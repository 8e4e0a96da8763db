import { describe, expect, test } from "vitest";
import {
  answerFrames,
  dataFrame,
  FLAGS,
  grpcMessage,
  headersFrame,
  RESPONSE,
  responseFrame,
  trailersFrame,
} from "../../../support/servers/http2-peer.js";
import { OK, startPair, type Pair, says } from "../../../support/fixtures/peer-calls.js";

type Header = readonly [string, string];
const HTML: readonly Header[] = [
  [":status", "200"],
  ["content-type", "text/html"],
];
const message = (id: number, text: string): Buffer => dataFrame(id, grpcMessage(text));

/** How the first call ends if the peer sends that on its stream, and a second call afterwards. */
async function endOf(pair: Pair, frames: (id: number) => readonly Buffer[]): Promise<unknown> {
  pair.connection.send(...frames(pair.id));
  const end = await pair.first.end;
  const next = pair.client.call();
  pair.connection.send(answerFrames(await pair.connection.request(), "next"));
  expect([await next.end, next.texts]).toEqual([OK, ["next"]]);
  return end;
}

describe("an answer to a gRPC call", () => {
  test("has its status in the trailers", async () => {
    await using pair = await startPair();
    const end = await endOf(pair, (id) => [
      responseFrame(id),
      message(id, "answer"),
      trailersFrame(id, "14", [["grpc-message", "etcdserver: too many requests"]]),
    ]);
    expect(end).toEqual({ status: 14, details: "etcdserver: too many requests" });
    expect(pair.first.texts).toEqual(["answer"]);
  });

  test("may consist of trailers only", async () => {
    await using pair = await startPair();
    const trailers: readonly Header[] = [...RESPONSE, ["grpc-status", "7"], ["grpc-message", "no"]];
    expect(await endOf(pair, (id) => [headersFrame(id, trailers, { endStream: true })])).toEqual({
      status: 7,
      details: "no",
    });
    expect(pair.first.texts).toEqual([]);
  });

  test("may come in content types of gRPC with a suffix", async () => {
    for (const type of ["application/grpc+proto", "application/grpc;charset=utf-8"]) {
      await using pair = await startPair();
      const headers: readonly Header[] = [
        [":status", "200"],
        ["content-type", type],
      ];
      const end = await endOf(pair, (id) => [headersFrame(id, headers), message(id, "a"), trailersFrame(id)]);
      expect(end).toEqual(OK);
    }
  });

  test("may follow interim headers", async () => {
    await using pair = await startPair();
    const interim = (id: number, status: string): Buffer => headersFrame(id, [[":status", status]]);
    const end = await endOf(pair, (id) => [
      interim(id, "100"),
      interim(id, "103"),
      answerFrames(id, "answer"),
    ]);
    expect([end, pair.first.texts]).toEqual([OK, ["answer"]]);
  });

  test("may have several messages, or none: the caller is told of each", async () => {
    await using pair = await startPair();
    const both = Buffer.concat([grpcMessage("a"), grpcMessage(""), grpcMessage("b")]);
    await endOf(pair, (id) => [responseFrame(id), dataFrame(id, both), trailersFrame(id)]);
    expect(pair.first.texts).toEqual(["a", "", "b"]);
  });

  test.each([
    ["percent encoding of UTF-8", "caf%C3%A9 %E2%82%AC 100%25", "café € 100%"],
    ["no encoding", "plain: text", "plain: text"],
    ["an encoding that is cut off", "50% off %", "50% off %"],
    ["an encoding that is no UTF-8", "%FF%FE", "%FF%FE"],
  ])("has a message with %s", async (_, sent, details) => {
    await using pair = await startPair();
    const end = await endOf(pair, (id) => [
      responseFrame(id),
      trailersFrame(id, "2", [["grpc-message", sent]]),
    ]);
    expect(end).toEqual({ status: 2, details });
  });
});

describe("an answer that is not gRPC's", () => {
  test.each([
    ["a web server's page", HTML, 2],
    [
      "a proxy's 503",
      [
        [":status", "503"],
        ["content-type", "text/plain"],
      ],
      14,
    ],
    ["a proxy's 502 without a type", [[":status", "502"]], 14],
    [
      "a 404",
      [
        [":status", "404"],
        ["content-type", "text/plain"],
      ],
      12,
    ],
    [
      "a redirect",
      [
        [":status", "302"],
        ["location", "/login"],
      ],
      2,
    ],
    [
      "gRPC-Web",
      [
        [":status", "200"],
        ["content-type", "application/grpc-web"],
      ],
      2,
    ],
    ["headers without a status", [["content-type", "application/grpc"]], 2],
  ] as const)(
    "%s: the call ends with the status that gRPC derives, and says what came",
    async (_, headers, status) => {
      for (const endStream of [true, false]) {
        await using pair = await startPair();
        const end = await endOf(pair, (id) => [
          headersFrame(id, headers, { endStream }),
          ...(endStream ? [] : [dataFrame(id, Buffer.from("<html>"), { endStream: true })]),
        ]);
        expect(end).toMatchObject({
          status,
          details: says(/HTTP status .* is this etcd\?/),
        });
        expect(pair.first.texts).toEqual([]);
      }
    },
  );

  test("a gRPC server may explain an HTTP error", async () => {
    await using pair = await startPair();
    const headers: readonly Header[] = [
      [":status", "503"],
      ["content-type", "application/grpc"],
      ["grpc-status", "8"],
      ["grpc-message", "quota"],
    ];
    expect(await endOf(pair, (id) => [headersFrame(id, headers, { endStream: true })])).toEqual({
      status: 8,
      details: "quota",
    });
  });
});

test("a server with compression switched on may answer uncompressed: the flag of each message decides", async () => {
  await using pair = await startPair();
  const announced = (id: number) => headersFrame(id, [...RESPONSE, ["grpc-encoding", "gzip"]]);
  expect(await endOf(pair, (id) => [announced(id), message(id, "plain"), trailersFrame(id)])).toEqual(OK);
  expect(pair.first.texts).toEqual(["plain"]);
});

describe("an answer that breaks gRPC's rules fails its call alone", () => {
  const compressed = Buffer.of(1, 0, 0, 0, 1, 9);
  test.each<[string, (id: number) => readonly Buffer[], RegExp]>([
    [
      "data that ends the stream",
      (id) => [responseFrame(id), dataFrame(id, grpcMessage("a"), { endStream: true })],
      /without a status/,
    ],
    [
      "headers that end the stream without a status",
      (id) => [headersFrame(id, RESPONSE, { endStream: true })],
      /without a status/,
    ],
    [
      "trailers without a status",
      (id) => [responseFrame(id), headersFrame(id, [["x", "y"]], { endStream: true })],
      /without a status/,
    ],
    ["a status that is no number", (id) => [responseFrame(id), trailersFrame(id, "OK")], /without a status/],
    [
      "two statuses",
      (id) => [responseFrame(id), trailersFrame(id, "0", [["grpc-status", "0"]])],
      /without a status/,
    ],
    ["headers twice", (id) => [responseFrame(id), responseFrame(id)], /in the middle/],
    [
      "trailers that do not end the stream",
      (id) => [responseFrame(id), headersFrame(id, [["grpc-status", "0"]])],
      /in the middle/,
    ],
    ["data before headers", (id) => [message(id, "a")], /before headers/],
    ["a compressed message", (id) => [responseFrame(id), dataFrame(id, compressed)], /compressed/],
    [
      "a compressed message of a server that announced it",
      (id) => [headersFrame(id, [...RESPONSE, ["grpc-encoding", "gzip"]]), dataFrame(id, compressed)],
      /compressed/,
    ],
    [
      "an end inside a message",
      (id) => [responseFrame(id), dataFrame(id, grpcMessage("abc").subarray(0, 6)), trailersFrame(id)],
      /inside a message/,
    ],
    [
      "an end inside the prefix of a message",
      (id) => [responseFrame(id), dataFrame(id, Buffer.alloc(2)), trailersFrame(id)],
      /inside a message/,
    ],
  ])("%s", async (_, frames, text) => {
    await using pair = await startPair();
    expect(await endOf(pair, frames)).toEqual({
      failed: "protocol",
      text: says(text),
      inDoubt: true,
    });
    expect(pair.first.told.filter((each) => each === "failed" || each === "ended")).toEqual(["failed"]);
  });

  test("and resets its stream, if it is open", async () => {
    await using pair = await startPair();
    await endOf(pair, (id) => [responseFrame(id), responseFrame(id)]);
    expect((await pair.connection.next("RST_STREAM")).streamId).toBe(pair.id);
  });

  test("an error status after a part of a message is an answer", async () => {
    await using pair = await startPair();
    const part = grpcMessage("abc").subarray(0, 6);
    const end = await endOf(pair, (id) => [responseFrame(id), dataFrame(id, part), trailersFrame(id, "13")]);
    expect(end).toEqual({ status: 13, details: "" });
  });
});

describe("a stream", () => {
  test("sends and receives messages until one side ends it", async () => {
    await using pair = await startPair();
    const stream = pair.client.stream();
    const id = await pair.connection.request();
    stream.write(grpcMessage("one"));
    expect((await pair.connection.body(id, 8)).toString("latin1", 5)).toBe("one");
    pair.connection.send(responseFrame(id), message(id, "two"));
    stream.write(grpcMessage("three"));
    expect((await pair.connection.body(id, 18)).toString("latin1", 13)).toBe("three");
    pair.connection.send(trailersFrame(id, "1"));
    expect([await stream.end, stream.texts]).toEqual([{ status: 1, details: "" }, ["two"]]);
    // This side of the stream is open.
    expect((await pair.connection.next("RST_STREAM")).streamId).toBe(id);
    stream.write(grpcMessage("nothing"));
    await pair.connection.barrier();
    expect(pair.connection.bodySoFar(id)).toHaveLength(18);
    const data = pair.connection.all("DATA").filter(({ streamId }) => streamId === id);
    expect(data.some(({ flags }) => flags & FLAGS.END_STREAM)).toBe(false);
  });
});

describe("a hook that throws", () => {
  /** The errors that `run` leaves uncaught. */
  async function uncaught(run: () => Promise<void>): Promise<unknown[]> {
    const errors: unknown[] = [];
    const others = process.listeners("uncaughtException");
    process.removeAllListeners("uncaughtException");
    process.on("uncaughtException", (error) => errors.push(error));
    try {
      await run();
    } finally {
      process.removeAllListeners("uncaughtException");
      for (const other of others) process.on("uncaughtException", other);
    }
    return errors;
  }

  test.each(["sent", "answered", "ended"])("in %s() harms no other call of its connection", async (name) => {
    await using pair = await startPair();
    const calls = [pair.client.newCall(), pair.client.newCall()] as const;
    const mistake = new Error("a mistake");
    calls[0].on = (told) => {
      if (told === name) throw mistake;
    };
    const errors = await uncaught(async () => {
      for (const call of calls) pair.client.channel.start(call);
      const ids = [pair.id, await pair.connection.request(), await pair.connection.request()];
      const bytes = Buffer.concat(ids.map((id) => answerFrames(id, "answer")));
      await pair.connection.sendSplit(bytes, [bytes.length - 4]);
      for (const { end } of [pair.first, ...calls]) expect(await end).toEqual(OK);
      await pair.connection.barrier();
    });
    expect(errors).toEqual([mistake]);
  });

  test("in failed() keeps no other call from ending", async () => {
    await using pair = await startPair();
    const [second] = pair.client.calls(1);
    await pair.connection.request();
    const mistake = new Error("a mistake");
    pair.first.on = () => {
      throw mistake;
    };
    const errors = await uncaught(async () => {
      pair.connection.reset();
      expect(await second!.end).toMatchObject({ failed: "lost" });
    });
    expect(errors).toEqual([mistake]);
  });
});
