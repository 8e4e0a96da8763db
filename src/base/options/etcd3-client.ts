// The option `etcd3` of `connect`: a user's own client of the package etcd3. Its public methods choose a host at random, repeat
// requests, and hide which host has answered, so its hosts are taken from its pool, each with the channels that it has.
import { checkPlainObject, type Options, rangeError, secretTypeError } from "./check.js";

/** A client of npm's etcd3: an instance of its class `Etcd3`. */
export interface Etcd3Client {
  readonly kv: object;
  readonly leaseClient: object;
  readonly watchClient: object;
  readonly auth: object;
  close(): void;
}

/** One host of such a client. */
export interface Etcd3Host {
  /** As its user has written it, without the scheme. */
  readonly host: string;
  /** The user has closed the client. */
  readonly closed: boolean;
  /** A service of etcd over the client's channel. */
  getServiceClient(service: string): unknown;
  readonly channelCredentials: object;
  readonly channelOptions?: Options | undefined;
}

interface CheckedClient {
  readonly hosts: readonly Etcd3Host[];
  /** Whether the client uses TLS. */
  readonly secure: boolean;
  readonly auth: { readonly username: unknown; readonly password: unknown } | undefined;
}

const RULE = "a client of the package etcd3: new Etcd3(…)";
const RETRIES = /"(retryPolicy|hedgingPolicy)"/;
const SERVICE_CONFIG = "grpc.service_config";

/** Options that exclude the client, by the reason. */
const BESIDE: Readonly<Record<string, string>> = {
  "the client decides that":
    "hosts followMembers credentials auth transport pingIntervalMs pingTimeoutMs connectTimeoutMs",
  "no other thread or process can use the client": "guardian renewal maxStallMs",
};

/** @throws {TypeError} when an option contradicts the client. */
export function checkNothingBeside(given: Options): void {
  for (const [why, options] of Object.entries(BESIDE))
    for (const option of options.split(" ")) {
      const value = given[option];
      if (value === undefined || (option === "transport" && value === "etcd3")) continue;
      throw new TypeError(`Option ${option} cannot be used together with etcd3: ${why}`);
    }
}

/** @throws {TypeError | RangeError} */
export function checkEtcd3Client(value: unknown): CheckedClient {
  const { pool, auth: service } = checkPlainObject("etcd3", value) as Partial<RawClient>;
  const { hosts, options } = pool ?? {};
  // Not a namespace of a client, whose keys would have another prefix than it seems.
  if (service === undefined || !isHosts(hosts) || typeof options !== "object")
    throw secretTypeError("etcd3", RULE, value);
  const { credentials, auth, grpcOptions } = options;
  const config = grpcOptions?.[SERVICE_CONFIG];
  if (typeof config === "string" && RETRIES.test(config)) {
    const rule = `a client whose grpcOptions["${SERVICE_CONFIG}"] has no retries (leasehold itself repeats what may be repeated)`;
    throw rangeError("etcd3", rule, config);
  }
  const secure =
    credentials !== undefined || [options.hosts].flat().some((host) => /^https:/.test(host ?? ""));
  return { hosts, secure, auth: auth && { username: auth.username, password: auth.password } };
}

/** What is read of an `Etcd3`. TypeScript calls some of it private. */
interface RawClient {
  readonly pool: {
    readonly hosts: unknown;
    readonly options: {
      readonly hosts?: string | readonly string[];
      readonly credentials?: object;
      readonly auth?: { readonly username: unknown; readonly password: unknown };
      readonly grpcOptions?: Options;
    };
  };
  readonly auth: object;
}

const isHosts = (value: unknown): value is readonly Etcd3Host[] =>
  Array.isArray(value) && value.length > 0 && value.every(isHost);

const isHost = (value: Partial<Etcd3Host> | null): boolean =>
  typeof value?.host === "string" &&
  typeof value.getServiceClient === "function" &&
  typeof value.channelCredentials === "object";
