import type { Headers } from "../../../src/etcd/http2/endpoint.js";
import { MessageReader } from "../../../src/etcd/http2/stream.js";
import type { LeaseAnswer, RangeAnswer, Txn, TxnAnswer, WatchAnswer } from "../../../src/etcd/port.js";
import {
  type Refusal,
  type ServerStream,
  type SimServer,
  type StreamMetadata,
  type UnaryRequest,
  isRefusal,
} from "../../../src/testing/memory/protocol.js";
import { decodeKeepalive, decodeRange, decodeTxns, decodeUnary, decodeWatch } from "./decode.js";
import {
  encodeHeaderOnly,
  encodeLease,
  encodeRange,
  encodeToken,
  encodeTxns,
  encodeWatch,
} from "./encode.js";

/** How a call answers. */
export interface Responder {
  /** `message` has its gRPC prefix. */
  message(message: Buffer): void;
  /** Ends the call. */
  status(code: number, details: string): void;
}

/** One gRPC call, as the member has it. */
export interface ServerCall {
  /** It deletes keys, and puts none. */
  readonly isRelease: () => boolean;
  message(body: Buffer): void;
  /** The client has reset the stream, or the connection is over. */
  cancelled(): void;
}

interface Unary {
  readonly decode: (body: Buffer) => UnaryRequest;
  readonly encode: (answer: never) => Buffer;
}

const unary = (decode: Unary["decode"], encode: (answer: never) => Buffer): Unary => ({ decode, encode });

const UNARY: Readonly<Record<string, Unary>> = {
  "/etcdserverpb.KV/Txn": unary(
    (body) => ({ kind: "txns", txns: decodeTxns(body) }),
    (answer: readonly TxnAnswer[]) => encodeTxns(answer),
  ),
  "/etcdserverpb.KV/Range": unary(
    (body) => ({ kind: "range", range: decodeRange(body) }),
    (answer: RangeAnswer) => encodeRange(answer),
  ),
  "/etcdserverpb.Lease/LeaseGrant": unary((body) => decodeUnary("grant", body), encodeLease),
  "/etcdserverpb.Lease/LeaseRevoke": unary((body) => decodeUnary("revoke", body), encodeHeaderOnly),
  "/etcdserverpb.Lease/LeaseTimeToLive": unary((body) => decodeUnary("timeToLive", body), encodeLease),
  "/etcdserverpb.Auth/Authenticate": unary((body) => decodeUnary("authenticate", body), encodeToken),
};

/** @throws {Error} for a path that the client never calls. */
export function callOf(server: SimServer, headers: Headers, out: Responder): ServerCall {
  const path = headers.get(":path") ?? "";
  const token = headers.get("token");
  const metadata = { requiresLeader: headers.has("hasleader"), token };
  if (path === "/etcdserverpb.Lease/LeaseKeepAlive") return keepalive(server, metadata, out);
  if (path === "/etcdserverpb.Watch/Watch") return watch(server, metadata, out);
  const how = UNARY[path];
  if (how === undefined) throw new Error(`no member has ${path}`);
  return unaryCall(server, { ...how, token }, out);
}

function unaryCall(
  server: SimServer,
  how: Unary & { readonly token: string | undefined },
  out: Responder,
): ServerCall {
  const answered = ({ refused, code }: Refusal): void => out.status(code, refused);
  let isRelease = false;
  const call = framed((body) => {
    const request = how.decode(body);
    isRelease = request.kind === "txns" && request.txns.every(onlyDeletes);
    const { token } = how;
    server.call(token === undefined ? request : { ...request, token }, (reply) => {
      if ("refused" in reply) return answered(reply);
      out.message(how.encode(reply.answer as never));
      out.status(0, "");
    });
  });
  return { ...call, isRelease: () => isRelease };
}

const onlyDeletes = ({ success }: Txn): boolean => success.every(({ kind }) => kind === "delete");

function keepalive(server: SimServer, metadata: StreamMetadata, out: Responder): ServerCall {
  const stream = server.keepalive(
    sending(out, (answer: LeaseAnswer) => encodeLease(answer)),
    metadata,
  );
  return streaming(stream, decodeKeepalive);
}

function watch(server: SimServer, metadata: StreamMetadata, out: Responder): ServerCall {
  const stream = server.watch(
    sending(out, (answer: WatchAnswer) => encodeWatch(answer)),
    metadata,
  );
  return streaming(stream, decodeWatch);
}

const sending =
  <Answer extends object>(out: Responder, encode: (answer: Answer) => Buffer) =>
  (answer: Answer | Refusal): void => {
    if (isRefusal(answer)) out.status(answer.code, answer.refused);
    else out.message(encode(answer));
  };

const streaming = <Command>(stream: ServerStream<Command>, decode: (body: Buffer) => Command): ServerCall =>
  framed(
    (body) => stream.send(decode(body)),
    () => stream.close(),
  );

/** Splits the data of a call into its messages. A member executes a unary call although its client has gone. */
function framed(message: (body: Buffer) => void, cancelled: () => void = () => {}): ServerCall {
  const reader = new MessageReader();
  return { isRelease: () => false, message: (data) => reader.read(data, { message }), cancelled };
}
