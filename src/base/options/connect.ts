// The options of `connect`.
// - Hosts have one normal form inside, `http(s)://host:port`, each one once.
// - An option of one transport is rejected beside the other transport, with what to give instead. Options of etcd3 that would
//   undo the guarantees, such as `faultHandling`, are rejected with the reason.
import {
  checkBoolean,
  type CheckedSession,
  checkInteger,
  checkOptions,
  checkPlainObject,
  checkSession,
  isWellFormed,
  type Options,
  rangeError,
  secretTypeError,
  typeError,
} from "./check.js";
import { DEFAULT_TRANSPORT } from "./default-transport.js";
import { checkEtcd3Client, checkNothingBeside, type Etcd3Host } from "./etcd3-client.js";
import { checkHosts, checkOneScheme, MEMORY_HOST } from "./hosts.js";
import { isBytes, isPromise } from "../util/realm.js";

const PATH = /^(?:\/|~|\.{1,2}[/\\]|[a-z]:[/\\]|file:)|\.(?:pem|crt|cer|cert|key)$/i;

/**
 * PEM text, as a string or as bytes. A private key may have got into any of the options, so no error shows the value.
 * @throws {TypeError | RangeError}
 */
export function checkPem(option: string, value: unknown): Uint8Array {
  if (typeof value !== "string" && !isBytes(value))
    throw secretTypeError(option, "PEM text: a string, a Buffer or a Uint8Array", value);
  const bytes = typeof value === "string" ? Buffer.from(value) : value;
  const problem = problemOf(Buffer.from(bytes).toString("latin1"));
  if (problem !== undefined) throw new RangeError(`Expected ${option} to be PEM text, got ${problem}`);
  return bytes;
}

function problemOf(text: string): string | undefined {
  if (!text.includes("-----BEGIN")) {
    const isPath = text.length <= 4096 && !/[\r\n]/.test(text.trim()) && PATH.test(text.trim());
    return isPath ? "a path: pass the content of that file, as of readFileSync()" : "other bytes";
  }
  if (!/[\r\n]/.test(text.trim()) && text.includes("\\n"))
    return 'text in which "\\n", two characters, stands for each line break: replace them by line feeds';
  // OpenSSL reads a bundle up to the first block that it cannot read, and trusts the rest no more.
  const [begun, ended] = ["BEGIN", "END"].map((line) => text.split(`-----${line} `).length - 1);
  if (begun !== ended)
    return `${begun} blocks that begin and ${ended} that end: the file may be half written`;
  return undefined;
}

/** In bytes. A name has at most 1024, so no key is longer than both and the ID of a lease. */
const MAX_BYTES = 256;

/** The `prefix` of `connect`; "" if it is not set. */
function checkKeyPrefix(value: unknown): string {
  const rule = 'a string that ends with "/"';
  if (value === undefined) return "";
  if (typeof value !== "string") throw typeError("prefix", rule, value);
  // With "prod" the keys of "jobs" would begin with "prodjobs", as those of "uctjobs" do with "prod" + "uctjobs".
  if (!value.endsWith("/")) throw rangeError("prefix", rule, value);
  if (value.includes("//")) throw rangeError("prefix", 'free of "//"', value);
  // A queue there would contain the marks of all clusters.
  if (value.startsWith("/leasehold/")) throw rangeError("prefix", 'outside of "/leasehold/"', value);
  if (Buffer.byteLength(value) > MAX_BYTES || !isWellFormed(value))
    throw rangeError("prefix", `at most ${MAX_BYTES} bytes of well-formed Unicode`, value);
  return value;
}

/**
 * A logger: `console`, one of pino or winston, or any object with these methods. `console` gets no lines of the level debug: for them, give
 * `{ warn: console.warn, error: console.error, debug: console.debug }`.
 */
export interface Logger {
  debug?(line: string): unknown;
  info?(line: string): unknown;
  warn(line: string): unknown;
  error(line: string): unknown;
}

export type LogLevel = keyof Logger;

/** What a line of the log says, as data: JSON can hold each value. Names and owners are not escaped. */
export interface LogRecord {
  readonly level: LogLevel;
  /** What happened, such as "lock.lost": one of the table in docs/observability.md. */
  readonly event: string;
  /** The line, without "leasehold: " before it. */
  readonly message: string;
  /** The name of the lock, semaphore, election or group; the first one of `lockAll`. */
  readonly name?: string;
  /** The names of `lockAll`, or of the locks that a session has lost: at most five. */
  readonly names?: readonly string[];
  readonly kind?: string;
  /** The session's lease, in hexadecimal. */
  readonly session?: string;
  /** Decimal. */
  readonly fence?: string;
  readonly owner?: string;
  /** Who holds what is waited for: its owner, or its key. */
  readonly holder?: string;
  /** How many entries are ahead of a wait. */
  readonly ahead?: number;
  readonly host?: string;
  /** How long it took, was held or was waited for, in milliseconds. */
  readonly durationMs?: number;
  /** Until the deadline of a session in jeopardy, in milliseconds. */
  readonly remainingMs?: number;
  /** The code of an error of leasehold, or else its name. */
  readonly error?: string;
}

/** Takes each record, of all levels. */
export type LogFunction = (record: LogRecord) => unknown;

const LOG_RULE = "a function, or an object with the methods warn and error, and perhaps info and debug";

/** Loggers have other properties as well, so unknown ones are allowed. */
function checkLog(value: unknown): Logger | LogFunction | undefined {
  if (value === undefined) return undefined;
  if (typeof value === "function" && isLogFunction(value as LogFunction)) return value as LogFunction;
  if ((typeof value !== "object" && typeof value !== "function") || value === null)
    throw typeError("log", LOG_RULE, value);
  const logger = value as Readonly<Record<LogLevel, unknown>>;
  checkMethod("warn", logger.warn);
  checkMethod("error", logger.error);
  if (logger.info !== undefined) checkMethod("info", logger.info);
  if (logger.debug !== undefined) checkMethod("debug", logger.debug);
  return value as Logger;
}

/** Some loggers are functions with methods: those get lines. */
export const isLogFunction = (log: Logger | LogFunction): log is LogFunction =>
  typeof log === "function" && !("warn" in log && "error" in log);

function checkMethod(level: LogLevel, method: unknown): void {
  if (typeof method !== "function") throw typeError(`log.${level}`, "a function", method);
}

/** The checked options of `connect` that say how members are reached. */
interface CheckedTransport {
  readonly transport: "http2" | "etcd3";
  /** How often a connection is pinged at first, with either transport. */
  readonly pingIntervalMs: number;
  /** For "http2" only. */
  readonly pingTimeoutMs: number;
  /** For "http2" only. */
  readonly connectTimeoutMs: number;
}

/** A dead link is noticed within 8 s: this and the ping's own time limit. */
const PING_MS = 6000;
const WAIT = { min: 100, max: 60_000, fallback: 2000 };

/** The options of the transport "http2", with what etcd3 has instead. */
const HTTP2_OPTIONS = {
  pingIntervalMs: 'give the option etcd3 a client with grpcOptions["grpc.keepalive_time_ms"] instead',
  pingTimeoutMs: 'give the option etcd3 a client with grpcOptions["grpc.keepalive_timeout_ms"] instead',
  connectTimeoutMs: "use requestTimeoutMs, which includes connecting",
} as const;

function checkTransport(given: Options): CheckedTransport {
  const transport = checkName(given.transport);
  if (transport === "etcd3") checkNoneOfHttp2(given);
  // etcd answers pings at intervals under 5 s with ENHANCE_YOUR_CALM, indefinitely.
  const interval = { min: 5000, max: 3_600_000, fallback: PING_MS };
  return {
    transport,
    pingIntervalMs: checkInteger("pingIntervalMs", given.pingIntervalMs, interval),
    pingTimeoutMs: checkInteger("pingTimeoutMs", given.pingTimeoutMs, WAIT),
    connectTimeoutMs: checkInteger("connectTimeoutMs", given.connectTimeoutMs, WAIT),
  };
}

function checkName(value: unknown): "http2" | "etcd3" {
  const rule = '"http2" or "etcd3"';
  if (value === undefined) return DEFAULT_TRANSPORT;
  if (typeof value !== "string") throw typeError("transport", rule, value);
  if (value !== "http2" && value !== "etcd3") throw rangeError("transport", rule, value);
  return value;
}

function checkNoneOfHttp2(given: Options): void {
  for (const [option, instead] of Object.entries(HTTP2_OPTIONS)) {
    if (given[option] === undefined) continue;
    throw new TypeError(`Option ${option} has no effect with transport: "etcd3"; ${instead}`);
  }
}

/** The certificates of TLS, as PEM text. */
export interface CheckedCredentials {
  readonly rootCertificate: Uint8Array;
  readonly privateKey?: Uint8Array;
  readonly certChain?: Uint8Array;
  readonly serverName?: string;
}

/** The checked options of `connect`. */
export interface CheckedUser {
  readonly username: string;
  readonly password: string;
}

export interface CheckedConnect extends CheckedTransport {
  /** They change with `followMembers`, and if they come from DNS. */
  readonly hosts: readonly string[];
  readonly followMembers: boolean;
  readonly guardian: boolean;
  readonly renewal: "main" | "worker";
  /** undefined: the TTL of the session. */
  readonly maxStallMs: number | undefined;
  /** The prefix of all keys; "" for none. */
  readonly prefix: string;
  /** Called for each connection. Throws what the user's function throws, and an error that names what is wrong with its value. */
  readonly credentials: (() => CheckedCredentials) | undefined;
  /** Called for each token, with the same rules. */
  readonly auth: (() => CheckedUser) | undefined;
  /** The hosts of the user's own client of etcd3, by their names in `hosts`. */
  readonly etcd3: ReadonlyMap<string, Etcd3Host> | undefined;
  readonly requestTimeoutMs: number;
  readonly session: CheckedSession;
  readonly log: Logger | LogFunction | undefined;
}

const CONNECT_OPTIONS = [
  "hosts",
  "followMembers",
  "guardian",
  "renewal",
  "maxStallMs",
  "prefix",
  "credentials",
  "auth",
  "etcd3",
  "requestTimeoutMs",
  "session",
  "log",
  "transport",
  "pingIntervalMs",
  "pingTimeoutMs",
  "connectTimeoutMs",
] as const;

/** Options of etcd3 that would undo this library's guarantees, or that a client of etcd3 has. */
const REFUSED: Readonly<Record<string, string>> = {
  faultHandling:
    "leasehold retries by itself; etcd3's retries and breaker would repeat lease grants and block healthy leases",
  defaultCallOptions: "leasehold sets a fresh time limit per attempt: use requestTimeoutMs",
  dialTimeout: "etcd3 does not implement it: use requestTimeoutMs",
  grpcOptions: "give the option etcd3 a client that has them: new Etcd3({ hosts, grpcOptions })",
};

export function checkConnect(options: unknown): CheckedConnect {
  if (typeof options !== "object" || options === null || Array.isArray(options))
    throw typeError("the options of connect", "an object", options);
  for (const [option, reason] of Object.entries(REFUSED)) {
    if (option in options) throw new TypeError(`Option ${option} of connect is refused: ${reason}`);
  }
  const given = checkOptions("connect", options, CONNECT_OPTIONS);
  return {
    ...(given.etcd3 === undefined ? checkReach(given) : checkClient(given)),
    prefix: checkKeyPrefix(given.prefix),
    requestTimeoutMs: checkInteger("requestTimeoutMs", given.requestTimeoutMs, {
      min: 100,
      max: 60_000,
      fallback: 2000,
    }),
    session: checkSession("connect's session", given.session),
    log: checkLog(given.log),
  };
}

/** What goes on while this process is busy, or after it has died. */
type BusyOrDead = "guardian" | "renewal" | "maxStallMs";

/** At most a day. */
const STALL = { min: 1000, max: 86_400_000, fallback: 86_400_000 };

function checkBusyOrDead(given: Options): Pick<CheckedConnect, BusyOrDead> {
  const { renewal = "main", maxStallMs } = given;
  if (typeof renewal !== "string") throw typeError("renewal", '"main" or "worker"', renewal);
  if (renewal !== "main" && renewal !== "worker") throw rangeError("renewal", '"main" or "worker"', renewal);
  if (maxStallMs !== undefined && renewal === "main")
    throw new TypeError('Option maxStallMs needs renewal: "worker"');
  return {
    guardian: checkBoolean("guardian", given.guardian),
    renewal,
    maxStallMs: maxStallMs === undefined ? undefined : checkInteger("maxStallMs", maxStallMs, STALL),
  };
}

type Reach = CheckedTransport &
  Pick<CheckedConnect, "hosts" | "followMembers" | "credentials" | "auth" | "etcd3" | BusyOrDead>;

function checkReach(given: Options): Reach {
  const hosts = checkHosts(given.hosts, { option: "hosts", secure: given.credentials !== undefined });
  const followMembers = checkBoolean("followMembers", given.followMembers);
  checkOneScheme("hosts", hosts);
  if (hosts.some((host) => MEMORY_HOST.test(host))) checkNoWay(given);
  checkHttp2Only(given, hosts);
  return {
    hosts: followMembers || hosts[0]?.startsWith("srv:") ? [...hosts] : hosts,
    followMembers,
    ...checkBusyOrDead(given),
    credentials: checkCredentials(given.credentials, hosts),
    auth: checkAuth(given.auth),
    etcd3: undefined,
    ...checkTransport(given),
  };
}

/** What the other transport cannot do. */
function checkHttp2Only({ transport, followMembers }: Options, hosts: readonly string[]): void {
  const lookedUp = hosts.find((host) => host.startsWith("srv:"));
  if (lookedUp !== undefined && hosts.length > 1)
    throw rangeError("hosts", "one srv: host, without other hosts", hosts.join(", "));
  if (transport !== "etcd3") return;
  const special = lookedUp ?? hosts.find((host) => host.startsWith("unix:"));
  if (special !== undefined)
    throw rangeError("hosts", 'addresses, for transport: "etcd3" supports neither srv: nor unix:', special);
  if (followMembers === true)
    throw new RangeError('Option followMembers cannot be used with transport: "etcd3"');
}

/** No transport leads to an etcd inside this process, and a test that names one would test another. */
function checkNoWay({ transport, credentials, followMembers, guardian, renewal }: Options): void {
  const why = "cannot be used with the hosts of memoryEtcd()";
  if (transport !== undefined) throw new RangeError(`Option transport ${why}`);
  if (followMembers === true) throw new RangeError(`Option followMembers ${why}`);
  // That etcd is in this process, and ends with it.
  if (guardian === true) throw new RangeError(`Option guardian ${why}`);
  if (renewal === "worker") throw new RangeError(`Option renewal: "worker" ${why}`);
  if (credentials !== undefined) throw new TypeError(`Option credentials ${why}`);
}

function checkClient(given: Options): Reach {
  checkNothingBeside(given);
  const { hosts, secure, auth } = checkEtcd3Client(given.etcd3);
  const context = { option: "the hosts of etcd3", secure };
  // grpc-js has another port for hosts without one.
  const namesOf = ({ host }: Etcd3Host) => checkHosts(/:\d+$/.test(host) ? host : `${host}:443`, context);
  const byName = new Map(hosts.flatMap((host) => namesOf(host).map((name) => [name, host] as const)));
  return {
    hosts: Object.freeze([...byName.keys()]),
    followMembers: false,
    ...checkBusyOrDead({}),
    credentials: undefined,
    auth: checkAuth(auth),
    etcd3: byName,
    ...checkTransport({ transport: "etcd3" }),
  };
}

const CERTIFICATES = ["rootCertificate", "privateKey", "certChain", "serverName"];

function checkCredentials(value: unknown, hosts: readonly string[]): CheckedConnect["credentials"] {
  if (value === undefined) return undefined;
  const isFunction = typeof value === "function";
  if (!isFunction) checkPlainObject("credentials", value);
  // gRPC ignores the scheme: with credentials it uses TLS, whatever the URL says.
  if (hosts.some((host) => !/^(https|srv):/.test(host))) {
    throw rangeError("hosts", "https:// when credentials are given", hosts.join(", "));
  }
  /** Names and values, also those of getters: the same object may have other ones than before. */
  let given: readonly unknown[] = [];
  let checked: CheckedCredentials | undefined;
  const read = (): CheckedCredentials => {
    const now: unknown = isFunction ? (value as () => unknown)() : value;
    const record = Object(now ?? {}) as Options;
    const fields = [...Object.keys(record), ...CERTIFICATES.map((name) => record[name])];
    const isSame = fields.length === given.length && fields.every((field, n) => field === given[n]);
    if (checked === undefined || isPromise(now) || !isSame) checked = checkCertificates(now, isFunction);
    given = fields;
    return checked;
  };
  read();
  return read;
}

function checkCertificates(value: unknown, returned: boolean): CheckedCredentials {
  const option = returned ? "credentials()" : "credentials";
  // Certificates that are fetched must be there when a connection opens: the program fetches them in time.
  if (isPromise(value)) {
    value.catch(() => undefined);
    throw typeError(option, "an object, not a promise", value);
  }
  const given = checkOptions("credentials", checkPlainObject(option, value), CERTIFICATES);
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
function checkPair(credentials: CheckedCredentials): CheckedCredentials {
  const { rootCertificate, privateKey, certChain } = credentials;
  const bytes = (pem: Uint8Array | undefined): Buffer | undefined => pem && Buffer.from(pem);
  const { X509Certificate } = process.getBuiltinModule("node:crypto");
  const { createSecureContext } = process.getBuiltinModule("node:tls");
  const check = (what: string, parse: () => unknown): void => {
    try {
      parse();
    } catch (error) {
      throw new RangeError(`Expected ${what}: ${(error as Error).message}`, { cause: error });
    }
  };
  // OpenSSL skips what it cannot parse in a list of authorities, and then trusts no certificate.
  check(
    "credentials.rootCertificate to be PEM text",
    () => new X509Certificate(rootCertificate) && createSecureContext({ ca: bytes(rootCertificate) }),
  );
  check("credentials.certChain and credentials.privateKey to be a certificate and its key, in PEM text", () =>
    createSecureContext({ key: bytes(privateKey), cert: bytes(certChain) }),
  );
  return credentials;
}

function checkAuth(value: unknown): CheckedConnect["auth"] {
  if (value === undefined) return undefined;
  const isFunction = typeof value === "function";
  const first = checkUser(isFunction ? (value as () => unknown)() : value);
  return isFunction ? () => checkUser((value as () => unknown)()) : () => first;
}

function checkUser(value: unknown): CheckedUser {
  if (isPromise(value)) {
    value.catch(() => undefined);
    throw typeError("auth()", "an object, not a promise", value);
  }
  const given = checkOptions("auth", checkPlainObject("auth", value), ["username", "password"]);
  const text = (option: "username" | "password"): string => {
    const entry = given[option];
    if (typeof entry !== "string") throw secretTypeError(`auth.${option}`, "a non-empty string", entry);
    if (entry === "") throw rangeError(`auth.${option}`, "a non-empty string", entry);
    return entry;
  };
  return { username: text("username"), password: text("password") };
}
