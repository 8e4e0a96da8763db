import { printable } from "../../printable.js";

/** `80CC...:error:0A000412:SSL routines:ssl3_read_bytes:sslv3 alert bad certificate:../deps/...` */
const OPENSSL = /^.*?SSL routines:[^:]*:([^:]+):.*$/s;

/** What a user can do about a failure, by a pattern of the reason. */
const HINTS: readonly (readonly [RegExp, string])[] = [
  [
    /alert (bad certificate|certificate required|unknown ca)|asked for a client certificate/,
    "the member wants a client certificate that it trusts: credentials.privateKey and credentials.certChain",
  ],
  [
    /unable to verify|self.signed|issuer certificate/,
    "the member's certificate was not signed by credentials.rootCertificate",
  ],
  [/before secure TLS connection|wrong version number/, "does it speak TLS at all (http://)?"],
  [/altnames/, "if it is the right host, give the name in its certificate as credentials.serverName"],
  [
    /alert protocol version|unsupported protocol/,
    "the member and this process accept no common version of TLS (Node.js: --tls-min-v1.2, --tls-max-v1.3)",
  ],
];

/** The details of a failure, in a form that users can read. */
export function readable(details: string): string {
  const reason = details.replace(OPENSSL, "$1");
  const hint = HINTS.find(([looksLike]) => looksLike.test(reason))?.[1];
  return hint === undefined ? printable(reason) : `${printable(reason)}; ${hint}`;
}

/**
 * How Node.js reports that no process listens on a port, and that the name service knows no such name. grpc-js reports every
 * failure of the name service in the same way.
 */
const UNREACHABLE = /\b(?:ECONNREFUSED|ENOTFOUND)\b|^Name resolution failed for target /;

/** Whether `reason` says so of each address that was tried: `messageOf` lists them with semicolons. */
export const isUnreachable = (reason: string): boolean =>
  reason.split("; ").every((each) => UNREACHABLE.test(each));
