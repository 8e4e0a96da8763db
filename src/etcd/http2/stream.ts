import type { AbortFanOut } from "../../base/util/abort.js";
import type { Timer } from "../../base/util/clock.js";
import { nextTick } from "../../base/util/own-context.js";
import type { Timers } from "../../base/util/timers.js";
import { type CallOptions, gaveUp, type StreamHandlers, UnansweredError } from "../port.js";
import { type Status, statusFailure } from "../refusals.js";
import type { Connection } from "./connection.js";
import type { Headers } from "./endpoint.js";
import { StreamFailure, streamFailure } from "./failure.js";
import type { Channel } from "./member.js";

export interface Method<Answer = unknown> {
  readonly path: string;
  /** The longest message of the answer that makes sense. */
  readonly maxMessageBytes?: number;
  /** Sent before everything else: a lease depends on it. */
  readonly urgent?: boolean;
  /** An answer that it cannot decode counts as none. */
  decode(message: Buffer): Answer;
}

/** The headers of a request: see `RequestHeaders`. */
export interface EncodedHeaders {
  readonly block: Buffer;
  /** What they count for in the peer's MAX_HEADER_LIST_SIZE. */
  readonly listBytes: number;
}

export interface Request<Answer = unknown> {
  readonly method: Method<Answer>;
  readonly headers: EncodedHeaders;
  /** The one message of a unary call, with its gRPC prefix. `undefined`: any number of messages, by `write`. */
  readonly message?: Buffer;
}

/** What all streams to one member share. */
export interface Peer {
  readonly host: string;
  readonly channel: Channel;
  readonly deadlines: Timers;
  readonly aborts: AbortFanOut;
}

/**
 * A server that ends each connection after some requests turns away those that were sent beyond that number: of many that
 * are sent at once, some are turned away several times. A hostile server turns all of them away each time.
 */
const MAX_MOVES = 16;

/**
 * One stream of HTTP/2, which is one gRPC call. The rules of its life are those of RFC 9113 and of
 * https://github.com/grpc/grpc/blob/master/doc/PROTOCOL-HTTP2.md ("gRPC"):
 *
 * ```text
 *   waiting --- HEADERS sent ---> open --- response headers ---> answering
 *      |  ^                       |  |                               |
 *      |  '-------- GOAWAY -------'  '-------------.  .--------------'
 *      '---------------------------------------> over
 * ```
 *
 * - **waiting** ("idle", RFC 5.1): there is no connection yet, or the peer allows no more streams (5.1.2). The peer has
 *   certainly not executed the call.
 * - **open**: the peer may execute the call. DATA is sent as far as the windows permit (5.2, 6.9). The last message of a unary
 *   call has END_STREAM: "half-closed (local)".
 * - **answering**: headers of a gRPC server have come. Messages follow, in any frames, and at the end trailers.
 * - **over** ("closed"): nothing is sent, and what still arrives is ignored. The first of these events leads there:
 *   - Trailers that end the stream have the status (gRPC, "Responses"); headers may be trailers at once. The peer need not have
 *     read the whole request (RFC 8.1): then the stream is reset, as it is half-closed at the peer only.
 *   - Headers of another server than gRPC's: the status derives from HTTP's.
 *   - The peer breaks a rule of gRPC: the stream is reset, the connection goes on. In doubt.
 *   - RST_STREAM (RFC 5.4.2): in doubt, except REFUSED_STREAM, which says that nothing was executed (8.7). A unary call that
 *     was opened before the peer's limit of streams was known, and so is beyond it, waits again.
 *   - GOAWAY with a lower ID, or while waiting: not executed (RFC 6.8). A peer without a complaint gets the call again on
 *     another connection, if nothing of it was sent, or its request is unary and so still known.
 *   - The end of the connection: in doubt if the stream was open.
 *   - `cancel`, at the deadline of a unary call (which the peer is not told: no `grpc-timeout`), by its caller's abort or by
 *     `close`: RST_STREAM with CANCEL. What was sent cannot be called back. No hook is called after it.
 */
export abstract class Http2Stream<Answer = unknown> {
  state: "waiting" | "open" | "answering" | "over" = "waiting";
  /** 0 while waiting. `Connection` sets this field and the following ones. */
  id = 0;
  connection: Connection | undefined;
  /** How many bytes of DATA the peer still accepts on this stream; below 0 after the peer has lowered its initial window. */
  sendWindow = 0;
  /** Bytes received since the last WINDOW_UPDATE for this stream. */
  received = 0;
  /** Messages that are not sent completely. */
  readonly outbox: Buffer[];
  /** How much of the first one is sent. */
  sentOfFirst = 0;
  #moves = 0;
  readonly #messages: MessageReader;

  constructor(
    protected readonly peer: Peer,
    readonly request: Request<Answer>,
  ) {
    this.outbox = request.message === undefined ? [] : [request.message];
    this.#messages = new MessageReader(request.method.maxMessageBytes);
  }

  get over(): boolean {
    return this.state === "over";
  }

  /** Its caller has given up, which it hears in this turn of the event loop: it must not be opened. */
  get unwanted(): boolean {
    return false;
  }

  /** From now on the peer may execute the call. Called again if the call is sent again. */
  protected sent(): void {}
  protected abstract answered(message: Buffer): void;
  /** The peer's answer to the call. Called once, as the last hook. */
  protected abstract ended(status: Status): void;
  /** The call ended without an answer; `inDoubt`: the peer may have executed it. Called once, as the last hook. */
  protected abstract failed(failure: StreamFailure, inDoubt: boolean): void;

  /** `message` has its gRPC prefix. */
  write(message: Buffer): void {
    if (this.over) return;
    this.outbox.push(message);
    this.connection?.send(this);
  }

  cancel(): void {
    if (this.over) return;
    this.state = "over";
    this.connection?.cancel(this);
  }

  /** Bytes of memory for a message that is not complete. */
  get kept(): number {
    return this.#messages.keptBytes;
  }

  /** What it waits for on an open connection. */
  get holdUp(): string | undefined {
    return this.state === "waiting" ? this.connection?.holdUp : undefined;
  }

  /** The headers were handed to the open connection. */
  opened(): void {
    this.state = "open";
    try {
      this.sent();
    } catch (error) {
      throwLater(error);
    }
  }

  headers(headers: Headers, endStream: boolean): void {
    // An interim response: RFC 9113, section 8.1.
    if (!endStream && /^1\d\d$/.test(headers.get(":status") ?? "")) return;
    if (this.state === "open") {
      const foreign = foreignStatus(headers);
      if (foreign !== undefined) {
        this.#leave(endStream);
        return this.#end(foreign, true);
      }
      this.state = "answering";
      // `grpc-encoding` says how messages may be compressed: the flag of each says whether it is.
      if (!endStream) return;
    }
    if (!endStream) return this.#break("headers in the middle of an answer");
    const status = statusOf(headers);
    if (status === undefined) return this.#break("the answer ended without a status");
    if (status.code === 0 && this.#messages.incomplete)
      return this.#break("the answer ended inside a message");
    this.#leave(true);
    this.#end(status, true);
  }

  data(payload: Buffer, endStream: boolean): void {
    if (this.state !== "answering") return this.#break("data before headers");
    const before = this.kept;
    try {
      this.#messages.read(payload, this);
    } catch (error) {
      if (!(error instanceof StreamFailure)) throw error;
      // A message before it in the same frame has ended the stream.
      if (this.over) return;
      this.#leave(false);
      return this.#end(error, true);
    }
    if (this.over) return;
    if (endStream) return this.#break("the answer ended without a status");
    const greediest = this.kept > before ? this.connection?.greediest : undefined;
    if (greediest) greediest.#break("messages that are not complete need too much memory in this process");
  }

  message(message: Buffer): void {
    if (this.over) return;
    try {
      this.answered(message);
    } catch (error) {
      throwLater(error);
    }
  }

  /**
   * The connection uses the stream no longer. `processed` false: the peer has certainly not executed the call. `again`: it may
   * be sent again then.
   */
  lost(failure: StreamFailure, processed: boolean, again = failure.kind === "left"): void {
    if (this.over) return;
    if (again && !processed && this.#rewind()) return this.peer.channel.start(this);
    this.#end(failure, processed);
  }

  /** Returns false if the request cannot be sent again: what was sent of a stream is not kept. */
  #rewind(): boolean {
    const { message } = this.request;
    const isKept = this.state === "waiting" || (this.state === "open" && message !== undefined);
    if (!isKept || ++this.#moves > MAX_MOVES) return false;
    if (message !== undefined) this.outbox.splice(0, Infinity, message);
    this.id = this.sentOfFirst = 0;
    this.state = "waiting";
    return true;
  }

  #break(rule: string): void {
    this.#leave(false);
    this.#end(new StreamFailure("protocol", rule), true);
  }

  /** `complete`: the peer has ended its side of the stream. Otherwise, or if this side is open, the stream is reset. */
  #leave(complete: boolean): void {
    this.state = "over";
    if (complete && this.request.message !== undefined && this.outbox.length === 0)
      this.connection?.finished(this);
    else this.connection?.cancel(this);
  }

  #end(end: Status | StreamFailure, inDoubt: boolean): void {
    this.state = "over";
    try {
      if (end instanceof StreamFailure) this.failed(end, inDoubt);
      else this.ended(end);
    } catch (error) {
      throwLater(error);
    }
  }
}

/** An error of a hook is an uncaught exception, as of any event listener, but it must not stop what other calls wait for. */
function throwLater(error: unknown): void {
  nextTick(() => {
    throw error;
  });
}

/** One attempt of one unary call: settles with the decoded answer, a failure, the end of its time, or the caller's abort. */
export class UnaryStream<Answer> extends Http2Stream<Answer> {
  #message: Buffer | undefined;
  #deadline: Timer | undefined;
  #stopListening: (() => void) | undefined;
  #resolve!: (answer: Answer) => void;
  #reject!: (error: Error) => void;

  constructor(
    peer: Peer,
    request: Request<Answer>,
    private readonly options: CallOptions,
  ) {
    super(peer, request);
  }

  run(): Promise<Answer> {
    const { channel, deadlines, aborts } = this.peer;
    const { timeoutMs, signal } = this.options;
    if (signal?.aborted) return Promise.reject(gaveUp(false));
    const answer = new Promise<Answer>((resolve, reject) => {
      this.#resolve = resolve;
      this.#reject = reject;
    });
    this.#deadline = deadlines.add(timeoutMs, () => this.#giveUp(this.#timeout()));
    if (signal !== undefined)
      this.#stopListening = aborts.add(signal, () => this.#giveUp(gaveUp(this.state !== "waiting")));
    channel.start(this);
    return answer;
  }

  /** One abort may end many calls: the end of the first makes room for the next. */
  override get unwanted(): boolean {
    return this.options.signal?.aborted === true;
  }

  protected override sent(): void {
    this.options.onSent?.();
  }

  protected answered(message: Buffer): void {
    if (this.#message === undefined) this.#message = message;
    else this.#giveUp(new UnansweredError("more than one answer to one request"));
  }

  protected ended(status: Status): void {
    if (status.code !== 0) return this.#fail(statusFailure(status, this.peer.host));
    if (this.#message === undefined) return this.#fail(new UnansweredError("an answer without a message"));
    this.#stop();
    let answer: Answer;
    try {
      answer = this.request.method.decode(this.#message);
    } catch (error) {
      return this.#reject(senseless(error));
    }
    this.#resolve(answer);
  }

  protected failed(failure: StreamFailure, inDoubt: boolean): void {
    this.#fail(streamFailure(failure, this.peer.host, inDoubt));
  }

  #timeout(): UnansweredError {
    const limit = `within ${Math.round(this.options.timeoutMs)} ms`;
    if (this.state !== "waiting") return new UnansweredError(`no answer ${limit}`);
    const { holdUp } = this;
    const reason = holdUp === undefined ? `no connection ${limit}` : `not sent ${limit}: ${holdUp}`;
    return new UnansweredError(reason, { inDoubt: false });
  }

  #giveUp(error: Error): void {
    this.cancel();
    this.#fail(error);
  }

  #fail(error: Error): void {
    this.#stop();
    this.#reject(error);
  }

  #stop(): void {
    this.#deadline?.cancel();
    this.#stopListening?.();
  }
}

/** A bidirectional stream. Messages that are written before the connection is open wait for it. */
export class DuplexStream<Answer> extends Http2Stream<Answer> {
  constructor(
    peer: Peer,
    request: Request<Answer>,
    private readonly handlers: StreamHandlers<Answer>,
  ) {
    super(peer, request);
    peer.channel.start(this);
  }

  /** Resets the stream, which also frees the watches of the member. `ended` is not called after that. */
  close(): void {
    this.cancel();
  }

  protected answered(message: Buffer): void {
    let answer: Answer;
    try {
      answer = this.request.method.decode(message);
    } catch (error) {
      this.cancel();
      return this.handlers.ended(senseless(error));
    }
    this.handlers.answer(answer);
  }

  protected ended(status: Status): void {
    const isOk = status.code === 0;
    this.handlers.ended(
      isOk ? new UnansweredError("the member ended the stream") : statusFailure(status, this.peer.host),
    );
  }

  protected failed(failure: StreamFailure, inDoubt: boolean): void {
    this.handlers.ended(streamFailure(failure, this.peer.host, inDoubt));
  }
}

const senseless = (cause: unknown): UnansweredError => new UnansweredError("malformed response", { cause });

const UNKNOWN = 2;
const INTERNAL = 13;
const UNAVAILABLE = 14;

/** https://github.com/grpc/grpc/blob/master/doc/http-grpc-status-mapping.md */
const BY_HTTP_STATUS: ReadonlyMap<string, number> = new Map([
  ["400", INTERNAL],
  ["401", 16],
  ["403", 7],
  ["404", 12],
  ["429", UNAVAILABLE],
  ["502", UNAVAILABLE],
  ["503", UNAVAILABLE],
  ["504", UNAVAILABLE],
]);

/** `undefined`: the response comes from a gRPC server. Otherwise the status that gRPC derives from HTTP's. */
function foreignStatus(headers: Headers): Status | undefined {
  const status = headers.get(":status") ?? "none";
  const contentType = headers.get("content-type") ?? "none";
  const isGrpc = /^application\/grpc(?:$|[+;])/.test(contentType);
  // A gRPC server may explain an HTTP error by a status of its own.
  if (isGrpc && (status === "200" || headers.has("grpc-status"))) return undefined;
  const code = BY_HTTP_STATUS.get(status) ?? UNKNOWN;
  return { code, details: `HTTP status ${status}, content type ${contentType}: is this etcd?` };
}

const OK: Status = { code: 0, details: "" };

/** The status in trailers, or in headers that end the stream. `undefined` if they contain no status. */
function statusOf(headers: Headers): Status | undefined {
  const code = headers.get("grpc-status");
  if (code === undefined || !/^\d{1,9}$/.test(code)) return undefined;
  if (code === "0") return OK;
  return { code: Number(code), details: decodePercent(headers.get("grpc-message") ?? "") };
}

/** `grpc-message` is percent-encoded UTF-8. What is encoded wrongly stays as it is, as PROTOCOL-HTTP2 requires. */
function decodePercent(text: string): string {
  if (!text.includes("%")) return text;
  try {
    return decodeURIComponent(text);
  } catch {
    return text;
  }
}

/** One byte that says whether the message is compressed, four for its length. */
const PREFIX_BYTES = 5;

/** etcd sends all values of a range in one message: 128 operations of 1.5 MiB each are possible. */
const MAX_MESSAGE_BYTES = 256 * 1024 * 1024;

const NO_BYTES = Buffer.alloc(0);

interface MessageTaker {
  message(message: Buffer): void;
}

/** Splits the DATA of one stream into length-prefixed gRPC messages, however the peer has cut it into frames. */
export class MessageReader {
  /** Memory for a message that is not complete: its first `#bytes` bytes have arrived. */
  #kept: Buffer = NO_BYTES;
  #bytes = 0;

  constructor(private readonly maxBytes: number = MAX_MESSAGE_BYTES) {}

  /** How much memory the message has that is not complete. */
  get keptBytes(): number {
    return this.#kept.length;
  }

  /** Whether the data ended inside a message. */
  get incomplete(): boolean {
    return this.#bytes > 0;
  }

  /** Hands each complete message to `taker`. @throws {StreamFailure} on data that is no sequence of messages. */
  read(data: Buffer, taker: MessageTaker): void {
    let at = this.#bytes === 0 ? 0 : this.#complete(data, taker);
    while (data.length - at >= PREFIX_BYTES) {
      const end = at + PREFIX_BYTES + this.#lengthAt(data, at);
      if (end > data.length) break;
      taker.message(data.subarray(at + PREFIX_BYTES, end));
      at = end;
    }
    if (at < data.length) this.#keep(data, at, data.length);
  }

  /** Continues the message that is kept, and returns where the next one begins in `data`. */
  #complete(data: Buffer, taker: MessageTaker): number {
    let at = 0;
    if (this.#bytes < PREFIX_BYTES) at = this.#keep(data, 0, PREFIX_BYTES - this.#bytes);
    if (this.#bytes < PREFIX_BYTES) return at;
    const whole = PREFIX_BYTES + this.#lengthAt(this.#kept, 0);
    at = this.#keep(data, at, at + whole - this.#bytes);
    if (this.#bytes < whole) return at;
    const message = this.#kept.subarray(PREFIX_BYTES, whole);
    this.#kept = NO_BYTES;
    this.#bytes = 0;
    taker.message(message);
    return at;
  }

  /** Copies `data` up to `end`, or as far as it goes, and returns where that is. The peer may announce more than it sends. */
  #keep(data: Buffer, start: number, end: number): number {
    const stop = Math.min(end, data.length);
    const needed = this.#bytes + stop - start;
    const whole = this.#bytes + end - start;
    if (needed > this.#kept.length) this.#grow(Math.max(needed, Math.min(whole, 2 * this.#kept.length)));
    data.copy(this.#kept, this.#bytes, start, stop);
    this.#bytes = needed;
    return stop;
  }

  #grow(size: number): void {
    const larger = Buffer.allocUnsafe(size);
    this.#kept.copy(larger, 0, 0, this.#bytes);
    this.#kept = larger;
  }

  #lengthAt(bytes: Buffer, at: number): number {
    if (bytes[at] !== 0)
      throw new StreamFailure("protocol", "a compressed message, though nothing was agreed");
    const length = bytes.readUInt32BE(at + 1);
    if (length > this.maxBytes)
      throw new StreamFailure("protocol", `a message of ${length} bytes, more than ${this.maxBytes}`);
    return length;
  }
}
