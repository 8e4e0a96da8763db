import type { StreamFailure } from "./failure.js";

/** The headers of a response, or its trailers. */
export type Headers = ReadonlyMap<string, string>;

/**
 * One HTTP/2 stream (RFC 9113, section 5): what is still to be sent on it, and its flow-control windows. A subclass takes
 * what arrives. `Connection` alone calls these methods.
 */
export abstract class Http2Stream {
  /** 0 until `Connection` has written the request's headers. */
  id = 0;
  /** How many bytes of DATA the peer still accepts on this stream; below 0 after the peer has lowered its initial window. */
  sendWindow = 0;
  /** Bytes received since the last WINDOW_UPDATE for this stream. */
  received = 0;
  /** Bytes of memory for what has arrived of a message that is not complete. */
  kept = 0;
  /** The connection has something of this stream to send. */
  queued = false;
  /** The stream is over: nothing of it is sent, and what arrives for it is ignored. */
  over = false;
  /** Messages that are not sent completely. */
  readonly outbox: Buffer[] = [];
  /** How much of the first one is sent. */
  sentOfFirst = 0;

  /** The header block of the request, encoded. */
  abstract readonly headerBlock: Buffer;
  /** Sent before everything else: a lease depends on it. */
  abstract readonly urgent: boolean;
  /** The request ends with the last message of the outbox. */
  abstract readonly endsWithOutbox: boolean;

  /** The headers were handed to the open connection: from now on the peer may execute the call. */
  abstract sent(): void;
  abstract headers(headers: Headers, endStream: boolean): void;
  abstract data(payload: Buffer, endStream: boolean): void;
  /** The stream is over. `processed` false: the peer has certainly not executed the call. */
  abstract failed(failure: StreamFailure, processed: boolean): void;
}
