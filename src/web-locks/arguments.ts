import { typeError } from "../options/check.js";

export type WebLockMode = "exclusive" | "shared";

/** The argument of the callback, which runs while the lock is held. */
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
  if (value === undefined || value instanceof AbortSignal) return value;
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

const notSupported = (why: string): DOMException =>
  new DOMException(`Lock request not supported: ${why}`, "NotSupportedError");

/** The error of a closed manager or cluster. */
export const closedError = (cause?: Error): DOMException =>
  new DOMException("The lock manager is closed", { name: "InvalidStateError", cause });
