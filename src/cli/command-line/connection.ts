import { readFileSync } from "node:fs";
import { rootCertificates } from "node:tls";
import type { ConnectOptions, Credentials } from "../../index.js";
import type { Flags, Given } from "./command.js";
import { EXIT, CliError, usageError } from "./exit.js";
import type { Io } from "./io.js";

/** The flags that every command has: those of etcdctl, with its names, and --server-name. */
export const CONNECTION_FLAGS = {
  endpoints: {
    value: "HOST:PORT,...",
    text: "members of etcd; ETCDCTL_ENDPOINTS; default 127.0.0.1:2379",
  },
  cacert: { value: "FILE", text: "certificates of the authorities, PEM; ETCDCTL_CACERT" },
  cert: { value: "FILE", text: "certificate of this client, PEM; ETCDCTL_CERT" },
  key: { value: "FILE", text: "key of this client, PEM; ETCDCTL_KEY" },
  "server-name": { value: "HOST", text: "name in the members' certificates, if endpoints are addresses" },
  user: { value: "NAME[:PASSWORD]", text: "user of etcd; ETCDCTL_USER" },
  password: { value: "TEXT", text: "its password; better ETCDCTL_PASSWORD, which other users cannot see" },
} as const satisfies Flags;

type ConnectionFlags = Partial<Given<typeof CONNECTION_FLAGS>>;

const DEFAULT_ENDPOINTS = "127.0.0.1:2379";

/** The options of `connect` from the flags, or else from etcdctl's environment. */
export function connectionOf(flags: ConnectionFlags, env: Io["env"]): ConnectOptions {
  const given = (flag: keyof ConnectionFlags): string | undefined =>
    nonEmpty(flags[flag] ?? env[`ETCDCTL_${flag.toUpperCase().replace("-", "_")}`]);
  const files = { cacert: given("cacert"), cert: given("cert"), key: given("key") };
  const hosts = hostsOf(given("endpoints") ?? DEFAULT_ENDPOINTS, Object.values(files).some(Boolean));
  const secure = hosts.some((host) => host.startsWith("https:"));
  const credentials = secure ? credentialsOf(files, given("server-name")) : undefined;
  const auth = authOf(given("user"), given("password"));
  return { hosts, ...(credentials && { credentials }), ...(auth && { auth }) };
}

const nonEmpty = (text: string | undefined): string | undefined => (text === "" ? undefined : text);

/** As people have them in ETCDCTL_ENDPOINTS: with or without a scheme, a port or a slash at the end. */
function hostsOf(endpoints: string, tls: boolean): string[] {
  const hosts = endpoints
    .split(",")
    .map((host) => host.trim().replace(/\/+$/, ""))
    .filter((host) => host !== "")
    .map((host) => (/^https?:\/\//.test(host) ? host : `${tls ? "https" : "http"}://${host}`))
    .map((host) => (/:\d+$/.test(host) ? host : `${host}:2379`));
  if (hosts.length === 0) throw usageError("--endpoints names no member");
  return hosts;
}

function credentialsOf(
  { cacert, cert, key }: Readonly<Record<"cacert" | "cert" | "key", string | undefined>>,
  serverName: string | undefined,
): Credentials {
  if ((cert === undefined) !== (key === undefined))
    throw usageError("--cert and --key belong together: one is missing");
  return {
    rootCertificate: cacert === undefined ? Buffer.from(rootCertificates.join("\n")) : pem("cacert", cacert),
    ...(cert !== undefined &&
      key !== undefined && { certChain: pem("cert", cert), privateKey: pem("key", key) }),
    ...(serverName !== undefined && { serverName }),
  };
}

function pem(flag: string, file: string): Buffer {
  try {
    return readFileSync(file);
  } catch (error) {
    throw new CliError(EXIT.usage, `--${flag}: ${(error as Error).message}`);
  }
}

/** etcdctl's rule: what follows the first colon of --user is the password. */
function authOf(user: string | undefined, password: string | undefined): ConnectOptions["auth"] {
  if (user === undefined) {
    if (password !== undefined) throw usageError("--password without --user");
    return undefined;
  }
  const [, username = user, inline] = /^([^:]*):(.*)$/s.exec(user) ?? [];
  const secret = inline ?? password;
  if (secret === undefined) throw usageError("--user without a password: set ETCDCTL_PASSWORD");
  return { username, password: secret };
}
