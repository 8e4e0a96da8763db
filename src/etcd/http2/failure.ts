import { MemberRefusedError, UnansweredError } from "../port.js";
import { certificateFailure, isUnreachable, readable } from "../refusals.js";
import type { ErrorName } from "./frames.js";
import { isError } from "../../base/util/realm.js";

/**
 * `connecting`: there was no connection yet. `turned away`: the peer asked for a certificate of the client, and closed the
 * connection. `lost`: it broke, or did not answer a ping. `protocol`: the peer violated
 * the protocol. `calm`: the peer asks for fewer pings or calls (ENHANCE_YOUR_CALM). `reset`: the peer reset this one
 * stream. `left`: the peer ends the connection without a complaint, such as before a restart. `retired`: this side closed it.
 * `forbidden`: the settings of the peer do not permit the request.
 */
export type FailureKind =
  "connecting" | "turned away" | "lost" | "protocol" | "calm" | "reset" | "left" | "retired" | "forbidden";

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

/** A request whose headers the peer would not read. */
export const tooLong = (maxBytes: number, bytes: number): StreamFailure =>
  new StreamFailure(
    "forbidden",
    `it takes ${maxBytes} bytes of headers at most (MAX_HEADER_LIST_SIZE), and a request has ${bytes}`,
  );

export const turnedAway = (cause: Error | undefined): StreamFailure =>
  new StreamFailure("turned away", "the member asked for a client certificate, and closed the connection", {
    cause,
  });

/** For a connection that the peer closed without an error, in that state. */
export function closedText(state: string, secure: boolean): string {
  if (state !== "greeting") return "the member closed the connection";
  return secure
    ? "the member closed the connection right after the TLS handshake"
    : "the member closed the connection at once: does it want TLS (https://, credentials)?";
}

const TURNED_AWAY =
  /^ERR_SSL_.*ALERT.*(CERTIFICATE|UNKNOWN_CA|ACCESS_DENIED|HANDSHAKE_FAILURE|DECRYPT_ERROR)/;

/**
 * The server's TLS has rejected the client, and read no request: in TLS 1.3, this verdict comes after the first one. Other
 * failures of TLS, as by a damaged record, say nothing about requests.
 */
export const isTlsVerdict = (error: unknown): boolean =>
  TURNED_AWAY.test((error as NodeJS.ErrnoException | undefined)?.code ?? "");

/** The reasons of several addresses, one after the other: the message of the error that collects them is empty. */
export function messageOf(error: Error): string {
  const { errors } = error as Partial<AggregateError>;
  return Array.isArray(errors) ? errors.map((each: Error) => each.message).join("; ") : error.message;
}

/** The error for a call that ended without a status; `inDoubt`: the peer may have executed it. */
export function streamFailure(failure: StreamFailure, host: string, inDoubt: boolean): Error {
  const { kind, message, cause } = failure;
  if (kind === "calm") return new UnansweredError(readable(message), { kind: "calm", inDoubt });
  if (kind === "connecting" && isUnreachable(message))
    return new UnansweredError(readable(message), { kind: "unreachable", cause: failure });
  if (kind === "forbidden") return new MemberRefusedError("member", message, { host });
  if (kind === "turned away") return new UnansweredError(readable(message), { kind: "turned away", inDoubt });
  // The message may quote the peer.
  const isOwn = kind === "connecting" && isError(cause);
  const refusal = isOwn ? certificateFailure(messageOf(cause), host, inDoubt) : undefined;
  return refusal ?? new UnansweredError(readable(message), { cause: failure, inDoubt });
}
