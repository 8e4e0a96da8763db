import type { Etcd3 } from "etcd3";
import { printable } from "../../printable.js";
import type { Clock } from "../../async/clock.js";
import { failureOf, type GrpcStatus } from "./grpc-failures.js";
import type { CallOptions } from "../port.js";
import { CancelledError, UnansweredError } from "../port-errors.js";

// gRPC's types, derived from etcd3's so that this package names no dependency of a dependency.
export type GrpcOptions = NonNullable<Parameters<Etcd3["kv"]["txn"]>[1]>;
type Interceptor = NonNullable<GrpcOptions["interceptors"]>[number];
type GrpcCall = ReturnType<Parameters<Interceptor>[1]>;
/** The declared type names a class where grpc-js needs only its interface. */
type Intercepted = ReturnType<Interceptor>;

type Credentials = NonNullable<GrpcOptions["credentials"]>;
type Metadata = Parameters<GrpcCall["start"]>[0];

const FAILED_PRECONDITION = 9;
/**
 * The status that etcd3 gets instead of any failure. etcd3 closes the connection, and with it all streams, on UNAVAILABLE,
 * UNKNOWN, RESOURCE_EXHAUSTED, INTERNAL and CANCELLED, and requests a token of its own on the text of a stale one.
 */
const HIDDEN = { code: FAILED_PRECONDITION, details: "see the status that leasehold has kept" };

/**
 * One attempt of one unary call: adds the token, keeps the status that etcd3's errors lose, and can be cancelled.
 * It keeps its own time limit, on the monotonic clock: grpc-js computes deadlines on the wall clock, which may step.
 */
export class UnaryCall {
  #call: GrpcCall | undefined;
  #status: GrpcStatus | undefined;
  #cancelled: UnansweredError | undefined;
  #sent = false;

  constructor(
    private readonly host: string,
    private readonly token: string | undefined,
  ) {}

  async send<T>(
    clock: Clock,
    { timeoutMs, signal, onSent }: CallOptions,
    send: (options: GrpcOptions) => Promise<T>,
  ): Promise<T> {
    // Aborted between the turn of a queued call and its sending, or while a token was requested.
    if (signal?.aborted) throw new CancelledError("the caller gave up", { inDoubt: false });
    const timer = clock.after(timeoutMs, () => this.#timeOut(timeoutMs));
    const onAbort = (): void =>
      this.#cancel(new CancelledError("the caller gave up", { inDoubt: this.#sent }));
    signal?.addEventListener("abort", onAbort, { once: true });
    try {
      const credentials = reportingCredentials(() => {
        this.#sent = true;
        onSent?.();
      });
      return await send({ interceptors: [this.#intercept], credentials });
    } catch (error) {
      throw this.#failure(error);
    } finally {
      timer.cancel();
      signal?.removeEventListener("abort", onAbort);
    }
  }

  #failure(error: unknown): Error {
    if (this.#cancelled !== undefined) return this.#cancelled;
    if (this.#status) return failureOf(this.#status, this.host, this.#sent);
    const message = printable(error instanceof Error ? error.message : String(error));
    return new UnansweredError(message, { cause: error, inDoubt: this.#sent });
  }

  #timeOut(timeoutMs: number): void {
    const what = this.#sent ? "no answer" : "no connection";
    this.#cancel(new UnansweredError(`${what} within ${Math.round(timeoutMs)} ms`, { inDoubt: this.#sent }));
  }

  #cancel(why: UnansweredError): void {
    this.#cancelled ??= why;
    // Deferred, as with streams: this may run within the callback in which the connection is read.
    setImmediate(() => this.#call?.cancelWithStatus(FAILED_PRECONDITION, why.message));
  }

  readonly #intercept: Interceptor = (options, nextCall) => {
    const token = this.token === undefined ? undefined : { token: this.token };
    const call = withMetadata(nextCall(options), token, (status) => (this.#status ??= status));
    this.#call = call;
    if (this.#cancelled !== undefined)
      queueMicrotask(() => call.cancelWithStatus(FAILED_PRECONDITION, "cancelled"));
    return call as Intercepted;
  };
}

/** Before 1.14.7, grpc-js accepts only metadata as the answer. Made of the first that it passes, before any connection. */
let noMetadata: Metadata | undefined;

function emptied(metadata: Metadata): Metadata {
  const copy = metadata.clone();
  for (const key of Object.keys(copy.getMap())) copy.remove(key);
  return copy;
}

/**
 * Per-call credentials that add nothing: gRPC requests them when it has picked an open connection for the call, so
 * `onSent` runs just before the request can be sent, and not at all while there is no connection.
 */
function reportingCredentials(onSent: () => void): Credentials {
  const credentials = {
    generateMetadata: () => {
      onSent();
      return Promise.resolve(noMetadata);
    },
    compose: () => credentials,
    _equals: (other: unknown) => other === credentials,
  };
  return credentials as unknown as Credentials;
}

/** An interceptor for streams that adds metadata, such as the token or `hasleader`, and reports the status. */
export function streamInterceptor(
  metadata: Readonly<Record<string, string>>,
  onStatus: (status: GrpcStatus) => void,
): Interceptor {
  return (options, nextCall) => withMetadata(nextCall(options), metadata, onStatus) as Intercepted;
}

function withMetadata(
  call: GrpcCall,
  added: Readonly<Record<string, string>> | undefined,
  onStatus: (status: GrpcStatus) => void,
): GrpcCall {
  const start = call.start.bind(call);
  call.start = (metadata, listener) => {
    noMetadata ??= emptied(metadata);
    // A copy: etcd3 passes the same object to every call.
    const own = added ? metadata.clone() : metadata;
    for (const [key, value] of Object.entries(added ?? {})) own.set(key, value);
    start(own, {
      onReceiveMetadata: (received) => listener?.onReceiveMetadata?.(received),
      onReceiveMessage: (message: unknown) => listener?.onReceiveMessage?.(message),
      onReceiveStatus: (status) => {
        onStatus(status);
        listener?.onReceiveStatus?.(Number(status.code) === 0 ? status : { ...status, ...HIDDEN });
      },
    });
  };
  return call;
}
