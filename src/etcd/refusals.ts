// What a status that a server has sent means, whatever has carried it: etcd's own texts, and those of other servers and
// proxies in its place. Both adapters use it, so that a rejection is the same error behind each.
// - A rejection is what etcd itself says, by its texts (`REFUSALS`). Any other status counts as no answer, or leaves the
//   attempt in doubt; docs/troubleshooting.md has the table.
// - This file does not know the statuses that a gRPC library makes up: the adapter for that library classifies them before
//   `foreignFailure` does.
// - No text of a server reaches an error before `printable` has escaped it.
import { EtcdRefusedError, type RefusalReason } from "../errors.js";
import { printable } from "../base/util/printable.js";
import {
  AuthDisabledError,
  LeaseExistsError,
  LeaseNotFoundError,
  MemberRefusedError,
  OverloadedError,
  TokenExpiredError,
  UnansweredError,
} from "./port.js";

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
    "no authority that is trusted here has signed the member's certificate: give its own as credentials.rootCertificate (--cacert)",
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
 * How Node.js reports that no process listens on a port, that the name service knows no such name, and that a path leads to no
 * socket, or to none that this process may use.
 * grpc-js reports every failure of the name service in the same way.
 */
const UNREACHABLE =
  /\b(?:ECONNREFUSED|ENOTFOUND)\b|^connect (?:ENOENT|EACCES|EPERM|ELOOP|ENOTDIR|EPROTOTYPE) \/|^Name resolution failed for target /;

/** Whether `reason` says so of each address that was tried: `messageOf` lists them with semicolons. */
export const isUnreachable = (reason: string): boolean =>
  reason.split("; ").every((each) => UNREACHABLE.test(each));

/** A gRPC status: https://grpc.github.io/grpc/core/md_doc_statuscodes.html */
export interface Status {
  readonly code: number;
  readonly details: string;
}

/**
 * What a rejection means, and so what every caller does: docs/troubleshooting.md has the same table. "passing" rejections are
 * transient and count as no answer; the requests of "unknown" ones may have been executed.
 */
export type Verdict =
  | "lease"
  | "lease exists"
  | "token"
  | "auth off"
  | "credentials"
  | "permission"
  | "quota"
  | "overload"
  | "request"
  | "member"
  | "passing"
  | "passing, unknown";

/** Each text with which etcd 3.4 to 3.7 can answer a request of this library: `api/v3rpc/rpctypes` in its source. */
export const REFUSALS: ReadonlyMap<string, Verdict> = new Map<string, Verdict>([
  ["requested lease not found", "lease"],
  ["lease already exists", "lease exists"],

  ["invalid auth token", "token"],
  ["revision of auth store is old", "token"],
  // A call without a token while authentication is on.
  ["user name is empty", "token"],
  ["authentication is not enabled", "auth off"],

  ["authentication failed, invalid user ID or password", "credentials"],
  ["user name not found", "credentials"],
  ["permission denied", "permission"],
  ["permission is not granted to the role", "permission"],

  ["mvcc: database space exceeded", "quota"],
  ["too many requests", "overload"],

  ["key is not provided", "request"],
  ["duplicate key given in txn request", "request"],
  ["too many operations in txn request", "request"],
  ["request is too large", "request"],
  ["too large lease TTL", "request"],
  ["invalid sort option", "request"],
  ["invalid client api version", "request"],
  ["mvcc: required revision has been compacted", "request"],
  ["mvcc: required revision is a future revision", "request"],
  ["key not found", "request"],
  ["value is provided", "request"],
  ["lease is provided", "request"],
  ["invalid auth management", "request"],

  ["rpc not supported for learner", "member"],
  ["cluster ID mismatch", "member"],
  ["corrupt cluster", "member"],

  // The member cannot serve the request now and did not start it.
  ["no leader", "passing"],
  ["not leader", "passing"],
  ["not capable", "passing"],
  ["unhealthy cluster", "passing"],
  // These do not say whether the request was proposed before.
  ["server stopped", "passing, unknown"],
  ["leader changed", "passing, unknown"],
  ["request timed out", "passing, unknown"],
  ["request timed out, possibly due to previous leader failure", "passing, unknown"],
  ["request timed out, possibly due to connection lost", "passing, unknown"],
  ["request timed out, waiting for the applied index took too long", "passing, unknown"],
  ["request canceled", "passing, unknown"],
  ["context deadline exceeded", "passing, unknown"],
  ["watch canceled", "passing, unknown"],
]);

/** etcd's own texts, alone or as Go's gRPC wraps them: `rpc error: code = … desc = etcdserver: …`. */
const ETCD = /^(?:rpc error: code = \w+ desc = )?etcdserver: (.+)$/s;

/** The verdict for a text of etcd's own, whatever its code: behind `etcd grpc-proxy` every code is UNKNOWN. */
export function verdictOf(details: string): Verdict | undefined {
  const text = ETCD.exec(details.trim())?.[1];
  return text === undefined ? undefined : REFUSALS.get(text);
}

/** What a call fails with, by verdict. */
const FAILURES: Readonly<Record<Verdict, (details: string, host: string) => Error>> = {
  lease: (details) => new LeaseNotFoundError(printable(details)),
  "lease exists": (details) => new LeaseExistsError(printable(details)),
  token: (details) => new TokenExpiredError(printable(details)),
  "auth off": (details) => new AuthDisabledError(printable(details)),
  credentials: (details, host) => new EtcdRefusedError("unauthenticated", host, readable(details)),
  permission: (details, host) => new EtcdRefusedError("permission", host, readable(details)),
  // etcd executes the request that crosses the quota, but still rejects it: 19 of 199 rejected puts, 3.6.16.
  quota: (details, host) => new EtcdRefusedError("quota", host, readable(details), { inDoubt: true }),
  overload: (details) => new OverloadedError(printable(details)),
  request: (details, host) => new EtcdRefusedError("other", host, readable(details)),
  member: (details, host) => new MemberRefusedError("member", readable(details), { host }),
  passing: (details) => new UnansweredError(readable(details), { inDoubt: false }),
  "passing, unknown": (details) => new UnansweredError(readable(details)),
};

/** The failure for a text of etcd's own; `undefined` for any other text. */
export function etcdFailure(details: string, host: string): Error | undefined {
  const verdict = verdictOf(details);
  return verdict && FAILURES[verdict](details, host);
}

/**
 * The failure for a reason that etcd gives in an answer on a stream: rejections of watches end with an answer, not with a
 * status. `tokenless`: the stream was opened without a token, though the client has a password. etcd 3.4 rejects so, too, if
 * authentication was enabled after the stream was opened.
 */
export function reasonFailure(reason: string, host: string, tokenless: boolean): Error {
  const failure = etcdFailure(reason, host) ?? new EtcdRefusedError("other", host, readable(reason));
  return tokenless && failure instanceof EtcdRefusedError ? new TokenExpiredError(reason) : failure;
}

/** https://grpc.github.io/grpc/core/md_doc_statuscodes.html */
const PERMISSION_DENIED = 7;
const UNAUTHENTICATED = 16;
/**
 * INVALID_ARGUMENT, NOT_FOUND, ALREADY_EXISTS, PERMISSION_DENIED, FAILED_PRECONDITION, OUT_OF_RANGE, UNIMPLEMENTED,
 * UNAUTHENTICATED: the server that answers will not serve this client.
 */
const LASTING = new Set([3, 5, 6, PERMISSION_DENIED, 9, 11, 12, UNAUTHENTICATED]);
/** Go's gRPC says this of a request, or a proxy of etcd's answer to one: a smaller request may pass. */
const TOO_LARGE = /^(grpc: received|trying to send) message larger than max /;

/**
 * Classifies a status that a server has sent for a request on `host`. Only etcd's own texts reject a request; anything else
 * leaves it in doubt, if it was sent.
 */
export const statusFailure = (status: Status, host: string, sent = true): Error =>
  rejection(status, host) ?? foreignFailure(status, host, sent);

/** The failure for a status that rejects the request; `undefined` for any other status. */
export function rejection({ code, details }: Status, host: string): Error | undefined {
  const known = etcdFailure(details, host);
  if (known) return known;
  const rejected = ETCD.test(details) ? LASTING.has(code) : TOO_LARGE.test(details);
  return rejected ? new EtcdRefusedError("other", host, readable(details), { inDoubt: true }) : undefined;
}

/** The failure for a status of gRPC, a proxy or another server: never a verdict on the request. */
export function foreignFailure({ code, details }: Status, host: string, sent: boolean): Error {
  const text = readable(details);
  if (!LASTING.has(code)) return new UnansweredError(text, { inDoubt: sent });
  return new MemberRefusedError(reasonOf(code), text, { host, inDoubt: sent });
}

function reasonOf(code: number): RefusalReason {
  if (code === PERMISSION_DENIED) return "permission";
  return code === UNAUTHENTICATED ? "unauthenticated" : "member";
}

/** Failures of certificates, of versions and ciphers that the two sides have in common, and of ALPN, by which TLS agrees on HTTP/2. */
const TLS = new RegExp(
  [
    "certificate|self.signed|altnames|TLS ServerName|alert (handshake|certificate|unknown ca)",
    "wrong version number|protocol version|unsupported protocol|no protocols available|no shared cipher",
    "no application protocol|no ALPN protocol",
  ].join("|"),
  "i",
);

/**
 * The failure for a connection that was not opened, if TLS is the reason: another attempt would end in the same way. `sent`: the
 * request may have been read.
 */
export function certificateFailure(reason: string, host: string, sent = false): Error | undefined {
  if (!TLS.test(reason)) return undefined;
  return new MemberRefusedError("tls", readable(reason), { host, inDoubt: sent });
}
