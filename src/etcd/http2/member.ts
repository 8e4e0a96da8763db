// The port over `Connection`: the transport "http2", which is the default. No call has a timer or a listener on a signal of
// its own: the limits of a member share one timer, its calls one listener.
import type { CheckedConnect, CheckedCredentials } from "../../base/options/connect.js";
import { AbortFanOut } from "../../base/util/abort.js";
import type { Clock } from "../../base/util/clock.js";
import { Timers } from "../../base/util/timers.js";
import type {
  CallOptions,
  KeepaliveStream,
  LeaseAnswer,
  Member,
  MembersAnswer,
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
import {
  decodeLease,
  decodeMembers,
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
import { encodeHeaders, listBytesOf } from "./hpack.js";
import type { OpenSocket, Target } from "./socket.js";
import {
  DuplexStream,
  type EncodedHeaders,
  type Http2Stream,
  type Method,
  type Peer,
  UnaryStream,
} from "./stream.js";

/** Where a connection to `host` goes: `http(s)://name:port` or `unix://path`; TLS with `https://` or credentials. */
export function targetOf(host: string, credentials: CheckedCredentials | undefined): Omit<Target, "turn"> {
  const [, path] = /^unix:\/\/(.*)$/.exec(host) ?? [];
  if (path !== undefined) return { hostname: "localhost", port: 0, path, tls: undefined };
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
  readonly #blocks = new Map<string, EncodedHeaders>();
  #token: string | undefined;

  constructor(private readonly target: Omit<Target, "turn">) {}

  of(path: string, token: string | undefined, added: readonly Header[] = []): EncodedHeaders {
    if (token !== this.#token) {
      this.#token = token;
      this.#blocks.clear();
    }
    const known = this.#blocks.get(path);
    if (known !== undefined) return known;
    const { hostname, port, path: socket, tls } = this.target;
    const name = tls?.serverName ?? (hostname.includes(":") ? `[${hostname}]` : hostname);
    // As Go's gRPC has it for sockets.
    const authority = socket === undefined ? `${name}:${port}` : "localhost";
    const headers: readonly Header[] = [
      [":method", "POST"],
      [":scheme", tls ? "https" : "http"],
      [":path", path],
      [":authority", authority],
      ["content-type", "application/grpc"],
      ["user-agent", "leasehold"],
      ["te", "trailers"],
      ...added,
      ...(token === undefined ? [] : ([["token", token]] as const)),
    ];
    const encoded = { block: encodeHeaders(headers), listBytes: listBytesOf(headers) };
    this.#blocks.set(path, encoded);
    return encoded;
  }

  /** For a stream: a member that is cut off from its peers ends it after some seconds instead of staying silent. */
  ofStream(path: string, token: string | undefined): EncodedHeaders {
    return this.of(path, token, [["hasleader", "true"]]);
  }
}

/** How many connections this process has opened: see `Target.turn`. */
let turns = 0;

/**
 * The connection to one peer. It opens with the first stream. A connection that takes no new streams, but has not failed,
 * is replaced: the peer has asked for that (GOAWAY), all stream IDs are used, or it was lost while no stream used it.
 */
export class Channel {
  #connection: Connection | undefined;
  #retired = false;

  constructor(
    private readonly target: () => Omit<Target, "turn">,
    private readonly setting: ConnectionSetting,
    private readonly deadlines: Timers,
  ) {}

  start(stream: Http2Stream): void {
    const connection = this.#usable();
    stream.connection = connection;
    connection.send(stream);
    if (this.#retired) connection.retire();
  }

  /** Closes the connection as soon as no stream uses it. */
  retire(): void {
    this.#retired = true;
    this.#connection?.retire();
  }

  #usable(): Connection {
    if (this.#connection?.usable) return this.#connection;
    this.#connection?.retire();
    this.#connection = new Connection({ ...this.target(), turn: turns++ }, this.setting, this.deadlines);
    return this.#connection;
  }
}

/** Answers that have a header and some numbers: about a hundred bytes. Those to other methods are as long as the keys in them. */
const SHORT_BYTES = 4096;
/** A JSON Web Token may have this length, as headers may. */
const TOKEN_BYTES = 64 * 1024;

/** The limit of an answer that lists any number of members that etcd can have. */
const MEMBERS_BYTES = 64 * 1024;

const LEASE = "/etcdserverpb.Lease/";

/** Several transactions share one request. */
const txnMethod = (count: number): Method<readonly TxnAnswer[]> => ({
  path: "/etcdserverpb.KV/Txn",
  decode: (message) => decodeTxns(message, count),
});

const RANGE = { path: "/etcdserverpb.KV/Range", decode: decodeRange };
const GRANT = { path: `${LEASE}LeaseGrant`, maxMessageBytes: SHORT_BYTES, decode: decodeLease };
const REVOKE = { path: `${LEASE}LeaseRevoke`, maxMessageBytes: SHORT_BYTES, decode: () => undefined };
const TIME_TO_LIVE = { path: `${LEASE}LeaseTimeToLive`, decode: decodeTimeToLive };
const AUTHENTICATE = {
  path: "/etcdserverpb.Auth/Authenticate",
  maxMessageBytes: TOKEN_BYTES,
  decode: decodeToken,
};
/** The empty request: etcd 3.4 knows no other one, and later ones answer it without the leader. */
const MEMBERS = {
  path: "/etcdserverpb.Cluster/MemberList",
  maxMessageBytes: MEMBERS_BYTES,
  decode: decodeMembers,
};
const NOTHING = Buffer.alloc(5);
const KEEPALIVE = {
  path: `${LEASE}LeaseKeepAlive`,
  maxMessageBytes: SHORT_BYTES,
  urgent: true,
  decode: decodeLease,
};
const WATCH = { path: "/etcdserverpb.Watch/Watch", decode: decodeWatch };

interface GrpcContext {
  readonly options: CheckedConnect;
  readonly clock: Clock;
  /** For tests. Default: a socket of Node.js. */
  readonly open?: OpenSocket | undefined;
}

/** One etcd member, reached by this library's own HTTP/2 and gRPC. */
export class GrpcMember implements Member {
  readonly #peer: Peer;
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
    const target = (): Omit<Target, "turn"> => targetOf(host, connection.credentials?.());
    const deadlines = new Timers(clock);
    this.#token = connection.token;
    this.#authenticates = options.auth !== undefined;
    this.#headers = new RequestHeaders(target());
    const channel = new Channel(target, setting, deadlines);
    this.#peer = { host, channel, deadlines, aborts: new AbortFanOut("last") };
  }

  txns(txns: readonly Txn[], options: CallOptions): Promise<readonly TxnAnswer[]> {
    return this.#unary(txnMethod(txns.length), encodeTxns(txns), options);
  }

  range(range: Range, options: CallOptions): Promise<RangeAnswer> {
    return this.#unary(RANGE, encodeRange(range), options);
  }

  grant(leaseId: bigint, ttlSeconds: number, options: CallOptions): Promise<LeaseAnswer> {
    return this.#unary(GRANT, encodeGrant(leaseId, ttlSeconds), options);
  }

  revoke(leaseId: bigint, options: CallOptions): Promise<void> {
    return this.#unary(REVOKE, encodeRevoke(leaseId), options);
  }

  timeToLive(
    leaseId: bigint,
    options: TimeToLiveOptions,
  ): Promise<LeaseAnswer & { readonly keys: readonly Buffer[] }> {
    return this.#unary(TIME_TO_LIVE, encodeTimeToLive(leaseId, options), options);
  }

  members(options: CallOptions): Promise<MembersAnswer> {
    return this.#unary(MEMBERS, NOTHING, options);
  }

  authenticate(username: string, password: string, options: CallOptions): Promise<string> {
    return this.#unary(AUTHENTICATE, encodeAuthenticate(username, password), options);
  }

  keepalive(handlers: StreamHandlers<LeaseAnswer>): KeepaliveStream {
    const stream = this.#duplex(KEEPALIVE, handlers);
    return {
      get holdUp() {
        return stream.holdUp;
      },
      renew: (leaseId) => stream.write(encodeKeepalive(leaseId)),
      close: () => stream.close(),
    };
  }

  watch(handlers: StreamHandlers<WatchAnswer>): WatchStream {
    const stream = this.#duplex(WATCH, handlers);
    return {
      create: (request: WatchRequest) => stream.write(encodeWatchCreate(request)),
      cancel: (watchId) => stream.write(encodeWatchCancel(watchId)),
      probe: () => stream.write(encodeWatchProgress()),
      close: () => stream.close(),
    };
  }

  failure(reason: string): Error {
    return reasonFailure(reason, this.host, this.#authenticates && this.#streamToken === undefined);
  }

  retire(): void {
    this.#peer.aborts.release();
    this.#peer.channel.retire();
  }

  #unary<T>(method: Method<T>, message: Buffer, options: CallOptions): Promise<T> {
    const headers = this.#headers.of(method.path, method === AUTHENTICATE ? undefined : this.#token());
    return new UnaryStream(this.#peer, { method, headers, message }, options).run();
  }

  #duplex<T>(method: Method<T>, handlers: StreamHandlers<T>): DuplexStream<T> {
    const token = (this.#streamToken = this.#token());
    const headers = this.#headers.ofStream(method.path, token);
    return new DuplexStream(this.#peer, { method, headers }, handlers);
  }
}
