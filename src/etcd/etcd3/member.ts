// The port, implemented with the etcd3 package: one client for one member, or one host of a user's own client, whose channels
// stay as they are. No other folder loads etcd3 or sees a gRPC type.
// The retries of etcd3 and of gRPC are off: either would repeat requests that only `etcd/retry.ts` may repeat.
import type { Etcd3, IOptions } from "etcd3";
import { PackageMissingError } from "../../errors.js";
import type { CheckedConnect } from "../../base/options/connect.js";
import type { Etcd3Host } from "../../base/options/etcd3-client.js";
import type { Clock } from "../../base/util/clock.js";
import { inOwnContext, setImmediate } from "../../base/util/own-context.js";
import {
  type CallOptions,
  type KeepaliveStream,
  type LeaseAnswer,
  type Member,
  type MemberSetting,
  type Range,
  type RangeAnswer,
  type StreamHandlers,
  type TimeToLiveOptions,
  type Txn,
  type TxnAnswer,
  UnansweredError,
  type WatchAnswer,
  type WatchRequest,
  type WatchStream,
} from "../port.js";
import { reasonFailure } from "../refusals.js";
import {
  DuplexStream,
  type GrpcOptions,
  type GrpcStatus,
  type GrpcStream,
  streamInterceptor,
  UnaryCall,
} from "./calls.js";
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

const NEVER = new AbortController().signal;

type Policy = NonNullable<NonNullable<IOptions["faultHandling"]>["global"]>;

/**
 * Each request is made once: etcd3's own retries repeat requests that must not be repeated, and its breaker blocks healthy
 * leases: see EtcdClient.
 */
const ONCE: Policy = {
  _altReturn: undefined as never,
  onSuccess: () => ({ dispose: () => undefined }),
  onFailure: () => ({ dispose: () => undefined }),
  execute: async (run, signal = NEVER) => run({ signal }),
};

let connections = 0;

/**
 * grpc-js shares a connection between channels with equal options. A unique number makes this one new, so that the next member
 * reaches another backend behind the same address, while its services still share one connection.
 */
const unshared = (): object => ({ "leasehold.connection": ++connections });

/**
 * A client of etcd3 for one member. Loads etcd3 when the first one is made: that takes longer than loading the rest of this
 * library, and other transports do not need it.
 */
async function newClient(host: string, setting: MemberSetting): Promise<Services> {
  const etcd3 = await import("etcd3").catch((cause: unknown) => {
    throw new PackageMissingError("etcd3", 'The transport "etcd3"', cause);
  });
  return new etcd3.Etcd3(clientOptions(host, setting));
}

function clientOptions(host: string, setting: MemberSetting): IOptions {
  const credentials = setting.credentials?.();
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
      ...(credentials?.serverName && { "grpc.ssl_target_name_override": credentials.serverName }),
      "grpc.keepalive_time_ms": setting.pingMs,
      ...NO_RETRIES,
      ...unshared(),
    },
    faultHandling: { global: ONCE, host: () => ONCE },
  };
}

/** What a member needs of a client. */
interface Services {
  readonly kv: Pick<Etcd3["kv"], "txn" | "range">;
  readonly leaseClient: Pick<
    Etcd3["leaseClient"],
    "leaseGrant" | "leaseRevoke" | "leaseTimeToLive" | "leaseKeepAlive"
  >;
  readonly watchClient: Pick<Etcd3["watchClient"], "watch">;
  readonly auth: Pick<Etcd3["auth"], "authenticate">;
  close(): void;
}

type Answered = (error: Error | null, answer: unknown) => void;
type GrpcService = Readonly<
  Record<string, (request: object, options?: GrpcOptions, done?: Answered) => unknown>
>;

/** The hosts of a cluster's `etcd3` that had a member before. */
const used = new WeakMap<CheckedConnect, Set<string>>();

interface Connecting {
  readonly options: CheckedConnect;
  readonly pingMs: number;
}

/**
 * The first member of a host uses the channels of the user's client. It is left when its connection has failed, or what is behind
 * it: each later one connects anew, with what the client has for that.
 */
function ownServices(own: Etcd3Host, name: string, { options, pingMs }: Connecting): Services {
  const before = used.get(options) ?? new Set();
  used.set(options, before);
  if (!before.has(name)) {
    before.add(name);
    return servicesOf(own); // The user closes the client.
  }
  const Host = own.constructor as new (...args: unknown[]) => Etcd3Host & { close(): void };
  const settings = { ...GRPC_OPTIONS, "grpc.keepalive_time_ms": pingMs, ...own.channelOptions };
  const fresh = new Host(own.host, own.channelCredentials, { ...settings, ...NO_RETRIES, ...unshared() });
  return servicesOf(own, fresh, () => fresh.close());
}

/**
 * The services of one host of a user's own client. The client's own methods would choose the host, add a token of their own, and
 * repeat requests.
 */
function servicesOf(own: Etcd3Host, host = own, close = (): void => undefined): Services {
  const service = (name: string): GrpcService => {
    if (own.closed) throw new UnansweredError("the client given as etcd3 is closed", { inDoubt: false });
    return host.getServiceClient(name) as GrpcService;
  };
  const unary =
    (name: string, method: string) =>
    (request: object, options?: GrpcOptions): Promise<never> =>
      new Promise((resolve, reject) => {
        service(name)[method]?.(request, options, (error, answer) =>
          error ? reject(error) : resolve(answer as never),
        );
      });
  const stream =
    (name: string, method: string) =>
    (options: GrpcOptions = {}): Promise<never> =>
      new Promise((resolve) => {
        const opened = service(name)[method]?.(options) as GrpcStream<unknown, unknown>;
        // The call may fail before the stream's user listens.
        opened.on("error", () => undefined);
        resolve(opened as never);
      });
  return {
    kv: { txn: unary("KV", "txn"), range: unary("KV", "range") },
    leaseClient: {
      leaseGrant: unary("Lease", "leaseGrant"),
      leaseRevoke: unary("Lease", "leaseRevoke"),
      leaseTimeToLive: unary("Lease", "leaseTimeToLive"),
      leaseKeepAlive: stream("Lease", "leaseKeepAlive"),
    },
    watchClient: { watch: stream("Watch", "watch") },
    auth: { authenticate: unary("Auth", "authenticate") },
    close,
  };
}

/** An answer that cannot be read counts as none: the request may have been executed. */
function decode<Raw, Answer>(read: (raw: Raw) => Answer, raw: Raw): Answer {
  try {
    return read(raw);
  } catch (error) {
    throw new UnansweredError("malformed response", { cause: error });
  }
}

/** One etcd3 client for one member. */
export class Etcd3Member implements Member {
  /** Set until etcd3 is loaded. */
  loading: Promise<Services> | undefined;
  readonly #opening: Promise<Services>;
  #client: Services | undefined;
  readonly #clock: Clock;
  readonly #authenticates: boolean;
  #users = 0;
  #retired = false;
  #closed = false;
  /** The token of the last stream. */
  #streamToken: string | undefined;

  constructor(
    readonly host: string,
    private readonly connection: MemberSetting,
    { options, clock }: { readonly options: CheckedConnect; readonly clock: Clock },
  ) {
    this.#clock = clock;
    this.#authenticates = options.auth !== undefined;
    const own = options.etcd3?.get(host);
    if (own !== undefined) {
      this.#client = ownServices(own, host, { options, pingMs: connection.pingMs });
      this.#opening = Promise.resolve(this.#client);
      return;
    }
    this.loading = this.#opening = newClient(host, connection);
    this.#opening.then(
      (client) => {
        this.#client = client;
        this.loading = undefined;
      },
      () => undefined, // Every call and stream reports it.
    );
  }

  async txns(txns: readonly Txn[], options: CallOptions): Promise<readonly TxnAnswer[]> {
    const answer = await this.#unary(options, ({ kv }, grpc) => kv.txn(txnsRequest(txns), grpc));
    return decode((raw) => txnsAnswer(raw, txns.length), answer);
  }

  async range(range: Range, options: CallOptions): Promise<RangeAnswer> {
    return decode(
      rangeAnswer,
      await this.#unary(options, ({ kv }, grpc) => kv.range(rangeRequest(range), grpc)),
    );
  }

  async grant(leaseId: bigint, ttlSeconds: number, options: CallOptions): Promise<LeaseAnswer> {
    const request = { ID: leaseId.toString(), TTL: ttlSeconds };
    const answer = await this.#unary(options, ({ leaseClient }, grpc) =>
      leaseClient.leaseGrant(request, grpc),
    );
    return decode(leaseAnswer, answer);
  }

  async revoke(leaseId: bigint, options: CallOptions): Promise<void> {
    await this.#unary(options, ({ leaseClient }, grpc) =>
      leaseClient.leaseRevoke({ ID: leaseId.toString() }, grpc),
    );
  }

  async timeToLive(
    leaseId: bigint,
    options: TimeToLiveOptions,
  ): Promise<LeaseAnswer & { readonly keys: readonly Buffer[] }> {
    const request = { ID: leaseId.toString(), keys: !options.withoutKeys };
    const answer = await this.#unary(options, ({ leaseClient }, grpc) =>
      leaseClient.leaseTimeToLive(request, grpc),
    );
    return { ...decode(leaseAnswer, answer), keys: answer.keys };
  }

  async authenticate(username: string, password: string, options: CallOptions): Promise<string> {
    const request = { name: username, password };
    const call = new UnaryCall(this.host, undefined);
    const { token } = await this.#use(({ auth }) =>
      call.send(this.#clock, options, (grpc) => auth.authenticate(request, grpc)),
    );
    return token;
  }

  keepalive(handlers: StreamHandlers<LeaseAnswer>): KeepaliveStream {
    const stream = this.#stream(({ leaseClient }, grpc) => leaseClient.leaseKeepAlive(grpc), {
      ended: handlers.ended.bind(handlers),
      answer: handlers.answer.bind(handlers),
      read: leaseAnswer,
    });
    return { renew: (leaseId) => stream.write({ ID: leaseId.toString() }), close: () => stream.close() };
  }

  watch(handlers: StreamHandlers<WatchAnswer>): WatchStream {
    const stream = this.#stream(({ watchClient }, grpc) => watchClient.watch(grpc), {
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
    return reasonFailure(reason, this.host, this.#authenticates && this.#streamToken === undefined);
  }

  retire(): void {
    this.#retired = true;
    this.#closeIfUnused();
  }

  #unary<T>(options: CallOptions, send: (client: Services, grpc: GrpcOptions) => Promise<T>): Promise<T> {
    return this.#use((client) =>
      new UnaryCall(this.host, this.connection.token()).send(this.#clock, options, (grpc) =>
        send(client, grpc),
      ),
    );
  }

  /** A call's time limit starts when etcd3 is loaded. */
  async #use<T>(run: (client: Services) => Promise<T>): Promise<T> {
    this.#users++;
    try {
      const client = this.#client ?? (await this.#opening);
      // Any call may be the one for which grpc-js connects.
      return await inOwnContext(() => run(client));
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
    setImmediate(() => {
      this.#opening.then(
        (client) => client.close(),
        () => undefined,
      );
    });
  }

  #stream<Request, Raw, Answer>(
    open: (client: Services, grpc: GrpcOptions) => Promise<GrpcStream<Request, Raw>>,
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
    return inOwnContext(() => {
      const opening = this.#opening.then((client) => open(client, { interceptors }));
      return new DuplexStream(opening, call, { ...handlers, released: () => this.#leave() });
    });
  }
}
