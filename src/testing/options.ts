import {
  checkBoolean,
  checkInteger,
  checkOptions,
  checkPlainObject,
  checkSignal,
  eitherOf,
  MAX_TIMER_MS,
  rangeError,
  secretTypeError,
  typeError,
} from "../base/options/check.js";
import { isAbortSignal } from "../base/util/realm.js";

/** The options of `startEtcd()`. */
export interface StartEtcdOptions {
  /** How many members the cluster has. @default 1 */
  readonly members?: 1 | 3 | undefined;
  /**
   * The version of etcd that you need, or the start of it, such as "3.6". Not together with `image`, whose tag says it.
   * @default the environment variable LEASEHOLD_ETCD_VERSION, else any version
   */
  readonly version?: string | undefined;
  /** The path of the etcd to start. @default the first that the search finds, see `startEtcd()` */
  readonly binary?: string | undefined;
  /**
   * An image with etcd, such as "quay.io/coreos/etcd:v3.6.5": the members run in containers. It needs a container engine and the
   * package testcontainers.
   */
  readonly image?: string | undefined;
  /** Aborts the start; what was started is removed first. */
  readonly signal?: AbortSignal | undefined;
  /** The time limit of the start, in milliseconds. @default 60000 */
  readonly timeoutMs?: number | undefined;
}

/** The options with their defaults. */
export interface CheckedStart {
  readonly members: number;
  readonly version: string | undefined;
  readonly binary: string | undefined;
  readonly image: string | undefined;
  readonly signal: AbortSignal | undefined;
  readonly timeoutMs: number;
}

const KNOWN = ["members", "version", "binary", "image", "signal", "timeoutMs"] as const;

/** @throws {TypeError | RangeError} that names the option, the rule and the value. */
export function checkStart(options: StartEtcdOptions | undefined): CheckedStart {
  const given = checkOptions("startEtcd", options, KNOWN);
  const [version, binary, image] = [given["version"], given["binary"], given["image"]];
  if (image !== undefined && (binary ?? version) !== undefined)
    throw rangeError("image", "given without binary and version", image);
  return {
    members: membersOf(given["members"] ?? 1),
    version: versionOf(version),
    binary: textOf("binary", "the path of an etcd program", binary),
    image: textOf("image", "the name of an image with etcd", image),
    signal: checkSignal(given["signal"]),
    timeoutMs: checkInteger("timeoutMs", given["timeoutMs"], { min: 1, max: MAX_TIMER_MS, fallback: 60_000 }),
  };
}

function membersOf(value: unknown): number {
  if (typeof value !== "number") throw typeError("members", "1 or 3", value);
  if (value !== 1 && value !== 3) throw rangeError("members", "1 or 3", value);
  return value;
}

function versionOf(value: unknown): string | undefined {
  const rule = 'a version of etcd, such as "3.6"';
  const version = textOf("version", rule, value);
  if (version !== undefined && !/^\d+(\.\d+){0,2}$/.test(version)) throw rangeError("version", rule, version);
  return version;
}

function textOf(option: string, rule: string, value: unknown): string | undefined {
  if (value === undefined) return undefined;
  if (typeof value !== "string") throw typeError(option, rule, value);
  if (value === "") throw rangeError(option, rule, value);
  return value;
}

/**
 * The users and roles of `memoryEtcd()`, by name. The user `root`, with the password "root", has all rights. For example, a worker
 * that may read and write all keys below jobs/:
 * `{ users: { worker: { password: "secret", roles: ["jobs"] } }, roles: { jobs: { readwrite: ["jobs/"] } } }`.
 */
export interface MemoryAuth {
  readonly users?: Readonly<
    Record<string, { readonly password: string; readonly roles?: readonly string[] }>
  >;
  /** The prefixes of the keys that each role may read, write, or both. */
  readonly roles?: Readonly<
    Record<string, Readonly<Partial<Record<"read" | "write" | "readwrite", readonly string[]>>>>
  >;
}

/** The options of `memoryEtcd()`. */
export interface MemoryEtcdOptions {
  /** How many members the cluster has. @default 1 */
  readonly members?: 1 | 3 | undefined;
  /** "virtual": time stands still until `advance()`. @default "real" */
  readonly time?: "real" | "virtual" | undefined;
  /** The release of etcd whose answers it gives. @default "3.6" */
  readonly version?: "3.4" | "3.5" | "3.6" | "3.7" | undefined;
  /** Authentication is on, with these users and roles. @default off */
  readonly auth?: MemoryAuth | undefined;
  /**
   * Chooses the order of what happens at the same time: another seed, another order. The same seed gives the same run in virtual
   * time. @default the order in which it was caused
   */
  readonly seed?: number | string | undefined;
  /** `connect` takes its hosts also with NODE_ENV=production. It keeps nothing. @default false */
  readonly evenInProduction?: boolean | undefined;
}

export interface CheckedMemory {
  readonly members: number;
  readonly time: "real" | "virtual";
  readonly version: "3.4" | "3.5" | "3.6" | "3.7";
  readonly auth: MemoryAuth | undefined;
  readonly seed: string | undefined;
  readonly evenInProduction: boolean;
}

const VERSIONS = ["3.4", "3.5", "3.6", "3.7"] as const;

/** The options of `startDevEtcd()`. */
export interface DevEtcdOptions {
  /** The port of the first member on 127.0.0.1; those of the others follow it. 0: free ones. @default 2379 */
  readonly port?: number | undefined;
  /** How many members the cluster has. @default 1 */
  readonly members?: 1 | 3 | undefined;
  /** The release of etcd whose answers it gives. @default "3.6" */
  readonly version?: "3.4" | "3.5" | "3.6" | "3.7" | undefined;
  /** Starts also with NODE_ENV=production. It keeps nothing. @default false */
  readonly evenInProduction?: boolean | undefined;
}

export interface CheckedDev {
  readonly port: number;
  readonly members: number;
  readonly version: "3.4" | "3.5" | "3.6" | "3.7";
  readonly evenInProduction: boolean;
}

const USUAL_PORT = 2379;
const MAX_PORT = 65_535;

/** @throws {TypeError | RangeError} that names the option, the rule and the value. */
export function checkDev(options: DevEtcdOptions | undefined): CheckedDev {
  const given = checkOptions("startDevEtcd", options, ["port", "members", "version", "evenInProduction"]);
  const members = membersOf(given["members"] ?? 1);
  const max = MAX_PORT + 1 - members;
  return {
    members,
    port: checkInteger("port", given["port"], { min: 0, max, fallback: USUAL_PORT }),
    version: oneOf("version", VERSIONS, given["version"] ?? "3.6"),
    evenInProduction: checkBoolean("evenInProduction", given["evenInProduction"] ?? false),
  };
}

/** @throws {TypeError | RangeError} that names the option, the rule and the value. */
export function checkMemory(options: MemoryEtcdOptions | undefined): CheckedMemory {
  const known = ["members", "time", "version", "auth", "seed", "evenInProduction"];
  const given = checkOptions("memoryEtcd", options, known);
  const { auth, seed } = given;
  if (seed !== undefined && typeof seed !== "string" && typeof seed !== "number")
    throw typeError("seed", "a number or a string", seed);
  return {
    members: membersOf(given["members"] ?? 1),
    time: oneOf("time", ["real", "virtual"], given["time"] ?? "real"),
    version: oneOf("version", VERSIONS, given["version"] ?? "3.6"),
    auth: auth === undefined ? undefined : checkMemoryAuth(auth),
    seed: seed === undefined ? undefined : String(seed),
    evenInProduction: checkBoolean("evenInProduction", given["evenInProduction"] ?? false),
  };
}

function oneOf<T extends string>(option: string, names: readonly T[], value: unknown): T {
  const found = names.find((name) => name === value);
  if (found !== undefined) return found;
  throw (typeof value === "string" ? rangeError : typeError)(option, eitherOf(names), value);
}

function checkMemoryAuth(value: unknown): MemoryAuth {
  const { users = {}, roles = {} } = checkOptions("auth", checkPlainObject("auth", value), [
    "users",
    "roles",
  ]);
  for (const [name, user] of Object.entries(checkPlainObject("auth.users", users))) {
    const given = checkOptions(`auth.users.${name}`, checkPlainObject(`auth.users.${name}`, user), [
      "password",
      "roles",
    ]);
    if (typeof given["password"] !== "string")
      throw secretTypeError(`auth.users.${name}.password`, "a string", given["password"]);
    for (const role of listOf(`auth.users.${name}.roles`, given["roles"]))
      if (role !== "root" && !Object.hasOwn(roles as object, role))
        throw rangeError(`auth.users.${name}.roles`, "names of auth.roles", role);
  }
  for (const [name, role] of Object.entries(checkPlainObject("auth.roles", roles))) {
    const kinds = ["read", "write", "readwrite"];
    const given = checkOptions(`auth.roles.${name}`, checkPlainObject(`auth.roles.${name}`, role), kinds);
    for (const kind of kinds) listOf(`auth.roles.${name}.${kind}`, given[kind]);
  }
  return value as MemoryAuth;
}

function listOf(option: string, value: unknown = []): readonly string[] {
  if (Array.isArray(value) && value.every((each) => typeof each === "string")) return value;
  throw typeError(option, "a list of strings", value);
}

/** The time by which `advance()` moves. @throws {TypeError | RangeError} */
export function checkAdvance(ms: unknown): number {
  const rule = `a number of milliseconds from 0 to ${MOST_MS}`;
  if (typeof ms !== "number") throw typeError("ms", rule, ms);
  if (!(ms >= 0 && ms <= MOST_MS)) throw rangeError("ms", rule, ms);
  return ms;
}

/** A year. */
const MOST_MS = 366 * 86_400_000;

/** @throws {TypeError | RangeError} */
export const checkRefusal = (what: unknown): "quota" | "nothing" => oneOf("what", ["quota", "nothing"], what);

/** How a link is cut. */
export type CutMode = "silent" | "reset";

/** @throws {TypeError | RangeError} */
export function checkCut(options: unknown): CutMode {
  const how = checkOptions("cut", options, ["how"])["how"] ?? "silent";
  if (how === "silent" || how === "reset") return how;
  throw (typeof how === "string" ? rangeError : typeError)("how", '"silent" or "reset"', how);
}

/** The members that a call is about: all of them if it names none. @throws {TypeError | RangeError} */
export function checkMember<M>(members: readonly M[], member: unknown): readonly M[] {
  if (member === undefined) return members;
  const rule = `a member's index, from 0 to ${members.length - 1}`;
  if (typeof member !== "number") throw typeError("member", rule, member);
  const found = members[member];
  if (found === undefined) throw rangeError("member", rule, member);
  return [found];
}

/** What an etcd knows of a cluster. @throws {TypeError} */
export function checkClient<C>(clients: WeakMap<object, C>, cluster: unknown): C {
  const client = clients.get(Object(cluster) as object);
  if (client !== undefined) return client;
  throw typeError("cluster", "a Cluster that connect() has made for the hosts of this etcd", cluster);
}

/** The ID of a session's lease. @throws {TypeError | RangeError} */
export function checkLease(value: unknown): bigint {
  const leaseId: unknown =
    typeof value === "object" && value !== null ? (value as { leaseId?: unknown }).leaseId : value;
  if (typeof leaseId !== "bigint")
    throw typeError("session", "a Session, or the bigint ID of a lease", value);
  if (leaseId <= 0n) throw rangeError("session", "the ID of a lease, above 0", leaseId);
  return leaseId;
}

interface CheckedLosable {
  readonly keys: readonly string[];
  readonly revision: bigint;
  readonly signal: AbortSignal;
}

/** @throws {TypeError} */
export function checkLosable(value: unknown): CheckedLosable {
  const { key, keys, revision, signal } = (value ?? {}) as Readonly<Record<string, unknown>>;
  const all: unknown = keys ?? [key];
  if (!Array.isArray(all) || all.length === 0 || !all.every((one) => typeof one === "string"))
    throw typeError("lock", "a lock, or another hold", value);
  if (typeof revision !== "bigint" || !isAbortSignal(signal))
    throw typeError("lock", "a lock, or another hold", value);
  return { keys: all, revision, signal };
}

/** @throws {TypeError} */
export function checkPrefixOfKeys(value: unknown): string {
  if (value === undefined) return "";
  if (typeof value !== "string") throw typeError("prefix", "a string", value);
  return value;
}

/** The `timeoutMs` of `isQuiet()`. @throws {TypeError | RangeError} */
export function checkQuiet(options: unknown): number {
  const { timeoutMs } = checkOptions("isQuiet", options, ["timeoutMs"]);
  return checkInteger("timeoutMs", timeoutMs, { min: 0, max: MAX_TIMER_MS, fallback: 2_000 });
}
