import { isIPv6 } from "node:net";
import { rangeError, typeError } from "./check.js";

/** etcd's port for clients: https://www.iana.org/assignments/service-names-port-numbers */
const CLIENT_PORT = "2379";

const RULE = '"host:port" or "http(s)://host:port", or several: with commas between them, or in an array';

/** An etcd in this process: see `memoryEntryOf`. */
export const MEMORY_HOST = /^memory:\/\/[\w.-]+$/;

/** A socket of the file system, as etcd 3.7 and Go's gRPC name it: `unix:/path` or `unix:///path`. */
const UNIX_HOST = /^unix:(?:\/\/)?(\/(?!\/)[^\0]*)$/;
/** Linux has room for so many bytes of a path, other systems for fewer: unix(7). */
const MAX_SOCKET_BYTES = 107;

/** The name of SRV records: a domain, or a complete name of RFC 2782, which begins with an underscore. */
const SRV_HOST = /^srv:([a-z\d_](?:[\w.-]{0,251}[a-z\d])?)$/i;

/** What hosts are named in errors, and what a host without a scheme means. */
interface HostsContext {
  readonly option: string;
  /** A host without a scheme is reached by TLS. */
  readonly secure: boolean;
}

/**
 * The hosts as users write them, in their normal form `http(s)://host:port`, each one once.
 * @throws {TypeError | RangeError}
 */
export function checkHosts(value: unknown, context: HostsContext): readonly string[] {
  const { option } = context;
  const given: unknown[] =
    typeof value === "string" ? [value] : Array.isArray(value) ? Array.from(value) : [];
  if (given.length === 0) throw typeError(option, RULE, value);
  const hosts = given.flatMap((text) => {
    if (typeof text !== "string") throw typeError(option, RULE, text);
    // The path of a socket may contain a comma.
    return text.startsWith("unix:") && typeof value !== "string"
      ? text.split(AT_SCHEME).map((host) => normalHost(host, context))
      : hostsIn(text, context);
  });
  return Object.freeze([...new Set(hosts)]);
}

/** The comma before a host with a scheme. */
const AT_SCHEME = /\s*,\s*(?=(?:unix|srv|memory|https?):)/;

/** One cluster has one set of credentials. @throws {RangeError} */
export function checkOneScheme(option: string, hosts: readonly string[]): void {
  const secure = hosts.filter((host) => host.startsWith("https:")).length;
  if (secure > 0 && secure < hosts.length) throw rangeError(option, "all https:// or none", hosts.join(", "));
}

function hostsIn(text: string, context: HostsContext): string[] {
  const { option } = context;
  // Before the text is cut at its commas: a password may contain one, and no part of it may get into an error.
  if (text.includes("@")) throw rangeError(option, "without a user and a password (give auth instead)", text);
  const parts = text.split(",").map((part) => part.trim());
  const afterSocket = parts.findIndex(
    (part, at) => parts[at - 1]?.startsWith("unix:") && !/^\w+:\D|^$/.test(part),
  );
  if (afterSocket > 0)
    throw rangeError(
      option,
      "an array if the path of a socket contains a comma, or with http:// before the host that follows a socket",
      text,
    );
  const hosts = parts.filter((part) => part !== "").map((part) => normalHost(part, context));
  if (hosts.length === 0) throw rangeError(option, RULE, text);
  return hosts;
}

function normalHost(host: string, { option, secure }: HostsContext): string {
  if (MEMORY_HOST.test(host)) return host;
  if (host.startsWith("unix:")) return normalSocket(host, option);
  if (host.startsWith("srv:")) return normalSrv(host, { option, secure });
  const [, scheme = secure ? "https" : "http", rest = ""] = /^(?:(https?):\/\/)?(.*)$/is.exec(host) ?? [];
  const [, address = "", path = ""] = /^([^/?#]*)(.*)$/s.exec(rest) ?? [];
  const [, name, port = CLIENT_PORT] = /^([\w.-]+|\[[\da-fA-F:.]+\])(?::(\d{1,5}))?$/.exec(address) ?? [];
  if (name === undefined || (name.startsWith("[") && !isIPv6(name.slice(1, -1))))
    throw rangeError(option, isIPv6(address) ? 'an IPv6 address in brackets: "[::1]:2379"' : RULE, host);
  if (!/^\/*$/.test(path)) throw rangeError(option, "addresses without a path or a query", host);
  if (Number(port) < 1 || Number(port) > 65_535)
    throw rangeError(option, "addresses with a port from 1 to 65535", host);
  return `${scheme}://${name}:${Number(port)}`.toLowerCase();
}

/** As etcd has it: https://etcd.io/docs/v3.6/op-guide/clustering/#dns-discovery */
function normalSrv(host: string, { option, secure }: HostsContext): string {
  const [, name] = SRV_HOST.exec(host) ?? [];
  if (name === undefined) throw rangeError(option, 'a domain after srv:, as in "srv:example.com"', host);
  if (name.startsWith("_")) return `srv:${name.toLowerCase()}`;
  return `srv:_etcd-client${secure ? "-ssl" : ""}._tcp.${name.toLowerCase()}`;
}

function normalSocket(host: string, option: string): string {
  const [, path] = UNIX_HOST.exec(host) ?? [];
  if (path === undefined)
    throw rangeError(option, 'an absolute path after unix:, as in "unix:///run/etcd.sock"', host);
  if (Buffer.byteLength(path) > MAX_SOCKET_BYTES)
    throw rangeError(option, `a path of a socket of at most ${MAX_SOCKET_BYTES} bytes`, host);
  return `unix://${path}`;
}
