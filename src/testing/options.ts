import {
  checkInteger,
  checkOptions,
  checkSignal,
  MAX_TIMER_MS,
  rangeError,
  typeError,
} from "../options/check.js";

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
  if (typeof revision !== "bigint" || !(signal instanceof AbortSignal))
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
