import type { KeyValue } from "../../etcd/port.js";
import { prefixOf } from "../../keys.js";
import { rangeError, typeError } from "../../base/options/check.js";
import { isAbortSignal } from "../../base/util/realm.js";

export type WebLockMode = "exclusive" | "shared";

/** The argument of the callback, which runs while the lock is held. In JSON it is `{}`, as in a browser. */
export interface WebLock {
  readonly name: string;
  readonly mode: WebLockMode;
  /** Beyond the standard, because a lease can be lost: aborts when the lock ends, *also on an ordinary release*. */
  readonly signal: AbortSignal;
  /** Beyond the standard: create revision of `key`, a fencing token if the mode is exclusive. */
  readonly revision: bigint;
  readonly key: string;
}

export interface WebLockOptions {
  /** Several `"shared"` locks of a name can be held at a time. @default "exclusive" */
  mode?: WebLockMode | undefined;
  /** Call the callback with null instead of waiting. @default false */
  ifAvailable?: boolean | undefined;
  /** Take the lock from its holders, ahead of all waiters. @default false */
  steal?: boolean | undefined;
  /** Gives up waiting; ignored once the lock is granted. */
  signal?: AbortSignal | undefined;
}

/** The converted arguments of a `request` call. */
export interface LockRequestArguments {
  readonly name: string;
  readonly mode: WebLockMode;
  readonly ifAvailable: boolean;
  readonly steal: boolean;
  readonly signal: AbortSignal | undefined;
  readonly callback: (lock: WebLock | null) => unknown;
}

/** Converts any value to a DOMString as Web IDL does. Throws on a symbol. */
const domString = (value: unknown): string => `${value as string}`;

/**
 * The conversions of Web IDL, in its order. Two arguments are a name and a callback; with three, the options are between
 * them. Unknown options are not even read. @throws TypeError, or what a getter or `toString` of the caller throws
 */
export function convertArguments(
  name: unknown,
  second: unknown,
  rest: readonly unknown[],
): LockRequestArguments {
  const converted = domString(name);
  const options = convertOptions(rest.length === 0 ? undefined : second);
  const callback = rest.length === 0 ? second : rest[0];
  if (typeof callback !== "function") throw typeError("callback", "a function", callback);
  return { name: converted, ...options, callback: callback as LockRequestArguments["callback"] };
}

function convertOptions(options: unknown): Omit<LockRequestArguments, "name" | "callback"> {
  if (
    options !== undefined &&
    options !== null &&
    typeof options !== "object" &&
    typeof options !== "function"
  ) {
    throw typeError("options", "an object", options);
  }
  const given = (options ?? {}) as Readonly<Record<string, unknown>>;
  // In Web IDL's order, which getters can observe.
  const ifAvailable = Boolean(given.ifAvailable);
  const mode = convertMode(given.mode);
  const signal = convertSignal(given.signal);
  const steal = Boolean(given.steal);
  return { ifAvailable, mode, signal, steal };
}

function convertMode(value: unknown): WebLockMode {
  if (value === undefined) return "exclusive";
  const mode = domString(value);
  if (mode === "exclusive" || mode === "shared") return mode;
  throw typeError("mode", '"exclusive" or "shared"', value);
}

function convertSignal(value: unknown): AbortSignal | undefined {
  if (value === undefined || isAbortSignal(value)) return value;
  throw typeError("signal", "an AbortSignal", value);
}

/** Rejects what the standard does, in its order. @throws NotSupportedError, or the reason of a signal that is already aborted */
export function checkArguments({ name, mode, ifAvailable, steal, signal }: LockRequestArguments): void {
  if (name.startsWith("-")) throw notSupported('a name that begins with "-" is reserved');
  if (steal && ifAvailable) throw notSupported("steal and ifAvailable exclude each other");
  if (steal && mode !== "exclusive") throw notSupported("only an exclusive lock can be stolen");
  if (signal && (steal || ifAvailable)) throw notSupported("signal excludes steal and ifAvailable");
  signal?.throwIfAborted();
}

const notSupported = (reason: string): DOMException =>
  new DOMException(`Lock request not supported: ${reason}`, "NotSupportedError");

/** The error of a closed manager or cluster. */
export const closedError = (cause?: Error): DOMException =>
  new DOMException("The lock manager is closed", { name: "InvalidStateError", cause });

/** In UTF-16 code units. The key is eight thirds as long in bytes, and every read of a queue returns several. */
const MAX_NAME = 4096;
/** Stands for the empty name, whose base64url would leave nothing between two slashes. */
const EMPTY = "=";

/**
 * The queue name of a lock. The lock's name may be any string, even one that is not well-formed Unicode, so its UTF-16
 * code units (little-endian) are encoded as base64url. @throws RangeError
 */
export function queueNameOf(prefix: string, name: string): string {
  if (name.length > MAX_NAME) throw rangeError("name", `at most ${MAX_NAME} UTF-16 code units long`, name);
  return `${prefix}/${encoded(name)}`;
}

const encoded = (name: string): string =>
  name === "" ? EMPTY : Buffer.from(name, "utf16le").toString("base64url");

/** What a name of `MAX_NAME` code units becomes. */
const MAX_ENCODED = Math.ceil((MAX_NAME * 2 * 4) / 3);
/** In bytes: the folder, the lease and the number of an entry. */
const MAX_BELOW = 64;

function decoded(text: string): string | undefined {
  if (text === EMPTY) return "";
  if (text.length > MAX_ENCODED) return undefined;
  const name = Buffer.from(text, "base64url").toString("utf16le");
  // Otherwise the key is not that of a web lock.
  return name !== "" && encoded(name) === text ? name : undefined;
}

/** A key in the queue of a web lock. */
export interface WebLockEntry {
  readonly kv: KeyValue;
  readonly mode: WebLockMode;
  /** A key further below, which no lock has put there: requests wait for it, but it is neither listed nor deleted. */
  readonly foreign: boolean;
}

export const webLockEntryIn = (path: string, kv: KeyValue): WebLockEntry =>
  webLockEntryOf(kv, pathBelow(path, kv));

/** The same with the lock's name; undefined if the key is not in the queue of a lock. */
export function namedEntryOf(
  prefix: string,
  kv: KeyValue,
): (WebLockEntry & { readonly name: string }) | undefined {
  const [text = "", ...path] = pathBelow(prefix, kv);
  const name = decoded(text);
  return name === undefined || path.length === 0 ? undefined : { ...webLockEntryOf(kv, path), name };
}

/** Another client's key can be as long as a request, and all slashes: its end tells nothing more. */
const MAX_PARTS = 4;

function pathBelow(name: string, { key }: KeyValue): string[] {
  const start = Buffer.byteLength(prefixOf(name));
  const end = start + MAX_ENCODED + MAX_BELOW;
  const path = key.toString("utf8", start, end).split("/", MAX_PARTS);
  // The name is too long for a key of a lock: as one that is further below.
  return key.length > end ? [...path, "", "", ""] : path;
}

/** The key of a mutex of the same name, which Go's client may have put there, counts as exclusive. */
function webLockEntryOf(kv: KeyValue, path: readonly string[]): WebLockEntry {
  const folder = path.length > 1 ? path[0] : undefined;
  const known = folder === "read" || folder === "write";
  return { kv, mode: folder === "read" ? "shared" : "exclusive", foreign: path.length > (known ? 2 : 1) };
}

/** Splits the entries of a queue, oldest first, into the holders (one exclusive, or all shared ones in front) and the waiters. */
export function heldAndPending<E extends Pick<WebLockEntry, "mode">>(
  entries: readonly E[],
): { readonly held: readonly E[]; readonly pending: readonly E[] } {
  const alone = entries.findIndex(({ mode }) => mode === "exclusive");
  const sharing = alone === -1 ? entries.length : alone;
  const holding = alone === 0 ? 1 : sharing;
  return { held: entries.slice(0, holding), pending: entries.slice(holding) };
}
