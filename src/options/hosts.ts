import { isIPv6 } from "node:net";
import { rangeError, typeError } from "./check.js";

/** etcd's port for clients: https://www.iana.org/assignments/service-names-port-numbers */
const CLIENT_PORT = "2379";

const RULE = '"host:port" or "http(s)://host:port", or several: with commas between them, or in an array';

/** What hosts are named in errors, and what a host without a scheme means. */
export interface HostsContext {
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
    return hostsIn(text, context);
  });
  return Object.freeze([...new Set(hosts)]);
}

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
  const hosts = parts.filter((part) => part !== "").map((part) => normalHost(part, context));
  if (hosts.length === 0) throw rangeError(option, RULE, text);
  return hosts;
}

function normalHost(host: string, { option, secure }: HostsContext): string {
  const [, scheme = secure ? "https" : "http", rest = ""] = /^(?:(https?):\/\/)?(.*)$/is.exec(host) ?? [];
  const [, address = "", path = ""] = /^([^/?#]*)(.*)$/s.exec(rest) ?? [];
  const [, name, port = CLIENT_PORT] = /^([\w.-]+|\[[\da-fA-F:.]+\])(?::(\d{1,5}))?$/.exec(address) ?? [];
  if (name === undefined || (name.startsWith("[") && !isIPv6(name.slice(1, -1))))
    throw rangeError(option, isIPv6(address) ? 'an IPv6 address in brackets: "[::1]:2379"' : RULE, host);
  if (!/^\/*$/.test(path)) throw rangeError(option, "without a path or a query", host);
  if (Number(port) < 1 || Number(port) > 65_535)
    throw rangeError(option, "with a port from 1 to 65535", host);
  return `${scheme}://${name}:${Number(port)}`.toLowerCase();
}
