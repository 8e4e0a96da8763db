import { encodeHeaders } from "../http2/frames/hpack.js";
import type { Target } from "../http2/socket.js";

type Header = readonly [name: string, value: string];

/**
 * The header blocks of requests, encoded. The block of a method is the same for every call, but for the token: the blocks
 * of the present token are kept.
 */
export class RequestHeaders {
  readonly #blocks = new Map<string, Buffer>();
  #token: string | undefined;

  constructor(private readonly target: Omit<Target, "turn">) {}

  /** For a unary call of `path`. */
  of(path: string, token: string | undefined): Buffer {
    this.#use(token);
    return this.#blocks.get(path) ?? this.#encode(path, []);
  }

  /** For a stream: a member that is cut off from its peers ends it after some seconds instead of staying silent. */
  ofStream(path: string, token: string | undefined): Buffer {
    this.#use(token);
    return this.#blocks.get(path) ?? this.#encode(path, [["hasleader", "true"]]);
  }

  #use(token: string | undefined): void {
    if (token === this.#token) return;
    this.#token = token;
    this.#blocks.clear();
  }

  #encode(path: string, added: readonly Header[]): Buffer {
    const { hostname, port, tls } = this.target;
    const name = tls?.serverName ?? (hostname.includes(":") ? `[${hostname}]` : hostname);
    const block = encodeHeaders([
      [":method", "POST"],
      [":scheme", tls ? "https" : "http"],
      [":path", path],
      [":authority", `${name}:${port}`],
      ["content-type", "application/grpc"],
      ["user-agent", "leasehold"],
      ["te", "trailers"],
      ...added,
      ...(this.#token === undefined ? [] : ([["token", this.#token]] as const)),
    ]);
    this.#blocks.set(path, block);
    return block;
  }
}
