import { X509Certificate } from "node:crypto";
import { createSecureContext } from "node:tls";
import {
  checkInteger,
  checkOptions,
  checkPlainObject,
  checkSession,
  rangeError,
  secretTypeError,
  typeError,
  type CheckedSession,
} from "./check.js";
import { checkHosts, checkOneScheme } from "./hosts.js";
import { checkLog, type Logger } from "./log.js";
import { checkPem } from "./pem.js";
import { checkKeyPrefix } from "./prefix.js";
import { checkTransport, TRANSPORT_OPTIONS, type CheckedTransport } from "./transport.js";

/** The checked options of `connect`. */
export interface CheckedConnect extends CheckedTransport {
  readonly hosts: readonly string[];
  /** Of all keys; "" for none. */
  readonly prefix: string;
  readonly credentials:
    | {
        readonly rootCertificate: Uint8Array;
        readonly privateKey?: Uint8Array;
        readonly certChain?: Uint8Array;
        readonly serverName?: string;
      }
    | undefined;
  readonly auth: { readonly username: string; readonly password: string } | undefined;
  readonly requestTimeoutMs: number;
  readonly session: CheckedSession;
  readonly log: Logger | undefined;
}

const CONNECT_OPTIONS = [
  "hosts",
  "prefix",
  "credentials",
  "auth",
  "requestTimeoutMs",
  "session",
  "log",
  ...TRANSPORT_OPTIONS,
] as const;

/** Options of etcd3 that would undo this library's guarantees. */
const REFUSED: Readonly<Record<string, string>> = {
  faultHandling:
    "leasehold retries by itself: etcd3's retries and breaker repeat grants and block healthy leases",
  defaultCallOptions: "leasehold sets a fresh time limit per attempt: use requestTimeoutMs",
  dialTimeout: "etcd3 does not implement it: use requestTimeoutMs",
};

export function checkConnect(options: unknown): CheckedConnect {
  if (typeof options !== "object" || options === null || Array.isArray(options))
    throw typeError("the options of connect", "an object", options);
  for (const [option, why] of Object.entries(REFUSED)) {
    if (option in options) throw new TypeError(`Option ${option} of connect is refused: ${why}`);
  }
  const given = checkOptions("connect", options, CONNECT_OPTIONS);
  const hosts = checkHosts(given.hosts, { option: "hosts", secure: given.credentials !== undefined });
  checkOneScheme("hosts", hosts);
  return {
    hosts,
    prefix: checkKeyPrefix(given.prefix),
    credentials: checkCredentials(given.credentials, hosts),
    auth: checkAuth(given.auth),
    ...checkTransport(given),
    requestTimeoutMs: checkInteger("requestTimeoutMs", given.requestTimeoutMs, {
      min: 100,
      max: 60_000,
      fallback: 2000,
    }),
    session: checkSession("connect's session", given.session),
    log: checkLog(given.log),
  };
}

function checkCredentials(value: unknown, hosts: readonly string[]): CheckedConnect["credentials"] {
  if (value === undefined) return undefined;
  const known = ["rootCertificate", "privateKey", "certChain", "serverName"];
  const given = checkOptions("credentials", checkPlainObject("credentials", value), known);
  // gRPC ignores the scheme: with credentials it uses TLS, whatever the URL says.
  if (hosts.some((host) => host.startsWith("http:"))) {
    throw rangeError("hosts", "https:// when credentials are given", hosts.join(", "));
  }
  const { privateKey, certChain } = given;
  if ((privateKey === undefined) !== (certChain === undefined)) {
    throw new TypeError(
      "Expected credentials.privateKey and credentials.certChain together: one was not given",
    );
  }
  return checkPair({
    ...(given.serverName !== undefined && { serverName: checkServerName(given.serverName) }),
    rootCertificate: checkPem("credentials.rootCertificate", given.rootCertificate),
    ...(privateKey !== undefined && {
      privateKey: checkPem("credentials.privateKey", privateKey),
      certChain: checkPem("credentials.certChain", certChain),
    }),
  });
}

/** TLS sends no address as a server name: RFC 6066, section 3. */
function checkServerName(value: unknown): string {
  const rule = "a host name";
  if (typeof value !== "string") throw secretTypeError("credentials.serverName", rule, value);
  if (!/^(?=.*[a-z])[a-z\d]([\w.-]{0,252})$/i.test(value))
    throw rangeError("credentials.serverName", rule, value);
  return value;
}

/** Without this check, gRPC would throw OpenSSL's own text at the first call. */
function checkPair(credentials: NonNullable<CheckedConnect["credentials"]>): CheckedConnect["credentials"] {
  const { rootCertificate, privateKey, certChain } = credentials;
  const bytes = (pem: Uint8Array | undefined): Buffer | undefined => pem && Buffer.from(pem);
  try {
    // OpenSSL skips what it cannot parse in a list of authorities, and then trusts no certificate.
    new X509Certificate(rootCertificate);
    createSecureContext({ ca: bytes(rootCertificate), key: bytes(privateKey), cert: bytes(certChain) });
  } catch (error) {
    throw new RangeError(
      `Expected credentials to be PEM text, the key being that of the certificate: ${(error as Error).message}`,
      { cause: error },
    );
  }
  return credentials;
}

function checkAuth(value: unknown): CheckedConnect["auth"] {
  if (value === undefined) return undefined;
  const given = checkOptions("auth", checkPlainObject("auth", value), ["username", "password"]);
  const text = (option: "username" | "password"): string => {
    const entry = given[option];
    if (typeof entry !== "string") throw secretTypeError(`auth.${option}`, "a non-empty string", entry);
    if (entry === "") throw rangeError(`auth.${option}`, "a non-empty string", entry);
    return entry;
  };
  return { username: text("username"), password: text("password") };
}
