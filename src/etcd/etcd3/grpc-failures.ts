import { certificateFailure, foreignFailure, rejection } from "../refusals/refusals.js";
import { isUnreachable, readable } from "../refusals/failure-text.js";
import { TooManyPingsError, UnansweredError, UnreachableError } from "../port-errors.js";

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
    "from Node.js 26 on TLS needs a host name, or the certificate's name in grpcOptions['grpc.ssl_target_name_override']",
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
  if (ENHANCE_YOUR_CALM.test(details)) return new TooManyPingsError(readable(details), { inDoubt: sent });
  if (TRANSPORT.test(details)) return new UnansweredError(readable(details), { inDoubt: sent });
  if (!sent && isUnreachable(details)) return new UnreachableError(readable(details));
  return sent ? undefined : certificateFailure(details, host);
}

/** The reason for a failed connection, with a hint; any other text as it is. */
function reasonIn(details: string, host: string): string {
  const reason = NO_CONNECTION.exec(details)?.[1] ?? details;
  if (reason === CLOSED) return `${reason}; ${host.startsWith("https:") ? CLOSED_SECURE_HINT : CLOSED_HINT}`;
  const hint = HINTS.find(([looksLike]) => looksLike.test(reason))?.[1];
  return hint === undefined ? reason : `${reason}; ${hint}`;
}
