import type { StreamFailure } from "../../../etcd/http2/failure.js";
import type { LeaseAnswer, WatchAnswer } from "../../../etcd/port.js";
import {
  type ConnectionSetting,
  type Exchange,
  SimConnection,
  StreamExchange,
  UnaryExchange,
  type ProcessClock,
} from "./connection.js";
import type { Link } from "./link.js";
import type {
  Refusal,
  ServerStream,
  SimServer,
  UnaryReply,
  UnaryRequest,
  WatchCommand,
} from "../protocol.js";

/** What a unary call receives. After `replied` or `failed`, and after `cancel()`, it receives nothing more. */
export interface CallListener {
  /** The request was handed to an open connection: from now on it may be executed. */
  sent(): void;
  replied(reply: UnaryReply): void;
  /** `inDoubt`: the request may have been executed, or may be executed later. */
  failed(failure: StreamFailure, inDoubt: boolean): void;
}

/** What a stream receives. After `failed`, and after `close()`, it receives nothing more. */
export interface StreamListener<Answer> {
  /** A refusal ends the stream. */
  answer(answer: Answer | Refusal): void;
  failed(failure: StreamFailure, inDoubt: boolean): void;
}

/** What carries the calls and streams of one `SimMember`: the place of `Channel` in `src/etcd/grpc`. */
export interface Wire {
  /** Returns the cancellation: what was sent cannot be called back. */
  call(request: UnaryRequest, listener: CallListener): () => void;
  keepalive(listener: StreamListener<LeaseAnswer>, token?: string): ServerStream<bigint>;
  watch(listener: StreamListener<WatchAnswer>, token?: string): ServerStream<WatchCommand>;
  /** Closes the connection as soon as no call and no stream uses it. */
  retire(): void;
}

/** As `src/etcd/grpc` opens its streams. */
const STREAM = { requiresLeader: true };

export interface LinkEnd {
  readonly clock: ProcessClock;
  readonly setting: ConnectionSetting;
}

/** The connections of one `SimMember` over a link, one after the other: as `Channel` of `src/etcd/grpc`. */
export class LinkWire implements Wire {
  #connection: SimConnection | undefined;
  /** Also those that were retired and still have a stream. */
  readonly #connections = new Set<SimConnection>();
  #retired = false;

  constructor(
    private readonly link: Link,
    private readonly server: SimServer,
    private readonly end: LinkEnd,
  ) {}

  call(request: UnaryRequest, listener: CallListener): () => void {
    const connection = this.#usable();
    const exchange = new UnaryExchange(connection, { server: this.server, request }, listener);
    this.#start(connection, exchange);
    return () => exchange.cancel();
  }

  keepalive(listener: StreamListener<LeaseAnswer>, token?: string): ServerStream<bigint> {
    const connection = this.#usable();
    const open = (out: Parameters<SimServer["keepalive"]>[0]) =>
      this.server.keepalive(out, { ...STREAM, token });
    const exchange = new StreamExchange<bigint, LeaseAnswer>(connection, open, listener);
    this.#start(connection, exchange);
    return exchange;
  }

  watch(listener: StreamListener<WatchAnswer>, token?: string): ServerStream<WatchCommand> {
    const connection = this.#usable();
    const open = (out: Parameters<SimServer["watch"]>[0]) => this.server.watch(out, { ...STREAM, token });
    const exchange = new StreamExchange<WatchCommand, WatchAnswer>(connection, open, listener);
    this.#start(connection, exchange);
    return exchange;
  }

  retire(): void {
    this.#retired = true;
    this.#connection?.retire();
  }

  /** The process was killed. */
  abandon(): void {
    for (const connection of this.#connections) connection.abandon();
    this.#connections.clear();
  }

  #start(connection: SimConnection, exchange: Exchange): void {
    connection.add(exchange);
    if (this.#retired) connection.retire();
  }

  #usable(): SimConnection {
    if (this.#connection?.usable) return this.#connection;
    this.#connection?.retire();
    for (const connection of this.#connections) if (connection.over) this.#connections.delete(connection);
    this.#connection = new SimConnection(this.link, this.end.clock, this.end.setting);
    this.#connections.add(this.#connection);
    return this.#connection;
  }
}
