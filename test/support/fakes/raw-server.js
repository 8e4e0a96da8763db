// A server that speaks HTTP/2 and gRPC's framing and sends whatever the test wants, including what no etcd would send.
import { once } from "node:events";
import http2 from "node:http2";

/**
 * The outcome of one call. `messages` are protobuf bytes; `frames` are sent as they are, without gRPC's five bytes.
 * @typedef {object} Answer
 * @property {readonly Uint8Array[]} [messages]
 * @property {Uint8Array} [frames]
 * @property {string | number} [status] default 0; of gRPC, in the trailers
 * @property {string} [details]
 * @property {http2.OutgoingHttpHeaders} [headers] merged over the usual ones
 * @property {"answer" | "silence" | "reset" | "go away" | "hang up" | "no trailers"} [how] default "answer"
 * @property {number} [error] HTTP/2's, of "reset" and "go away"; default INTERNAL_ERROR
 * @property {string} [debug] of "go away"
 */

/**
 * @typedef {object} Call
 * @property {string} method such as "Txn"
 * @property {http2.IncomingHttpHeaders} headers
 * @property {Buffer} request the first message; of a stream, the one that has just arrived
 * @property {boolean} streaming
 * @property {(answer: Answer) => void} say for streams: sends more answers on the same call, at any time
 */

const INTERNAL_ERROR = http2.constants.NGHTTP2_INTERNAL_ERROR;
const STREAMS = new Set(["Watch", "LeaseKeepAlive"]);

/** @param {Uint8Array} bytes */
export function framed(bytes) {
  const head = Buffer.alloc(5);
  head.writeUInt32BE(bytes.length, 1);
  return Buffer.concat([head, bytes]);
}

export class RawServer {
  #server;
  /** @type {Set<http2.ServerHttp2Session>} The open ones. */
  sessions = new Set();
  #answer;
  port = 0;
  /** The total number of accepted connections. */
  accepted = 0;

  /**
   * @param {(call: Call) => Answer} answer to each message of each call; only a `status` ends a stream
   * @param {http2.ServerOptions} [options]
   */
  constructor(answer, options = {}) {
    this.#server = http2.createServer(options);
    this.#answer = answer;
    this.#server.on("session", (session) => {
      this.sessions.add(session);
      this.accepted += 1;
      session.on("error", () => {});
      session.once("close", () => this.sessions.delete(session));
    });
    this.#server.on("stream", (stream, headers) => this.#called(stream, headers));
  }

  get endpoint() {
    return `http://127.0.0.1:${this.port}`;
  }

  async listen() {
    this.#server.listen(0, "127.0.0.1");
    await once(this.#server, "listening");
    this.port = /** @type {import("node:net").AddressInfo} */ (this.#server.address()).port;
  }

  /** @param {http2.ServerHttp2Stream} stream @param {http2.IncomingHttpHeaders} headers */
  #called(stream, headers) {
    const method = String(headers[":path"]).split("/").at(-1) ?? "";
    const streaming = STREAMS.has(method);
    const speaker = new Speaker(stream, streaming);
    const say = (/** @type {Answer} */ answer) => speaker.say(answer);
    let bytes = Buffer.alloc(0);
    stream.on("error", () => {});
    stream.on("data", (/** @type {Buffer} */ chunk) => {
      bytes = Buffer.concat([bytes, chunk]);
      while (bytes.length >= 5 && bytes.length >= 5 + bytes.readUInt32BE(1)) {
        const end = 5 + bytes.readUInt32BE(1);
        const request = bytes.subarray(5, end);
        bytes = bytes.subarray(end);
        say(this.#answer({ method, headers, request, streaming, say }));
      }
    });
  }

  async stop() {
    const closed = new Promise((resolve) => this.#server.close(resolve));
    for (const session of this.sessions) session.destroy();
    await closed;
  }
  async [Symbol.asyncDispose]() {
    await this.stop();
  }
}

/** The server's side of one call. */
class Speaker {
  #stream;
  #streaming;
  /** @type {http2.OutgoingHttpHeaders} */
  #trailers = {};

  /** @param {http2.ServerHttp2Stream} stream @param {boolean} streaming */
  constructor(stream, streaming) {
    this.#stream = stream;
    this.#streaming = streaming;
    stream.once("wantTrailers", () => stream.sendTrailers(this.#trailers));
  }

  /** @param {Answer} answer */
  say({
    messages = [],
    frames,
    status,
    details = "",
    headers,
    how = "answer",
    error = INTERNAL_ERROR,
    debug = "",
  }) {
    const stream = this.#stream;
    if (how === "silence" || stream.destroyed || stream.closed || stream.writableEnded) return;
    // Deferred: within the callback that reads the connection, Node 22 may abort the process (onread->IsFunction).
    if (how === "reset") return void setImmediate(() => stream.close(error));
    if (how === "go away")
      return void setImmediate(() => {
        stream.session?.goaway(error, 0, Buffer.from(debug));
        stream.session?.destroy();
      });
    if (how === "hang up") return void setImmediate(() => stream.session?.destroy());
    const usual = { ":status": 200, "content-type": "application/grpc" };
    if (!stream.headersSent)
      stream.respond({ ...usual, ...headers }, { waitForTrailers: how !== "no trailers" });
    this.#trailers = { "grpc-status": String(status ?? 0), "grpc-message": encodeURI(details) };
    for (const each of messages) stream.write(framed(each));
    if (frames) stream.write(frames);
    if (this.#streaming && status === undefined) return;
    // A web server does not wait for the rest of the request: it resets the stream after its answer.
    stream.end();
    if (how === "no trailers") setImmediate(() => stream.close(http2.constants.NGHTTP2_NO_ERROR));
  }
}

/** @param {ConstructorParameters<typeof RawServer>} options */
export async function startRawServer(...options) {
  const server = new RawServer(...options);
  await server.listen();
  return server;
}
