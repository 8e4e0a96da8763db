// gRPC over one HTTP/2 stream.
// - Only a status that the peer has sent is an answer; `etcd/refusals.ts` says what it means. A call that ends otherwise is
//   in doubt from the moment when its headers were handed to the open connection, unless the peer has not processed it.
// - A call that a peer turns away as it leaves (GOAWAY without an error) is sent again on the next connection: nginx and
//   HAProxy leave for each reload, and nginx after a number of requests.
// - An answer that cannot be read counts as none. A call settles once.
import type { Connection } from "./connection.js";
import { type Headers, Http2Stream, StreamFailure } from "./stream.js";

/** A gRPC status. https://grpc.github.io/grpc/core/md_doc_statuscodes.html */
export interface Status {
  readonly code: number;
  readonly details: string;
}

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
  if (status === "200" && isGrpc) return undefined;
  // A gRPC server may explain an HTTP error by a status of its own.
  if (isGrpc && headers.has("grpc-status")) return undefined;
  const code = BY_HTTP_STATUS.get(status) ?? UNKNOWN;
  return { code, details: `HTTP status ${status}, content type ${contentType}: is this etcd?` };
}

/** The status in trailers, or in headers that end the stream. `undefined` if they contain no status. */
function statusOf(headers: Headers): Status | undefined {
  const code = headers.get("grpc-status");
  if (code === undefined || !/^\d{1,9}$/.test(code)) return undefined;
  if (code === "0") return OK;
  return { code: Number(code), details: decodePercent(headers.get("grpc-message") ?? "") };
}

const OK: Status = { code: 0, details: "" };

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

  /** Calls `onMessage` for each complete message. @throws {StreamFailure} on data that is no sequence of messages. */
  read(data: Buffer, onMessage: (message: Buffer) => void): void {
    let at = this.#bytes === 0 ? 0 : this.#complete(data, onMessage);
    while (data.length - at >= PREFIX_BYTES) {
      const end = at + PREFIX_BYTES + this.#lengthAt(data, at);
      if (end > data.length) break;
      onMessage(data.subarray(at + PREFIX_BYTES, end));
      at = end;
    }
    if (at < data.length) this.#keep(data, at, data.length);
  }

  /** Continues the message that is kept, and returns where the next one begins in `data`. */
  #complete(data: Buffer, onMessage: (message: Buffer) => void): number {
    let at = 0;
    if (this.#bytes < PREFIX_BYTES) at = this.#keep(data, 0, PREFIX_BYTES - this.#bytes);
    if (this.#bytes < PREFIX_BYTES) return at;
    const whole = PREFIX_BYTES + this.#lengthAt(this.#kept, 0);
    at = this.#keep(data, at, at + whole - this.#bytes);
    if (this.#bytes < whole) return at;
    const message = this.#kept.subarray(PREFIX_BYTES, whole);
    this.#kept = NO_BYTES;
    this.#bytes = 0;
    onMessage(message);
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

export interface CallListener {
  /** The request was handed to the open connection: from now on the peer may execute it. */
  sent(): void;
  message(message: Buffer): void;
  /** The peer's answer to the call. Called once, as the last call. */
  ended(status: Status): void;
  /** The call ended without an answer; `inDoubt`: the peer may have executed it. Called once, as the last call. */
  failed(failure: StreamFailure, inDoubt: boolean): void;
}

/** What a call needs besides its listener. */
interface CallSetting {
  /** See `requestHeaders`. */
  readonly headerBlock: Buffer;
  readonly urgent: boolean;
  /** The request has one message, and ends with it. */
  readonly unary: boolean;
  /** The longest message of the answer that makes sense. */
  readonly maxMessageBytes?: number | undefined;
}

/**
 * A server that ends each connection after some requests turns away those that were sent beyond that number: of many that
 * are sent at once, some are turned away several times. A hostile server turns all of them away each time.
 */
const MAX_MOVES = 16;

/** Starts calls on a connection that takes them. */
interface Starter {
  start(call: Call): void;
}

/** One gRPC call: https://github.com/grpc/grpc/blob/master/doc/PROTOCOL-HTTP2.md. No listener is called after `cancel()`. */
export class Call extends Http2Stream {
  readonly headerBlock: Buffer;
  readonly urgent: boolean;
  readonly endsWithOutbox: boolean;
  #connection: Connection | undefined;
  #starter: Starter | undefined;
  /** The request of a unary call: it is sent again if the peer turns the call away. */
  #request: Buffer | undefined;
  #moves = 0;
  readonly #messages: MessageReader;
  /** Headers of a gRPC server have arrived: what ends the stream from now on are trailers. */
  #responded = false;

  constructor(
    setting: CallSetting,
    private readonly listener: CallListener,
  ) {
    super();
    this.headerBlock = setting.headerBlock;
    this.urgent = setting.urgent;
    this.endsWithOutbox = setting.unary;
    this.#messages = new MessageReader(setting.maxMessageBytes);
  }

  /** `Connection` sends the call from now on. */
  startOn(connection: Connection, starter: Starter): void {
    this.#connection = connection;
    this.#starter = starter;
    connection.send(this);
  }

  /** `message` has its gRPC prefix. */
  write(message: Buffer): void {
    if (this.over) return;
    if (this.endsWithOutbox) this.#request = message;
    this.outbox.push(message);
    this.#connection?.send(this);
  }

  /** See `Connection`. */
  get holdUp(): string | undefined {
    return this.#connection?.holdUp;
  }

  /** Resets the stream. What has been sent cannot be called back. */
  cancel(): void {
    if (this.over) return;
    this.over = true;
    this.#connection?.cancel(this);
  }

  sent(): void {
    try {
      this.listener.sent();
    } catch (error) {
      throwLater(error);
    }
  }

  headers(headers: Headers, endStream: boolean): void {
    // An interim response: RFC 9113, section 8.1.
    if (/^1\d\d$/.test(headers.get(":status") ?? "") && !endStream) return;
    if (this.#responded) return this.#trailers(headers, endStream);
    const foreign = foreignStatus(headers);
    if (foreign !== undefined) return this.#end(foreign, endStream);
    this.#responded = true;
    // `grpc-encoding` says how messages may be compressed: the flag of each says whether it is.
    if (endStream) this.#trailers(headers, endStream);
  }

  data(payload: Buffer, endStream: boolean): void {
    if (!this.#responded) return this.#fail("data before headers");
    try {
      this.#messages.read(payload, (message) => this.#message(message));
    } catch (error) {
      if (error instanceof StreamFailure) return this.#broken(error);
      throw error;
    }
    if (this.over) return;
    if (endStream) return this.#fail("the answer ended without a status");
    this.#keep(this.#messages.keptBytes);
  }

  /** The message that makes the connection's memory exceed its limit fails its call. */
  #keep(bytes: number): void {
    const grows = bytes > this.kept;
    this.kept = bytes;
    if (grows && this.#connection?.keepsTooMuch === true)
      this.#fail("the messages that are not complete need too much memory on this connection");
  }

  failed(failure: StreamFailure, processed: boolean): void {
    if (this.over || (failure.kind === "left" && !processed && this.#move())) return;
    this.over = true;
    this.#failed(failure, processed && this.id !== 0);
  }

  /**
   * The peer has not executed the call, and wants it on another connection: RFC 9113, section 6.8. Returns false if it cannot
   * be sent again: what was sent of a stream is not kept.
   */
  #move(): boolean {
    const kept = this.id === 0 || this.#request !== undefined;
    if (!kept || this.#responded || ++this.#moves > MAX_MOVES) return false;
    if (this.#request !== undefined) this.outbox.splice(0, Infinity, this.#request);
    this.id = this.sentOfFirst = 0;
    this.#starter?.start(this);
    return true;
  }

  #message(message: Buffer): void {
    if (this.over) return;
    try {
      this.listener.message(message);
    } catch (error) {
      throwLater(error);
    }
  }

  #trailers(headers: Headers, endStream: boolean): void {
    const status = statusOf(headers);
    if (!endStream) return this.#fail("headers in the middle of an answer");
    if (status === undefined) return this.#fail("the answer ended without a status");
    if (status.code === 0 && this.#messages.incomplete)
      return this.#fail("the answer ended inside a message");
    this.#end(status, true);
  }

  #end(status: Status, complete: boolean): void {
    this.#leave(complete);
    try {
      this.listener.ended(status);
    } catch (error) {
      throwLater(error);
    }
  }

  #broken(failure: StreamFailure): void {
    this.#leave(false);
    this.#failed(failure, true);
  }

  #failed(failure: StreamFailure, inDoubt: boolean): void {
    try {
      this.listener.failed(failure, inDoubt);
    } catch (error) {
      throwLater(error);
    }
  }

  #fail(message: string): void {
    this.#broken(new StreamFailure("protocol", message));
  }

  /**
   * `complete`: the peer has ended its side of the stream. Otherwise, or if this side is open, the stream is reset: the peer
   * may end a call without reading its whole request.
   */
  #leave(complete: boolean): void {
    this.over = true;
    if (complete && this.endsWithOutbox && this.outbox.length === 0) this.#connection?.finished(this);
    else this.#connection?.cancel(this);
  }
}

/** An error of a listener is an uncaught exception, as of any event listener, but it must not stop what other calls wait for. */
function throwLater(error: unknown): void {
  process.nextTick(() => {
    throw error;
  });
}
