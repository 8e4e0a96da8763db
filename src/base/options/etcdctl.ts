import { checkPlainObject, rangeError } from "./check.js";
import { type CheckedCredentials, checkPem } from "./connect.js";
import { checkHosts, checkOneScheme } from "./hosts.js";

/** What etcdctl's flags and its environment set. */
const ETCDCTL_SETTINGS = [
  ...(["endpoints", "cacert", "cert", "key"] as const),
  ...(["server-name", "user", "password"] as const),
];

type EtcdctlSetting = (typeof ETCDCTL_SETTINGS)[number];

/** A setting, and what users call it: a variable or a flag. */
interface Source {
  readonly name: string;
  readonly text: string | undefined;
}

type Sources = Readonly<Record<EtcdctlSetting, Source>>;

/** Options of `connect`. */
interface EtcdctlConnection {
  readonly hosts: readonly string[];
  /** A function if files are named: it reads them. */
  readonly credentials?: CheckedCredentials | (() => CheckedCredentials);
  readonly auth?: { readonly username: string; readonly password: string };
}

/** As etcdctl has it: https://etcd.io/docs/v3.6/dev-guide/interacting_v3/ */
const DEFAULT_ENDPOINTS = "127.0.0.1:2379";

export const variableOf = (setting: EtcdctlSetting): string =>
  `ETCDCTL_${setting.toUpperCase().replace("-", "_")}`;

/**
 * The options of `connect` with etcdctl's meaning of its settings; an empty text counts as not set.
 * @throws {RangeError} that names the source, the rule and, unless it is secret, the value.
 */
export function etcdctlConnection(
  sourceOf: (setting: EtcdctlSetting) => Source,
  discovery?: Discovery,
): EtcdctlConnection {
  const sources = Object.fromEntries(
    ETCDCTL_SETTINGS.map((setting) => [setting, withoutEmpty(sourceOf(setting))]),
  ) as unknown as Sources;
  const { cacert, cert, key } = sources;
  const files = [cacert, cert, key].some(({ text }) => text !== undefined);
  const { name: option, text = DEFAULT_ENDPOINTS } = discovery?.(files) ?? sources.endpoints;
  const hosts = checkHosts(text, { option, secure: files });
  const secure = hosts.some((host) => host.startsWith("https:") || (files && host.startsWith("srv:")));
  if (!secure) checkNoFiles(sources);
  const auth = authOf(sources);
  const read = (): CheckedCredentials => credentialsOf(sources);
  const first = secure ? read() : undefined;
  return { hosts, ...(first && { credentials: files ? read : first }), ...(auth && { auth }) };
}

/** The options of `connect` from etcdctl's variables. @throws {TypeError | RangeError} */
export function envConnection(env: unknown): EtcdctlConnection {
  const variables = checkPlainObject("env", env) as NodeJS.ProcessEnv;
  const sourceOf = (setting: EtcdctlSetting): Source => {
    const name = variableOf(setting);
    return { name, text: variables[name] };
  };
  const connection = etcdctlConnection(sourceOf, discoveryOf(variables));
  checkOneScheme(variableOf("endpoints"), connection.hosts);
  return connection;
}

/** What takes the place of the endpoints, with certificates or without. */
type Discovery = (secure: boolean) => Source;

/** With ETCDCTL_DISCOVERY_SRV, etcdctl finds the members by DNS, whatever the endpoints are. */
export function discoveryOf(env: NodeJS.ProcessEnv): Discovery | undefined {
  const { ETCDCTL_DISCOVERY_SRV: domain, ETCDCTL_DISCOVERY_SRV_NAME: service } = env;
  if (!domain) return undefined;
  const name = "ETCDCTL_DISCOVERY_SRV";
  if (!service) return () => ({ name, text: `srv:${domain}` });
  return (secure) => ({ name, text: `srv:_etcd-client${secure ? "-ssl" : ""}-${service}._tcp.${domain}` });
}

/** Certificates beside http:// are a mistake: the connection would be neither encrypted nor verified. @throws {RangeError} */
function checkNoFiles({ endpoints, cacert, cert, key }: Sources): void {
  for (const { name, text } of [cacert, cert, key])
    if (text !== undefined)
      throw rangeError(
        endpoints.name,
        `https://, or without a scheme, together with ${name}`,
        endpoints.text,
      );
}

const withoutEmpty = ({ name, text }: Source): Source => ({ name, text: text === "" ? undefined : text });

function credentialsOf({ cacert, cert, key, ...rest }: Sources): CheckedCredentials {
  const serverName = rest["server-name"].text;
  if ((cert.text === undefined) !== (key.text === undefined)) {
    const [given, missing] = key.text === undefined ? [cert, key] : [key, cert];
    throw new RangeError(`Expected ${given.name} together with ${missing.name}, which is not set`);
  }
  const certChain = pemOf(cert);
  const privateKey = pemOf(key);
  return {
    rootCertificate: pemOf(cacert) ?? trusted(),
    ...(certChain !== undefined && privateKey !== undefined && { certChain, privateKey }),
    ...(serverName !== undefined && { serverName }),
  };
}

/** The authorities that Node.js trusts. */
const trusted = (): Uint8Array =>
  Buffer.from(process.getBuiltinModule("node:tls").rootCertificates.join("\n"));

function pemOf({ name, text: file }: Source): Uint8Array | undefined {
  if (file === undefined) return undefined;
  let bytes: Buffer;
  try {
    bytes = process.getBuiltinModule("node:fs").readFileSync(file);
  } catch (cause) {
    const { message } = rangeError(name, "a file that can be read", file);
    throw new RangeError(`${message}: ${(cause as Error).message}`, { cause });
  }
  return checkPem(`the file of ${name}`, bytes);
}

/** etcdctl's rule: what follows the first colon of the user is the password. */
function authOf({ user, password }: Sources): EtcdctlConnection["auth"] {
  if (user.text === undefined) {
    if (password.text === undefined) return undefined;
    throw new RangeError(`Expected ${password.name} together with ${user.name}, which is not set`);
  }
  const [, username = user.text, inline] = /^([^:]*):(.*)$/s.exec(user.text) ?? [];
  const secret = inline ?? password.text;
  if (secret === undefined)
    throw new RangeError(
      `Expected ${user.name} to be NAME:PASSWORD, or together with ${password.name}, got a name only`,
    );
  return { username, password: secret };
}
