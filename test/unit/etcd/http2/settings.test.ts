// Each setting of a peer, against the server of node:http2 (nghttp2), which enforces it once the client has acknowledged it.
import { once } from "node:events";
import http2 from "node:http2";
import { describe, expect, test } from "vitest";
import { startRawServer } from "../../../support/fakes/raw-server.js";
import { OK, PeerClient, says } from "../../../support/fixtures/peer-calls.js";

/** Answers each call. `settings` are its first; `change` sends others, and resolves when the client has acknowledged them. */
async function startNode(settings: http2.Settings) {
  const server = await startRawServer(() => ({ messages: [Buffer.from("answer")] }), { settings });
  const client = new PeerClient({ port: server.port });
  const change = async (later: http2.Settings): Promise<void> => {
    const [session] = server.sessions;
    const settled = once(session!, "localSettings");
    session!.settings(later);
    await settled;
  };
  return { client, change, server, [Symbol.asyncDispose]: () => server.stop() };
}

type Node = Awaited<ReturnType<typeof startNode>>;

/** One call after the other, so that the settings are acknowledged before the second, and then many at once. */
async function expectAnswers(
  { client, server }: Node,
  texts: readonly string[] = ["request"],
): Promise<void> {
  for (let n = 0; n < 3; n++) for (const text of texts) expect(await client.call(text).end).toEqual(OK);
  const calls = Array.from({ length: 50 }, (_, n) => client.call(texts[n % texts.length]));
  for (const call of calls) expect(await call.end).toEqual(OK);
  expect(server.accepted).toBe(1);
}

const LONG = "x".repeat(100_000);

describe.concurrent("a server of node:http2 that announces", () => {
  test.for([0, 1, 100, 4095, 4096, 65_536])("HEADER_TABLE_SIZE %i", async (headerTableSize) => {
    await using node = await startNode({ headerTableSize });
    await expectAnswers(node);
  });

  test("HEADER_TABLE_SIZE, and lowers it, raises it and lowers it again", async () => {
    await using node = await startNode({});
    await expectAnswers(node);
    for (const headerTableSize of [100, 4096, 0, 65_536, 4095]) {
      await node.change({ headerTableSize });
      await expectAnswers(node);
    }
  });

  test("INITIAL_WINDOW_SIZE, and changes it", async () => {
    await using node = await startNode({ initialWindowSize: 1000 });
    await expectAnswers(node, ["request", LONG]);
    for (const initialWindowSize of [3, 2 ** 31 - 1, 0, 5000]) {
      await node.change({ initialWindowSize });
      if (initialWindowSize > 0)
        await expectAnswers(node, ["request", initialWindowSize > 100 ? LONG : "short"]);
    }
  });

  test.for([16_384, 20_000, 2 ** 24 - 1])("MAX_FRAME_SIZE %i", async (maxFrameSize) => {
    await using node = await startNode({ maxFrameSize, initialWindowSize: 2 ** 20 });
    await expectAnswers(node, ["request", LONG]);
  });

  test("MAX_CONCURRENT_STREAMS, and changes it", async () => {
    await using node = await startNode({ maxConcurrentStreams: 5 });
    await expectAnswers(node);
    for (const maxConcurrentStreams of [1, 100, 2]) {
      await node.change({ maxConcurrentStreams });
      await expectAnswers(node);
    }
  });

  test("MAX_HEADER_LIST_SIZE below that of a request", async () => {
    await using node = await startNode({ maxHeaderListSize: 100 });
    // Sent before the settings are known.
    await node.client.call().end;
    const text = says(/100 bytes of headers at most \(MAX_HEADER_LIST_SIZE\), and a request has 3\d\d/);
    expect(await node.client.call().end).toEqual({ failed: "forbidden", inDoubt: false, text });
    await node.change({ maxHeaderListSize: 10_000 });
    await expectAnswers(node);
  });
});
