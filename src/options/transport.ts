import {
  checkInteger,
  checkPlainObject,
  rangeError,
  secretTypeError,
  typeError,
  type Options,
} from "./check.js";
import { DEFAULT_TRANSPORT } from "./default-transport.js";

/** The checked options of `connect` that say how members are reached. */
export interface CheckedTransport {
  readonly transport: "http2" | "etcd3";
  /** How often a connection is pinged at first, with either transport. */
  readonly pingIntervalMs: number;
  /** For "http2" only. */
  readonly pingTimeoutMs: number;
  /** For "http2" only. */
  readonly connectTimeoutMs: number;
  /** For "etcd3" only. */
  readonly grpcOptions: Options;
}

export const TRANSPORT_OPTIONS = [
  "transport",
  "pingIntervalMs",
  "pingTimeoutMs",
  "connectTimeoutMs",
  "grpcOptions",
] as const;

/** A dead link is noticed within 8 s: this and the ping's own time limit. */
const PING_MS = 6000;
const WAIT = { min: 100, max: 60_000, fallback: 2000 };

/** The options of the transport "http2", with what etcd3 has instead. */
const HTTP2_OPTIONS = {
  pingIntervalMs: 'give grpcOptions["grpc.keepalive_time_ms"] instead',
  pingTimeoutMs: 'give grpcOptions["grpc.keepalive_timeout_ms"] instead',
  connectTimeoutMs: "grpcOptions have no such limit: give requestTimeoutMs, which includes the connecting",
} as const;

export function checkTransport(given: Options): CheckedTransport {
  const transport = checkName(given.transport);
  if (transport === "etcd3") checkNoneOfHttp2(given);
  else checkNoneOfEtcd3(given.grpcOptions);
  const grpcOptions = checkGrpc(given.grpcOptions);
  // etcd answers pings at intervals under 5 s with ENHANCE_YOUR_CALM, indefinitely.
  const interval = { min: 5000, max: 3_600_000, fallback: PING_MS };
  return {
    transport,
    pingIntervalMs:
      (grpcOptions["grpc.keepalive_time_ms"] as number | undefined) ??
      checkInteger("pingIntervalMs", given.pingIntervalMs, interval),
    pingTimeoutMs: checkInteger("pingTimeoutMs", given.pingTimeoutMs, WAIT),
    connectTimeoutMs: checkInteger("connectTimeoutMs", given.connectTimeoutMs, WAIT),
    grpcOptions,
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
    throw typeError(option, `left out with transport "etcd3" (${instead})`, given[option]);
  }
}

function checkNoneOfEtcd3(value: unknown): void {
  if (value === undefined) return;
  const instead =
    'they belong to transport "etcd3"; "http2" has pingIntervalMs, pingTimeoutMs and connectTimeoutMs';
  throw secretTypeError("grpcOptions", `left out with transport "http2" (${instead})`, value);
}

const GRPC_TEXT =
  /^grpc\.(ssl_target_name_override|\w+_user_agent|default_authority|service_config|http_connect_\w+)$/;

/** grpc-js reads its options when it connects, in its own callbacks: a wrong one would crash the process. */
function checkGrpc(value: unknown): Options {
  const options = checkPlainObject("grpcOptions", value === undefined ? {} : value);
  for (const [name, setting] of Object.entries(options)) {
    if (!/^grpc(-node)?\./.test(name))
      throw rangeError("grpcOptions", 'made of names that start with "grpc."', name);
    const rule = GRPC_TEXT.test(name) ? "a string" : "a number";
    if (typeof setting !== rule.slice(2)) throw secretTypeError(`grpcOptions["${name}"]`, rule, setting);
  }
  return options;
}
