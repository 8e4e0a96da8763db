import type { ErrorName } from "./frames.js";

/**
 * `connecting`: there was no connection yet. `turned away`: the peer asked for a certificate of the client, and closed the
 * connection. `lost`: it broke, or did not answer a ping. `protocol`: the peer violated
 * the protocol. `calm`: the peer asks for fewer pings or calls (ENHANCE_YOUR_CALM). `reset`: the peer reset this one
 * stream. `left`: the peer ends the connection without a complaint, such as before a restart. `retired`: this side closed it.
 */
export type FailureKind =
  "connecting" | "turned away" | "lost" | "protocol" | "calm" | "reset" | "left" | "retired";

/** Why a stream ended before its answer was complete. Whether the peer processed the request is a separate matter. */
export class StreamFailure extends Error {
  override readonly name = "StreamFailure";

  constructor(
    readonly kind: FailureKind,
    message: string,
    options?: ErrorOptions,
  ) {
    super(message, options);
  }
}

/** The peer has reset one stream. */
export const resetFailure = (code: ErrorName): StreamFailure =>
  new StreamFailure(code === "ENHANCE_YOUR_CALM" ? "calm" : "reset", `the member reset the call: ${code}`);

/** The peer ends the connection, with a text for our log. */
export function goawayFailure(code: ErrorName, debug: string): StreamFailure {
  const text = debug === "" ? code : `${code}, ${debug}`;
  const kind = code === "NO_ERROR" ? "left" : code === "ENHANCE_YOUR_CALM" ? "calm" : "lost";
  return new StreamFailure(kind, `the member ends the connection: ${text}`);
}

/** For a connection that the peer closed without an error, in that state. */
export function closedText(state: string, secure: boolean): string {
  if (state !== "greeting") return "the member closed the connection";
  return secure
    ? "the member closed the connection right after the TLS handshake"
    : "the member closed the connection at once: does it want TLS (https://, credentials)?";
}

export const turnedAway = (cause: Error | undefined): StreamFailure =>
  new StreamFailure("turned away", "the member asked for a client certificate, and closed the connection", {
    cause,
  });

/** The reasons of several addresses, one after the other: the message of the error that collects them is empty. */
export function messageOf(error: Error): string {
  if (!(error instanceof AggregateError)) return error.message;
  return error.errors.map((each: Error) => each.message).join("; ");
}

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
