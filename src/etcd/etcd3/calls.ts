// Calls and streams of grpc-js.
// - grpc-js reports its own failures as statuses, too, some with codes that read as rejections: `madeUp` classifies those by
//   their texts, and every other status goes to `etcd/refusals.ts`.
// - An attempt is in doubt only after gRPC picked an open connection for it (`UnaryCall`).
// - Streams and calls are cancelled in a later turn of the event loop, never inside the callback that reads the connection.
import type { Etcd3 } from "etcd3";
import type { Clock } from "../../base/util/clock.js";
import { printable } from "../../base/util/printable.js";
import { type CallOptions, gaveUp, type StreamHandlers, UnansweredError } from "../port.js";
import { certificateFailure, foreignFailure, isUnreachable, readable, rejection } from "../refusals.js";
import { isError } from "../../base/util/realm.js";
import { setImmediate } from "../../base/util/own-context.js";

/** How grpc-js wraps the reason for a failed connection: sometimes with a time, and with a note that is mostly empty. */
const NO_CONNECTION =
  /^No connection established\. Last error: (?:Error: )?(.*?)\s*(?:\(\d{4}-[^)]*\))?\. Resolution note: ?/s;
/** HTTP/2's error 11 as grpc-js reports it, with the code RESOURCE_EXHAUSTED. */
const ENHANCE_YOUR_CALM = /^Bandwidth exhausted or memory limit exceeded$|too_many_pings/;
/** HTTP/2's error 12, with the code PERMISSION_DENIED; and a status without its message, with UNIMPLEMENTED. */
const TRANSPORT = /^Protocol not secure enough$|^No message received$/;

/** What a user can do about a failure of grpc-js's own, by a pattern of the reason. */
const HINTS: readonly (readonly [RegExp, string])[] = [
  // https://nodejs.org/api/deprecations.html#DEP0123
  [
    /TLS ServerName to an IP address/,
    "from Node.js 26 on TLS needs a host name, or the certificate's name in credentials.serverName; in a client of your own: in grpcOptions['grpc.ssl_target_name_override']",
  ],
];

/** grpc-js says no more of a peer that has closed the connection: a balancer without members does, too. */
const CLOSED = "Failed to connect";
const CLOSED_HINT = "it closed the connection at once: does it want TLS (https://, credentials)?";
const CLOSED_SECURE_HINT =
  "it closed the connection at once: does it speak HTTP/2, and trust credentials.certChain?";

/** The status of a failed attempt: grpc-js makes some without a text. */
export interface GrpcStatus {
  readonly code: number;
  readonly details?: string;
}

/** Classifies the status of a failed attempt on `host`. grpc-js also makes up statuses, which no server has sent. */
export function failureOf({ code, details = "" }: GrpcStatus, host: string, sent = true): Error {
  const status = { code, details: reasonIn(details, host) };
  return rejection(status, host) ?? madeUp(status.details, host, sent) ?? foreignFailure(status, host, sent);
}

/** The failure for a text that grpc-js itself has made up; `undefined` for any other text. */
function madeUp(details: string, host: string, sent: boolean): Error | undefined {
  if (ENHANCE_YOUR_CALM.test(details))
    return new UnansweredError(readable(details), { kind: "calm", inDoubt: sent });
  if (TRANSPORT.test(details)) return new UnansweredError(readable(details), { inDoubt: sent });
  if (!sent && isUnreachable(details)) return new UnansweredError(readable(details), { kind: "unreachable" });
  return sent ? undefined : certificateFailure(details, host);
}

/** The reason for a failed connection, with a hint; any other text as it is. */
function reasonIn(details: string, host: string): string {
  const reason = NO_CONNECTION.exec(details)?.[1] ?? details;
  if (reason === CLOSED) return `${reason}; ${host.startsWith("https:") ? CLOSED_SECURE_HINT : CLOSED_HINT}`;
  const hint = HINTS.find(([looksLike]) => looksLike.test(reason))?.[1];
  return hint === undefined ? reason : `${reason}; ${hint}`;
}

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
    if (signal?.aborted) throw gaveUp(false);
    const timer = clock.after(timeoutMs, () => this.#timeOut(timeoutMs));
    const onAbort = (): void => this.#cancel(gaveUp(this.#sent));
    signal?.addEventListener("abort", onAbort, { once: true });
    try {
      const credentials = reportingCredentials(() => {
        // Cancelled in this turn of the event loop, and reported as not sent.
        if (this.#cancelled) throw this.#cancelled;
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
    const message = printable(isError(error) ? error.message : String(error));
    return new UnansweredError(message, { cause: error, inDoubt: this.#sent });
  }

  #timeOut(timeoutMs: number): void {
    const what = this.#sent ? "no answer" : "no connection";
    this.#cancel(new UnansweredError(`${what} within ${Math.round(timeoutMs)} ms`, { inDoubt: this.#sent }));
  }

  #cancel(reason: UnansweredError): void {
    this.#cancelled ??= reason;
    // Deferred, as with streams: this may run within the callback in which the connection is read.
    setImmediate(() => this.#call?.cancelWithStatus(FAILED_PRECONDITION, reason.message));
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
 * `onSend` runs just before the request can be sent, and not at all while there is no connection. If it throws, nothing is sent.
 */
function reportingCredentials(onSend: () => void): Credentials {
  const credentials = {
    generateMetadata: () =>
      new Promise<Metadata | undefined>((resolve) => {
        onSend();
        resolve(noMetadata);
      }),
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

/** The part of a gRPC stream that this library uses. */
export interface GrpcStream<Request, Raw> {
  write(request: Request): unknown;
  end(): void;
  cancel(): void;
  on(event: "data", listener: (raw: Raw) => void): unknown;
  on(event: "error", listener: (error: Error) => void): unknown;
  on(event: "end", listener: () => void): unknown;
}

/** The host of a stream, and the status of its call, once gRPC has reported one. */
interface StreamCall {
  readonly host: string;
  readonly status: GrpcStatus | undefined;
}

interface DuplexHandlers<Raw, Answer> extends StreamHandlers<Answer> {
  /** Decodes an answer. A stream whose answers cannot be decoded has failed. */
  read(raw: Raw): Answer;
  /** Called once, when the stream uses its connection no longer. */
  released(): void;
}

/** etcd3 opens streams asynchronously: earlier writes are kept. `ended` is called once, and not after `close()`. */
export class DuplexStream<Request, Raw, Answer> {
  #stream: GrpcStream<Request, Raw> | undefined;
  /** Requests from before the stream was open. */
  readonly #unsent: Request[] = [];
  /** The stream has failed or was closed. */
  #over = false;

  constructor(
    opening: Promise<GrpcStream<Request, Raw>>,
    private readonly call: StreamCall,
    private readonly handlers: DuplexHandlers<Raw, Answer>,
  ) {
    opening.then(
      (stream) => this.#opened(stream),
      (error: Error) => this.#notOpened(error),
    );
  }

  write(request: Request): void {
    if (this.#over) return;
    if (this.#stream) this.#stream.write(request);
    else this.#unsent.push(request);
  }

  close(): void {
    if (this.#over) return;
    this.#over = true;
    // Otherwise it is closed as soon as it is open.
    if (this.#stream) closeStream(this.#stream, () => this.handlers.released());
  }

  #opened(stream: GrpcStream<Request, Raw>): void {
    this.#stream = stream;
    // Registered first, even for a stream that is closed at once: without this listener an error would crash the process.
    stream.on("error", (error) => this.#fail(error));
    stream.on("end", () => this.#fail(new UnansweredError("the member ended the stream")));
    stream.on("data", (raw) => this.#over || this.#take(raw));
    if (this.#over) closeStream(stream, () => this.handlers.released());
    else for (const request of this.#unsent.splice(0)) stream.write(request);
  }

  #notOpened(error: Error): void {
    if (this.#over) this.handlers.released();
    else this.#fail(error);
  }

  #take(raw: Raw): void {
    let answer: Answer;
    try {
      answer = this.handlers.read(raw);
    } catch (error) {
      if (this.#stream) closeStream(this.#stream, () => undefined);
      return this.#fail(new UnansweredError("malformed response", { cause: error }));
    }
    guarded(() => this.handlers.answer(answer));
  }

  #fail(error: Error): void {
    if (this.#over) return;
    this.#over = true;
    this.handlers.released();
    const { host, status } = this.call;
    this.handlers.ended(status ? failureOf(status, host, false) : error);
  }
}

/**
 * `end()` alone leaks the member's watchers, `cancel()` alone counts as a failure of the host. Both are deferred: this may
 * run within the callback in which node:http2 reads from the same connection, where a reset of another stream never returns
 * (seen on Node.js 20: the process spins, and its memory grows).
 */
function closeStream(stream: { end(): void; cancel(): void }, released: () => void): void {
  setImmediate(() => {
    stream.end();
    stream.cancel();
    released();
  });
}

/** An exception here would become an unhandled rejection in the stream's promise chain: make it a plain crash. */
function guarded(run: () => void): void {
  try {
    run();
  } catch (error) {
    process.nextTick(() => {
      throw error;
    });
  }
}
