// The port over `Connection`: the transport "http2", which is the default. No call has a timer or a listener on a signal of
// its own: the limits of a member share one timer, its calls one listener.
import type { CheckedConnect } from "../../options/connect.js";
import { AbortFanOut } from "../../util/abort.js";
import type { Clock } from "../../util/clock.js";
import { Deadlines } from "../../util/deadlines.js";
import type {
  CallOptions,
  KeepaliveStream,
  LeaseAnswer,
  Member,
  MemberSetting,
  Range,
  RangeAnswer,
  StreamHandlers,
  TimeToLiveOptions,
  Txn,
  TxnAnswer,
  WatchAnswer,
  WatchRequest,
  WatchStream,
} from "../port.js";
import { reasonFailure } from "../refusals.js";
import type { Call } from "./call.js";
import { DuplexCall, type DuplexRequest, UnaryCall, type UnaryRequest, type UnaryServices } from "./calls.js";
import {
  decodeLease,
  decodeRange,
  decodeTimeToLive,
  decodeToken,
  decodeTxns,
  decodeWatch,
} from "./codec-read.js";
import {
  encodeAuthenticate,
  encodeGrant,
  encodeKeepalive,
  encodeRange,
  encodeRevoke,
  encodeTimeToLive,
  encodeTxns,
  encodeWatchCancel,
  encodeWatchCreate,
  encodeWatchProgress,
} from "./codec-write.js";
import { Connection, type ConnectionSetting } from "./connection.js";
import { encodeHeaders } from "./hpack.js";
import type { OpenSocket, Target } from "./socket.js";

/** Where the connections to `host` go: `http(s)://name:port`, or without a scheme; TLS with `https://` or credentials. */
export function targetOf(host: string, credentials: CheckedConnect["credentials"]): Omit<Target, "turn"> {
  const [, scheme, name = "", port] = /^(?:(https?):\/\/)?(.*):(\d+)$/.exec(host) ?? [];
  const secure = scheme === "https" || credentials !== undefined;
  const tls = secure
    ? {
        ca: credentials?.rootCertificate,
        key: credentials?.privateKey,
        cert: credentials?.certChain,
        serverName: credentials?.serverName,
      }
    : undefined;
  return { hostname: name.replace(/^\[(.*)\]$/, "$1"), port: Number(port), tls };
}

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

/** How many connections this process has opened: see `Target.turn`. */
let turns = 0;

/**
 * The connection to one peer. It opens with the first call. A connection that takes no new calls, but has not failed,
 * is replaced: the peer has asked for that (GOAWAY), all stream IDs are used, or it was lost while no call used it.
 */
export class Channel {
  #connection: Connection | undefined;
  #retired = false;

  constructor(
    private readonly target: Omit<Target, "turn">,
    private readonly setting: ConnectionSetting,
    private readonly deadlines: Deadlines,
  ) {}

  start(call: Call): void {
    const connection = this.#usable();
    call.startOn(connection, this);
    if (this.#retired) connection.retire();
  }

  /** Closes the connection as soon as no call uses it. */
  retire(): void {
    this.#retired = true;
    this.#connection?.retire();
  }

  #usable(): Connection {
    if (this.#connection?.usable) return this.#connection;
    this.#connection?.retire();
    this.#connection = new Connection({ ...this.target, turn: turns++ }, this.setting, this.deadlines);
    return this.#connection;
  }
}

const METHODS = {
  txn: "/etcdserverpb.KV/Txn",
  range: "/etcdserverpb.KV/Range",
  grant: "/etcdserverpb.Lease/LeaseGrant",
  revoke: "/etcdserverpb.Lease/LeaseRevoke",
  timeToLive: "/etcdserverpb.Lease/LeaseTimeToLive",
  keepalive: "/etcdserverpb.Lease/LeaseKeepAlive",
  watch: "/etcdserverpb.Watch/Watch",
  authenticate: "/etcdserverpb.Auth/Authenticate",
} as const;

type Method = keyof typeof METHODS;

/** Answers that have a header and some numbers: about a hundred bytes. Those to other methods are as long as the keys in them. */
const SHORT_BYTES = 4096;
/** A JSON Web Token may have this length, as headers may. */
const TOKEN_BYTES = 64 * 1024;

const MAX_MESSAGE_BYTES: Partial<Record<Method, number>> = {
  grant: SHORT_BYTES,
  revoke: SHORT_BYTES,
  keepalive: SHORT_BYTES,
  authenticate: TOKEN_BYTES,
};

interface GrpcContext {
  readonly options: CheckedConnect;
  readonly clock: Clock;
  /** For tests. Default: a socket of Node.js. */
  readonly open?: OpenSocket | undefined;
}

/** One etcd member, reached by this library's own HTTP/2 and gRPC. */
export class GrpcMember implements Member {
  readonly #services: UnaryServices;
  readonly #channel: Channel;
  readonly #headers: RequestHeaders;
  readonly #token: () => string | undefined;
  readonly #authenticates: boolean;
  /** The token of the last stream. */
  #streamToken: string | undefined;

  constructor(
    readonly host: string,
    connection: MemberSetting,
    { options, clock, open }: GrpcContext,
  ) {
    const { pingTimeoutMs, connectTimeoutMs } = options;
    const setting = { pingIntervalMs: connection.pingMs, pingTimeoutMs, connectTimeoutMs, open };
    const target = targetOf(host, options.credentials);
    const deadlines = new Deadlines(clock);
    this.#token = connection.token;
    this.#authenticates = options.auth !== undefined;
    this.#headers = new RequestHeaders(target);
    this.#channel = new Channel(target, setting, deadlines);
    this.#services = { host, deadlines, channel: this.#channel, aborts: new AbortFanOut("last") };
  }

  txns(txns: readonly Txn[], options: CallOptions): Promise<readonly TxnAnswer[]> {
    const decode = (message: Buffer): readonly TxnAnswer[] => decodeTxns(message, txns.length);
    return this.#unary("txn", { message: encodeTxns(txns), decode }, options);
  }

  range(range: Range, options: CallOptions): Promise<RangeAnswer> {
    return this.#unary("range", { message: encodeRange(range), decode: decodeRange }, options);
  }

  grant(leaseId: bigint, ttlSeconds: number, options: CallOptions): Promise<LeaseAnswer> {
    return this.#unary("grant", { message: encodeGrant(leaseId, ttlSeconds), decode: decodeLease }, options);
  }

  revoke(leaseId: bigint, options: CallOptions): Promise<void> {
    return this.#unary("revoke", { message: encodeRevoke(leaseId), decode: () => undefined }, options);
  }

  timeToLive(
    leaseId: bigint,
    options: TimeToLiveOptions,
  ): Promise<LeaseAnswer & { readonly keys: readonly Buffer[] }> {
    return this.#unary(
      "timeToLive",
      { message: encodeTimeToLive(leaseId, options), decode: decodeTimeToLive },
      options,
    );
  }

  authenticate(username: string, password: string, options: CallOptions): Promise<string> {
    const request = { message: encodeAuthenticate(username, password), decode: decodeToken };
    const headerBlock = this.#headers.of(METHODS.authenticate, undefined);
    const maxMessageBytes = MAX_MESSAGE_BYTES.authenticate;
    return new UnaryCall(this.#services, { ...request, headerBlock, maxMessageBytes }, options).run();
  }

  keepalive(handlers: StreamHandlers<LeaseAnswer>): KeepaliveStream {
    const call = this.#duplex("keepalive", handlers, { decode: decodeLease, urgent: true });
    return { renew: (leaseId) => call.write(encodeKeepalive(leaseId)), close: () => call.close() };
  }

  watch(handlers: StreamHandlers<WatchAnswer>): WatchStream {
    const call = this.#duplex("watch", handlers, { decode: decodeWatch, urgent: false });
    return {
      create: (request: WatchRequest) => call.write(encodeWatchCreate(request)),
      cancel: (watchId) => call.write(encodeWatchCancel(watchId)),
      probe: () => call.write(encodeWatchProgress()),
      close: () => call.close(),
    };
  }

  failure(reason: string): Error {
    return reasonFailure(reason, this.host, this.#authenticates && this.#streamToken === undefined);
  }

  retire(): void {
    this.#services.aborts.release();
    this.#channel.retire();
  }

  #unary<T>(method: Method, request: Omit<UnaryRequest<T>, "headerBlock">, options: CallOptions): Promise<T> {
    const headerBlock = this.#headers.of(METHODS[method], this.#token());
    const { message, decode } = request;
    const maxMessageBytes = MAX_MESSAGE_BYTES[method];
    return new UnaryCall(this.#services, { headerBlock, message, maxMessageBytes, decode }, options).run();
  }

  #duplex<Answer>(
    method: Method,
    handlers: StreamHandlers<Answer>,
    how: Pick<DuplexRequest<Answer>, "decode" | "urgent">,
  ): DuplexCall<Answer> {
    const token = (this.#streamToken = this.#token());
    const { host } = this;
    return new DuplexCall(this.#channel, {
      ...how,
      host,
      headerBlock: this.#headers.ofStream(METHODS[method], token),
      maxMessageBytes: MAX_MESSAGE_BYTES[method],
      answer: (answer) => handlers.answer(answer),
      ended: (error) => handlers.ended(error),
    });
  }
}
