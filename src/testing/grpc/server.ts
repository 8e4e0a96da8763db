// gRPC over HTTP/2 without TLS (PROTOCOL-HTTP2.md), by Node.js' own HTTP/2: the calls of etcd's clients, each handed to its method.
import type { IncomingHttpHeaders, ServerHttp2Stream } from "node:http2";
import { once } from "node:events";
import type { AddressInfo, Server, Socket } from "node:net";
import { MessageReader } from "../../etcd/http2/stream.js";
import { isRefusal, type Refusal } from "../memory/protocol.js";
import { decode, encode, type Message } from "./codec.js";

/** The codes of gRPC that this file gives. */
const [RESOURCE_EXHAUSTED, UNIMPLEMENTED, INTERNAL] = [8, 12, 13];
/** How each connection of HTTP/2 begins, even if it comes byte by byte: no request of HTTP/1.1 begins like this. */
const PREFACE = "PRI * HTTP/2.0\r\n";
/** etcd's limit of a request, 1.5 MiB, and what it adds for gRPC (embed/config.go, api/v3rpc/grpc.go). */
const MAX_MESSAGE_BYTES = (1.5 * 1024 + 512) * 1024;
/** What a client may leave unread before its call ends. */
const MAX_UNREAD_BYTES = 256 * 1024 * 1024;

/** What a call was sent with. */
export interface Metadata {
  readonly token: string | undefined;
  readonly requiresLeader: boolean;
}

/** One call, as its method answers it. */
export interface Out<Answer> {
  answer(answer: Answer): void;
  /** Ends it. Without a refusal: as it should. */
  end(refusal?: Refusal): void;
}

/** A call that takes any number of messages. */
export interface Duplex<Request> {
  message(request: Request): void;
  /** The client sends no more, or is gone. */
  close(): void;
  /** The client is gone, or the call is over. */
  gone?(): void;
}

type Open<Request, Answer> = (out: Out<Answer>, metadata: Metadata) => Duplex<Request>;

export interface Method {
  readonly request: Message;
  readonly response: Message;
  readonly open: Open<object, object>;
}

/** Any number of requests and answers. The tables see to it that they are of these types. */
export const streaming = <Request extends object, Answer extends object>(
  request: Message<Request>,
  response: Message<Answer>,
  open: Open<Request, Answer>,
): Method => ({ request, response, open: open });

/** How a call ends that has one request, if its client sends none. */
export const NO_REQUEST: Refusal = { refused: "a call without a request", code: INTERNAL };

/** One request and one answer. */
export const unary = <Request extends object, Answer extends object>(
  request: Message<Request>,
  response: Message<Answer>,
  call: (request: Request, done: (answer: Answer | Refusal) => void, metadata: Metadata) => void,
): Method => {
  const open: Open<Request, Answer> = (out, metadata) => {
    const done = (answer: Answer | Refusal): void => {
      if (isRefusal(answer)) return out.end(answer);
      out.answer(answer);
      out.end();
    };
    let asked = false;
    const message = (one: Request): void => {
      if (!asked) call(one, done, metadata);
      asked = true;
    };
    const close = (): void => {
      if (!asked) out.end(NO_REQUEST);
    };
    return { message, close };
  };
  return streaming(request, response, open);
};

/** The gRPC server of one member, on a free port of 127.0.0.1. It does not keep the process alive. */
export class GrpcServer {
  readonly #sockets = new Set<Socket>();
  #server: Server | undefined;

  /** Methods by their paths, such as "/etcdserverpb.KV/Put". */
  constructor(private readonly methods: Readonly<Record<string, Method>>) {}

  /** Undefined while it does not listen. */
  get address(): { readonly host: string; readonly port: number } | undefined {
    const found = this.#server?.address() as AddressInfo | null | undefined;
    return found ? { host: "127.0.0.1", port: found.port } : undefined;
  }

  async listen(): Promise<void> {
    // Loaded here: a test with `memoryEtcd` needs none of it.
    const [net, { createServer }] = await Promise.all([import("node:net"), import("node:http2")]);
    // Clients cancel calls and watch much: Node.js' limits are made for browsers.
    const limits = { maxSessionMemory: 1024, streamResetBurst: 1e6, streamResetRate: 1e6 };
    const grpc = createServer(limits);
    grpc.on("stream", (stream, headers) => this.#accept(stream, headers));
    grpc.on("session", (session) => {
      session.on("error", () => {});
      session.unref();
    });
    grpc.on("sessionError", () => {});
    const server = (this.#server = net.createServer((socket) => {
      this.#sockets.add(socket);
      socket.unref();
      socket.on("error", () => {});
      socket.on("close", () => this.#sockets.delete(socket));
      socket.once("data", (first) => {
        const begin = first.toString("latin1", 0, 64);
        if (!PREFACE.startsWith(begin.slice(0, PREFACE.length))) return answerWeb(socket, begin);
        socket.pause();
        socket.unshift(first);
        grpc.emit("connection", socket);
      });
    }));
    server.listen(0, "127.0.0.1").unref();
    await once(server, "listening");
  }

  /** As the end of a process: connections are reset. */
  async close(): Promise<void> {
    const server = this.#server;
    if (server === undefined) return;
    this.#server = undefined;
    const closed = once(server, "close");
    server.close();
    for (const socket of [...this.#sockets]) socket.destroy();
    await closed;
  }

  #accept(stream: ServerHttp2Stream, headers: IncomingHttpHeaders): void {
    stream.on("error", () => {});
    const {
      ":method": verb,
      ":path": path = "",
      "content-type": type = "",
    } = headers as Record<string, string>;
    if (verb !== "POST" || !type.startsWith("application/grpc")) {
      stream.respond({ ":status": 415 }, { endStream: true });
      return void stream.resume();
    }
    const encoding = headers["grpc-encoding"] ?? "identity";
    const method = Object.hasOwn(this.methods, path) ? this.methods[path] : undefined;
    const call = new Call(stream);
    if (method === undefined) call.end(unknown(path));
    else if (encoding !== "identity")
      call.end({ refused: `grpc: no decompressor for ${String(encoding)}`, code: UNIMPLEMENTED });
    else return serve(call, method, headers);
    stream.resume();
  }
}

/** For a browser, curl, or the probe of a container: what this port is, and etcd's `/health`. */
function answerWeb(socket: Socket, request: string): void {
  const isHealth = /^[A-Z]+ \/health[? ]/.test(request);
  const [status, type, body] = isHealth
    ? ["200 OK", "application/json", '{"health":"true","reason":""}\n']
    : ["404 Not Found", "text/plain", ONLY_GRPC];
  const headers = [`content-type: ${type}`, `content-length: ${body.length}`, "connection: close"];
  socket.resume().end([`HTTP/1.1 ${status}`, ...headers, "", body].join("\r\n"));
}
const ONLY_GRPC =
  "leasehold dev, an etcd for development: this port speaks gRPC only, and has no JSON gateway\n";

/** As Go's gRPC says it. */
function unknown(path: string): Refusal {
  const [, service = "", method = ""] = path.split("/");
  return { refused: `unknown method ${method} for service ${service}`, code: UNIMPLEMENTED };
}

function serve(call: Call, method: Method, headers: IncomingHttpHeaders): void {
  const { stream } = call;
  const { token, authorization, hasleader } = headers as Readonly<Record<string, string | undefined>>;
  const metadata = { token: token ?? authorization, requiresLeader: hasleader === "true" };
  const answer = (message: object): void => call.message(encode(method.response, message));
  const duplex = method.open({ answer, end: (refusal) => call.end(refusal) }, metadata);
  const reader = new MessageReader(MAX_MESSAGE_BYTES);
  const take = (read: () => void): void => {
    try {
      read();
    } catch (error) {
      call.end(failureOf(error as Error));
    }
  };
  const message = (body: Buffer): void => {
    if (!call.over) duplex.message(decode(method.request, body));
  };
  stream.on("data", (data: Buffer) => call.over || take(() => reader.read(data, { message })));
  stream.on("end", () => take(() => duplex.close()));
  stream.on("close", () => {
    take(() => duplex.close());
    duplex.gone?.();
  });
}

/** A message that is too long, or one that is none. */
function failureOf({ message }: Error): Refusal {
  const length = /^a message of (\d+) bytes/.exec(message)?.[1];
  if (length === undefined) return { refused: `grpc: ${message}`, code: INTERNAL };
  const refused = `grpc: received message larger than max (${length} vs. ${MAX_MESSAGE_BYTES})`;
  return { refused, code: RESOURCE_EXHAUSTED };
}

const HEADERS = { ":status": 200, "content-type": "application/grpc" } as const;

/** The answer of one call. */
class Call {
  over = false;
  #begun = false;

  constructor(readonly stream: ServerHttp2Stream) {
    stream.on("close", () => (this.over = true));
  }

  /** With its prefix. */
  message(message: Buffer): void {
    const { stream } = this;
    if (this.over || stream.destroyed) return;
    if (!this.#begun) stream.respond(HEADERS, { waitForTrailers: true });
    this.#begun = true;
    stream.write(message);
    if (stream.writableLength > MAX_UNREAD_BYTES) stream.destroy();
  }

  end({ code, refused }: Refusal = { code: 0, refused: "" }): void {
    const { stream } = this;
    if (this.over || stream.destroyed) return;
    this.over = true;
    const status = { "grpc-status": String(code), "grpc-message": percentEncoded(refused) };
    if (!this.#begun) return stream.respond({ ...HEADERS, ...status }, { endStream: true });
    stream.on("wantTrailers", () => stream.sendTrailers(status));
    stream.end();
  }
}

/** Header fields have no other bytes. */
const percentEncoded = (text: string): string =>
  text.replace(/[^ -$&-~]+/g, (part) => encodeURIComponent(Buffer.from(part).toString()));
