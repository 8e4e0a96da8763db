import type { Connection } from "../http2/connection.js";
import { StreamFailure } from "../http2/failure.js";
import { MessageReader } from "./message-reader.js";
import { foreignStatus, statusOf, type Status } from "./status.js";
import { Http2Stream, type Headers } from "../http2/stream.js";

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
export interface CallSetting {
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
