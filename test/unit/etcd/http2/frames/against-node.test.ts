// Our header blocks against those of node:http2, which uses nghttp2: each reads what the other writes.
import { once } from "node:events";
import http2 from "node:http2";
import net from "node:net";
import fc from "fast-check";
import { afterAll, beforeAll, describe, expect, test } from "vitest";
import {
  CONNECTION_PREFACE,
  FLAG,
  type Frame,
  FRAME,
  FrameReader,
  headerBlockOf,
  headersFrames,
  SETTING,
  settingsAckFrame,
  settingsFrame,
} from "../../../../../src/etcd/http2/frames.js";
import { encodeHeaders, HeaderDecoder, STATIC_TABLE } from "../../../../../src/etcd/http2/hpack.js";

type Pair = readonly [name: string, value: string];

type Received = http2.IncomingHttpHeaders & { readonly [http2.sensitiveHeaders]?: string[] };

const MAX_FRAME = 16_384;
/** The types of Node.js do not know `sendDate`. */
const LAST = { endStream: true, sendDate: false };

/** A client with our frames and a server of node:http2, on one connection. */
class Exchange {
  readonly #server = http2.createServer();
  readonly #socket = new net.Socket();
  readonly #decoder = new HeaderDecoder(1 << 20);
  #lastStreamId = -1;
  #answer: readonly Pair[] = [];
  #received: readonly Pair[] = [];
  #sensitive: readonly string[] = [];
  #answered: (headers: ReadonlyMap<string, string>) => void = () => undefined;
  #failed: (error: Error) => void = () => undefined;

  async open(): Promise<void> {
    this.#server.on(
      "stream",
      (stream: http2.ServerHttp2Stream, headers: Received, _flags: number, raw: string[]) => {
        this.#received = raw.flatMap((name, at) => (at % 2 === 0 ? [[name, raw[at + 1]!] as const] : []));
        this.#sensitive = headers[http2.sensitiveHeaders] ?? [];
        const answer: Record<string, string[]> = {};
        for (const [name, value] of this.#answer) (answer[name] ??= []).push(value);
        stream.respond(answer, LAST);
      },
    );
    this.#server.listen(0, "127.0.0.1");
    await once(this.#server, "listening");
    const reader = new FrameReader({ frame: (frame) => this.#read(frame) }, MAX_FRAME);
    this.#socket.on("data", (chunk: Buffer) => reader.read(chunk));
    this.#socket.connect((this.#server.address() as net.AddressInfo).port, "127.0.0.1");
    this.#socket.write(CONNECTION_PREFACE);
    this.#socket.write(settingsFrame([[SETTING.HEADER_TABLE_SIZE, 0]]));
  }

  /** What the server received of the headers that were sent, and what was decoded of its answer. */
  async call(sent: readonly Pair[], answer: readonly Pair[]) {
    this.#answer = answer;
    const answered = new Promise<ReadonlyMap<string, string>>((resolve, reject) => {
      this.#answered = resolve;
      this.#failed = reject;
    });
    this.#lastStreamId += 2;
    const block = encodeHeaders(sent);
    // Small frames, so that large blocks need CONTINUATION: nghttp2 accepts 8 of them.
    this.#socket.write(headersFrames(this.#lastStreamId, block, { endStream: true, maxFrameSize: 400 }));
    const decoded = await answered;
    return { received: this.#received, sensitive: this.#sensitive, decoded };
  }

  close(): void {
    this.#socket.destroy();
    this.#server.close();
  }

  #read(frame: Frame): void {
    if (frame.type === FRAME.SETTINGS && !(frame.flags & FLAG.ACK)) this.#socket.write(settingsAckFrame());
    if (frame.type === FRAME.HEADERS) this.#answered(this.#decoder.decode(headerBlockOf(frame)));
    if (frame.type === FRAME.GOAWAY || frame.type === FRAME.RST_STREAM) {
      this.#failed(new Error(`frame ${frame.type} with ${frame.payload.toString("hex")}`));
    }
  }
}

const exchange = new Exchange();
beforeAll(() => exchange.open());
afterAll(() => exchange.close());

const REQUEST: readonly Pair[] = [
  [":method", "POST"],
  [":scheme", "http"],
  [":path", "/etcdserverpb.KV/Txn"],
  [":authority", "127.0.0.1:2379"],
];

const chars = (first: number, last: number) =>
  fc.integer({ min: first, max: last }).map((code) => String.fromCharCode(code));
/** No space at an end, where HTTP permits none. */
const valueOf = (unit: fc.Arbitrary<string>) =>
  fc.string({ unit, maxLength: 200, size: "max" }).map((value) => value.trim());
const names = fc.oneof(
  fc.constantFrom("accept-encoding", "content-type", "grpc-timeout", "hasleader", "user-agent"),
  fc
    .string({ unit: fc.constantFrom(..."abcxyz0189-_."), minLength: 1, maxLength: 20 })
    .map((rest) => `x-${rest}`),
);
/** Names are unique: node:http2 joins or refuses some that are not. */
const pairsOf = (values: fc.Arbitrary<string>) =>
  fc.uniqueArray(fc.tuple(names, values), { maxLength: 8, selector: ([name]) => name });

describe("node:http2", () => {
  test("reads what we encode, and we decode what it answers", async () => {
    const ascii = pairsOf(valueOf(chars(0x20, 0x7e)));
    const latin1 = pairsOf(valueOf(chars(0x20, 0xff).filter((char) => char < "\x7f" || char >= "\xa1")));
    await fc.assert(
      fc.asyncProperty(ascii, latin1, fc.constantFrom("200", "404", "418"), async (sent, answer, status) => {
        const all = [...REQUEST, ...sent];
        const answered: readonly Pair[] = [[":status", status], ...answer];
        const { received, decoded } = await exchange.call(all, answered);

        expect(received).toEqual(all);
        expect(new Map(decoded)).toEqual(new Map(answered));
      }),
      { numRuns: 100 },
    );
  });

  test("has the same static table", async () => {
    const usual = STATIC_TABLE.filter(([name]) => !name.startsWith(":") && name !== "transfer-encoding");
    const filled = usual.map(([name, value]) => [name, value || "0"] as const);
    const sent: readonly Pair[] = [
      ...STATIC_TABLE.filter(([, value]) => ["GET", "/index.html", "https"].includes(value)),
      ...[[":authority", "a"] as const, ...filled],
    ];
    expect((await exchange.call(sent, [[":status", "200"]])).received).toEqual(sent);

    const statuses = STATIC_TABLE.filter(([name]) => name === ":status").map(([, status]) => status);
    expect(statuses).toEqual(["200", "204", "206", "304", "400", "404", "500"]);
    for (const status of statuses) {
      const { decoded } = await exchange.call(REQUEST, [[":status", status]]);
      expect(decoded.get(":status")).toBe(status);
    }
  });

  test("decodes our secrets as never indexed", async () => {
    const secrets: readonly Pair[] = [
      ["authorization", "Basic eA=="],
      ["token", "simple.1"],
      ["hasleader", "true"],
    ];
    const { received, sensitive } = await exchange.call([...REQUEST, ...secrets], [[":status", "200"]]);

    expect(received).toEqual([...REQUEST, ...secrets]);
    expect(sensitive).toEqual(["authorization", "token"]);
  });

  test("sends each byte of a value in a Huffman string that we decode", async () => {
    const bytes = Array.from({ length: 256 }, (_, code) => code).filter(
      (code) => code >= 0x20 && code !== 0x7f,
    );
    for (const code of bytes) {
      // short codes around it: nghttp2 uses Huffman code only where that saves bytes
      const value = `${"e".repeat(20)}${String.fromCharCode(code)}${"o".repeat(20)}`;
      const { decoded } = await exchange.call(REQUEST, [
        [":status", "200"],
        ["x-value", value],
      ]);

      expect(decoded.get("x-value")).toBe(value);
    }
  });
});
