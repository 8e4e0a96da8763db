import type { Etcd3 } from "etcd3";
import { EtcdRefusedError } from "../errors.js";
import type { Clock } from "../time.js";
import { readable } from "./reason.js";
import {
  CancelledError,
  LeaseExistsError,
  LeaseNotFoundError,
  TokenExpiredError,
  UnansweredError,
  type CallOptions,
} from "./rpc.js";

// gRPC's types by way of etcd3's, so that this package names no dependency of a dependency.
export type GrpcOptions = NonNullable<Parameters<Etcd3["kv"]["txn"]>[1]>;
type Interceptor = NonNullable<GrpcOptions["interceptors"]>[number];
type GrpcCall = ReturnType<Parameters<Interceptor>[1]>;
/** The declared type names a class where grpc-js asks for its interface only. */
type Intercepted = ReturnType<Interceptor>;

export interface Status {
  readonly code: number;
  readonly details: string;
}

/** https://grpc.github.io/grpc/core/md_doc_statuscodes.html */
const PERMISSION_DENIED = 7;
const RESOURCE_EXHAUSTED = 8;
const FAILED_PRECONDITION = 9;
const UNAUTHENTICATED = 16;
/**
 * INVALID_ARGUMENT, NOT_FOUND, ALREADY_EXISTS, PERMISSION_DENIED, RESOURCE_EXHAUSTED, FAILED_PRECONDITION, OUT_OF_RANGE,
 * UNIMPLEMENTED, UNAUTHENTICATED. etcd uses all others for "perhaps".
 */
const DEFINITE = new Set([3, 5, 6, 7, 8, 9, 11, 12, 16]);
/** Said with a code that means something else; the second one by grpc-js, when the status came without an answer. */
const PERHAPS = /too many requests|No message received/;

const CERTIFICATE =
  /certificate|self.signed|altnames|wrong version number|alert (handshake|certificate|unknown ca)/i;
const STALE_TOKEN = /invalid auth token|revision of auth store is old/;

/** What a gRPC status means here. The only place that looks at etcd's texts: several refusals share one code. */
export function failureOf(status: Status, host: string): Error {
  const { code, details = "" } = status as { readonly code: number; readonly details?: string };
  if (STALE_TOKEN.test(details)) return new TokenExpiredError(details);
  if (details.includes("requested lease not found")) return new LeaseNotFoundError(details);
  if (details.includes("lease already exists")) return new LeaseExistsError(details);
  const reason = readable(details);
  if (CERTIFICATE.test(details)) return new EtcdRefusedError("tls", host, reason);
  if (!DEFINITE.has(code) || PERHAPS.test(details)) return new UnansweredError(reason);
  return new EtcdRefusedError(refusal(code, details), host, reason);
}

function refusal(code: number, details: string): EtcdRefusedError["why"] {
  if (code === PERMISSION_DENIED) return "permission";
  if (code === UNAUTHENTICATED || /authentication failed|user name is empty/.test(details))
    return "unauthenticated";
  if (code === RESOURCE_EXHAUSTED) return "quota";
  return "other";
}

/**
 * One attempt of one unary call: adds the token, keeps the status that etcd3's errors lose, and can be cancelled.
 * The time limit is ours, on the monotonic clock: grpc-js computes deadlines on the wall clock, which may step.
 */
export class UnaryCall {
  #call: GrpcCall | undefined;
  #status: Status | undefined;
  #cancelled: UnansweredError | undefined;

  constructor(
    private readonly host: string,
    private readonly token: string | undefined,
  ) {}

  async send<T>(
    clock: Clock,
    { timeoutMs, signal }: CallOptions,
    send: (options: GrpcOptions) => Promise<T>,
  ): Promise<T> {
    // Between the turn of a queued call and its sending, or while a token was asked for.
    if (signal?.aborted) throw new CancelledError("the caller gave up");
    const timer = clock.after(timeoutMs, () =>
      this.#cancel(new UnansweredError(`no answer within ${Math.round(timeoutMs)} ms`)),
    );
    const onAbort = (): void => this.#cancel(new CancelledError("the caller gave up"));
    signal?.addEventListener("abort", onAbort, { once: true });
    try {
      return await send({ interceptors: [this.#intercept] });
    } catch (error) {
      throw this.#failure(error);
    } finally {
      timer.cancel();
      signal?.removeEventListener("abort", onAbort);
    }
  }

  #failure(error: unknown): Error {
    if (this.#cancelled !== undefined) return this.#cancelled;
    if (this.#status) return failureOf(this.#status, this.host);
    return new UnansweredError(error instanceof Error ? error.message : String(error), { cause: error });
  }

  #cancel(why: UnansweredError): void {
    this.#cancelled ??= why;
    // etcd3 retries CANCELLED and counts it as a failure of the host; this code it leaves alone. Later, as with streams:
    // this may run within the callback by which the connection is read.
    setImmediate(() => this.#call?.cancelWithStatus(FAILED_PRECONDITION, why.message));
  }

  readonly #intercept: Interceptor = (options, nextCall) => {
    const token = this.token === undefined ? undefined : { token: this.token };
    const call = withMetadata(nextCall(options), token, (status) => {
      this.#status ??= status;
      // etcd3 would ask for a token of its own on the original text, once per call and without end.
      return STALE_TOKEN.test(status.details) ? { ...status, details: "the token is stale" } : status;
    });
    this.#call = call;
    if (this.#cancelled !== undefined)
      queueMicrotask(() => call.cancelWithStatus(FAILED_PRECONDITION, "cancelled"));
    return call as Intercepted;
  };
}

/** An interceptor for streams that adds metadata, such as the token, or `hasleader`. */
export function metadataInterceptor(metadata: Readonly<Record<string, string>>): Interceptor {
  return (options, nextCall) => withMetadata(nextCall(options), metadata, (status) => status) as Intercepted;
}

function withMetadata<S extends Status>(
  call: GrpcCall,
  added: Readonly<Record<string, string>> | undefined,
  onStatus: (status: S) => S,
): GrpcCall {
  const start = call.start.bind(call);
  call.start = (metadata, listener) => {
    // A copy: etcd3 hands the same object to every call.
    const own = added ? metadata.clone() : metadata;
    for (const [key, value] of Object.entries(added ?? {})) own.set(key, value);
    start(own, {
      onReceiveMetadata: (received) => listener?.onReceiveMetadata?.(received),
      onReceiveMessage: (message: unknown) => listener?.onReceiveMessage?.(message),
      onReceiveStatus: (status) =>
        listener?.onReceiveStatus?.(onStatus(status as unknown as S) as unknown as typeof status),
    });
  };
  return call;
}
