import type { Lock, Session } from "../index.js";
import {
  checkInteger,
  checkOptions,
  checkSignal,
  MAX_TIMER_MS,
  rangeError,
  typeError,
} from "../options/check.js";
import type { Address } from "./link.js";

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

export interface StartLimits {
  readonly signal: AbortSignal | undefined;
  readonly timeoutMs: number;
}

/** A member of the cluster: a process, or a container. */
export interface Member {
  readonly name: string;
  readonly running: boolean;
  /** Where it answers, past the link. */
  readonly address: Address;
  /** Also after `kill()`. Resolves when it answers, which requires a majority. */
  start(limits: StartLimits): Promise<void>;
  kill(): Promise<void>;
  pause(): Promise<void>;
  resume(): Promise<void>;
}

/** The members of one cluster. */
export interface Fleet {
  readonly members: readonly Member[];
  /** The version of etcd, as far as it is known. */
  readonly version: string | undefined;
  /** Kills the members, and removes their data. */
  remove(): Promise<void>;
}

/** The keys, leases and watches that etcd still has. */
export interface Leftovers {
  /** Sorted. */
  readonly keys: readonly string[];
  readonly leases: readonly bigint[];
  /** The number of watches that clients have open. */
  readonly watches: number;
  /** Bigints become decimal strings. */
  toJSON(): Readonly<Record<string, unknown>>;
}

/** A lock, a permit, a leadership or another hold; `lockAll()` has several keys. */
export type Losable = Pick<Lock, "revision" | "signal"> &
  (Pick<Lock, "key"> | { readonly keys: readonly string[] });

/**
 * An etcd of your own, and what can happen to it. Members have the indices 0 to 2; a call that names no member is about all of
 * them. Every method but `stop()` rejects after `stop()`, and with a `RangeError` for a member that does not exist.
 */
export interface TestEtcd extends AsyncDisposable {
  /**
   * For `connect({ hosts })`, in the order of the members. They lead to the members through links, which `cut()` cuts.
   */
  readonly hosts: readonly string[];
  /** The environment for `etcdctl` and for child processes that call `connect(fromEnv())`: ETCDCTL_ENDPOINTS. */
  readonly env: { readonly ETCDCTL_ENDPOINTS: string };
  /** The version of etcd, such as "3.4.23"; undefined for an image. */
  readonly version: string | undefined;

  /**
   * Suspends the process of a member (SIGSTOP), or its container. Connections stay open, and nothing is answered. Resolves when it
   * is suspended.
   */
  pause(member?: number): Promise<void>;
  /** Ends `pause()`. Does nothing for a member that runs. */
  resume(member?: number): Promise<void>;
  /**
   * Cuts the link between the clients and a member; the members still reach each other.
   *
   * With "silent", the default, connections stay open and new ones are accepted, but every byte is dropped in both directions, as
   * by a firewall that drops packets. With "reset", open connections and new ones are reset at once.
   */
  cut(member?: number, options?: { readonly how?: "silent" | "reset" | undefined }): Promise<void>;
  /**
   * Ends `cut()`. Connections that were silent are reset, so that clients connect again: what they sent meanwhile never reaches
   * etcd.
   */
  heal(member?: number): Promise<void>;
  /** Kills the process of a member (SIGKILL), or its container. Its data stays for `restart()`. */
  kill(member?: number): Promise<void>;
  /**
   * Kills a member if it runs, and starts it with its data. Resolves when it answers, for which most members must run: restart
   * those together by naming none.
   * @throws an `Error` with what etcd printed if it does not answer within 30 s.
   */
  restart(member?: number): Promise<void>;
  /** The index of the member that leads. Waits up to 10 s for an election. */
  leader(): Promise<number>;

  /**
   * Revokes the lease of a session behind its back, as an operator could. Resolves when etcd has the lease and its keys no more;
   * the session learns of it later: wait for its `signal`.
   * @throws an `Error` if etcd has no such lease, or if no member answers within 10 s.
   */
  expire(session: Pick<Session, "leaseId"> | bigint): Promise<void>;
  /**
   * Deletes the key of a lock behind its back. Resolves when its holder knows: when `lock.signal` has aborted.
   * @throws an `Error` if etcd does not have the key any more, if no member answers within 10 s, or if the holder has not noticed
   *   10 s later, for example because its link is cut.
   */
  lose(lock: Losable): Promise<void>;

  /** The keys in etcd that start with `prefix`, sorted. @throws an `Error` if no member answers within 10 s. */
  keys(prefix?: string): Promise<string[]>;
  /** Resolves with what is left in etcd now. The watches of members that are paused or killed are not counted. */
  leftovers(): Promise<Leftovers>;
  /**
   * Whether etcd has no key, no lease and no watch: true as soon as that is so, false after `timeoutMs`, which is 2000 unless
   * told. A client that was closed a moment ago may still have a watch there.
   */
  isQuiet(options?: { readonly timeoutMs?: number | undefined }): Promise<boolean>;

  /**
   * Kills the members and removes their data, whatever state they are in. What was under way rejects. Idempotent. Without it, the
   * members end with this process.
   */
  stop(): Promise<void>;
  [Symbol.asyncDispose](): Promise<void>;
}
