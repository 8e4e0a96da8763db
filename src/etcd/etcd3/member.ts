import { noop } from "cockatiel";
import { Etcd3, type IOptions } from "etcd3";
import type { CheckedConnect } from "../../options/connect.js";
import type { Clock } from "../../async/clock.js";
import { streamInterceptor, UnaryCall, type GrpcOptions } from "./unary-call.js";
import { DuplexStream, type GrpcStream } from "./stream.js";
import { EtcdRefusedError } from "../../errors.js";
import { readable } from "../refusals/failure-text.js";
import { etcdFailure } from "../refusals/refusals.js";
import type { GrpcStatus } from "./grpc-failures.js";
import type {
  CallOptions,
  KeepaliveStream,
  LeaseAnswer,
  Member,
  Range,
  RangeAnswer,
  StreamHandlers,
  Txn,
  TxnAnswer,
  WatchAnswer,
  WatchRequest,
  WatchStream,
} from "../port.js";
import { TokenExpiredError, UnansweredError } from "../port-errors.js";
import {
  leaseAnswer,
  rangeAnswer,
  rangeRequest,
  txnsAnswer,
  txnsRequest,
  watchAnswer,
  watchRequest,
} from "./codec.js";

const GRPC_OPTIONS = {
  "grpc.keepalive_timeout_ms": 2000,
  "grpc.initial_reconnect_backoff_ms": 100,
  "grpc.max_reconnect_backoff_ms": 1000,
  // Other clients' values may be large. An answer over 4 MiB would look like the rejection of a request that was executed.
  "grpc.max_receive_message_length": -1,
};

/** A request that gRPC repeats by itself would find its own key: no user option may switch that on. */
const NO_RETRIES = { "grpc.enable_retries": 0, "grpc.service_config_disable_resolution": 1 };

let connections = 0;

function clientOptions(host: string, options: CheckedConnect, pingMs: number): IOptions {
  const { credentials } = options;
  return {
    hosts: host,
    ...(credentials && {
      credentials: {
        rootCertificate: Buffer.from(credentials.rootCertificate),
        ...(credentials.privateKey && { privateKey: Buffer.from(credentials.privateKey) }),
        ...(credentials.certChain && { certChain: Buffer.from(credentials.certChain) }),
      },
    }),
    grpcOptions: {
      ...GRPC_OPTIONS,
      ...options.grpcOptions,
      "grpc.keepalive_time_ms": pingMs,
      ...NO_RETRIES,
      // grpc-js shares a connection between channels with equal options. A unique number makes this one new, so that the
      // next member reaches another backend behind the same address, while its services still share one connection.
      "leasehold.connection": ++connections,
    },
    // etcd3's own retries repeat requests that must not be repeated, and its breaker blocks healthy leases: see EtcdClient.
    faultHandling: { global: noop, host: () => noop },
  };
}

/** An answer that cannot be read counts as none: the request may have been executed. */
function decode<Raw, Answer>(read: (raw: Raw) => Answer, raw: Raw): Answer {
  try {
    return read(raw);
  } catch (error) {
    throw new UnansweredError("the answer makes no sense", { cause: error });
  }
}

/** One etcd3 client for one member. Only this file and its two helpers depend on etcd3. */
export class Etcd3Member implements Member {
  readonly #client: Etcd3;
  readonly #clock: Clock;
  readonly #authenticates: boolean;
  #users = 0;
  #retired = false;
  #closed = false;
  /** The token of the last stream. */
  #streamToken: string | undefined;

  constructor(
    readonly host: string,
    private readonly connection: { readonly token: () => string | undefined; readonly pingMs: number },
    { options, clock }: { readonly options: CheckedConnect; readonly clock: Clock },
  ) {
    this.#clock = clock;
    this.#authenticates = options.auth !== undefined;
    this.#client = new Etcd3(clientOptions(host, options, connection.pingMs));
  }

  async txns(txns: readonly Txn[], options: CallOptions): Promise<readonly TxnAnswer[]> {
    const answer = await this.#unary(options, (grpc) => this.#client.kv.txn(txnsRequest(txns), grpc));
    return decode((raw) => txnsAnswer(raw, txns.length), answer);
  }

  async range(range: Range, options: CallOptions): Promise<RangeAnswer> {
    return decode(
      rangeAnswer,
      await this.#unary(options, (grpc) => this.#client.kv.range(rangeRequest(range), grpc)),
    );
  }

  async grant(leaseId: bigint, ttlSeconds: number, options: CallOptions): Promise<LeaseAnswer> {
    const request = { ID: leaseId.toString(), TTL: ttlSeconds };
    const answer = await this.#unary(options, (grpc) => this.#client.leaseClient.leaseGrant(request, grpc));
    return decode(leaseAnswer, answer);
  }

  async revoke(leaseId: bigint, options: CallOptions): Promise<void> {
    await this.#unary(options, (grpc) =>
      this.#client.leaseClient.leaseRevoke({ ID: leaseId.toString() }, grpc),
    );
  }

  async timeToLive(
    leaseId: bigint,
    options: CallOptions,
  ): Promise<LeaseAnswer & { readonly keys: readonly Buffer[] }> {
    const request = { ID: leaseId.toString(), keys: true };
    const answer = await this.#unary(options, (grpc) =>
      this.#client.leaseClient.leaseTimeToLive(request, grpc),
    );
    return { ...decode(leaseAnswer, answer), keys: answer.keys };
  }

  async authenticate(username: string, password: string, options: CallOptions): Promise<string> {
    const request = { name: username, password };
    const send = (grpc: GrpcOptions): Promise<{ token: string }> =>
      this.#client.auth.authenticate(request, grpc);
    const call = new UnaryCall(this.host, undefined);
    const { token } = await this.#use(() => call.send(this.#clock, options, send));
    // gRPC would quote the token in an error.
    if (!/^[\x20-\x7e]*$/.test(token)) throw new UnansweredError("the token is no header text");
    return token;
  }

  keepalive(handlers: StreamHandlers<LeaseAnswer>): KeepaliveStream {
    const stream = this.#stream((grpc) => this.#client.leaseClient.leaseKeepAlive(grpc), {
      ended: handlers.ended.bind(handlers),
      answer: handlers.answer.bind(handlers),
      read: leaseAnswer,
    });
    return { renew: (leaseId) => stream.write({ ID: leaseId.toString() }), close: () => stream.close() };
  }

  watch(handlers: StreamHandlers<WatchAnswer>): WatchStream {
    const stream = this.#stream((grpc) => this.#client.watchClient.watch(grpc), {
      ended: handlers.ended.bind(handlers),
      answer: handlers.answer.bind(handlers),
      read: watchAnswer,
    });
    return {
      create: (request: WatchRequest) => stream.write({ create_request: watchRequest(request) }),
      cancel: (watchId) => stream.write({ cancel_request: { watch_id: watchId.toString() } }),
      probe: () => stream.write({ progress_request: {} }),
      close: () => stream.close(),
    };
  }

  failure(reason: string): Error {
    // Creating a watch ends with an answer, not with a status: every reason in it is etcd's own.
    const failure =
      etcdFailure(reason, this.host) ?? new EtcdRefusedError("other", this.host, readable(reason));
    // etcd 3.4 also rejects this way on a stream without a token: authentication was enabled after the stream was opened.
    const unknown = this.#authenticates && this.#streamToken === undefined;
    return unknown && failure instanceof EtcdRefusedError ? new TokenExpiredError(reason) : failure;
  }

  retire(): void {
    this.#retired = true;
    this.#closeIfUnused();
  }

  #unary<T>(options: CallOptions, send: (grpc: GrpcOptions) => Promise<T>): Promise<T> {
    return this.#use(() =>
      new UnaryCall(this.host, this.connection.token()).send(this.#clock, options, send),
    );
  }

  async #use<T>(run: () => Promise<T>): Promise<T> {
    this.#users++;
    try {
      return await run();
    } finally {
      this.#leave();
    }
  }

  #leave(): void {
    this.#users--;
    this.#closeIfUnused();
  }

  #closeIfUnused(): void {
    if (!this.#retired || this.#users > 0 || this.#closed) return;
    this.#closed = true;
    // Not within the callback of the call or stream that used the connection last.
    setImmediate(() => this.#client.close());
  }

  #stream<Request, Raw, Answer>(
    open: (grpc: GrpcOptions) => Promise<GrpcStream<Request, Raw>>,
    handlers: StreamHandlers<Answer> & { read(raw: Raw): Answer },
  ): DuplexStream<Request, Raw, Answer> {
    const token = (this.#streamToken = this.connection.token());
    const call = { host: this.host, status: undefined as GrpcStatus | undefined };
    // `hasleader`: a member that is cut off from its peers ends the stream after some seconds instead of staying silent.
    const metadata = { hasleader: "true", ...(token !== undefined && { token }) };
    const interceptors = [
      streamInterceptor(metadata, (status) => {
        if (status.code !== 0) call.status = status;
      }),
    ];
    this.#users++;
    return new DuplexStream(open({ interceptors }), call, { ...handlers, released: () => this.#leave() });
  }
}
