// Checks of what users pass in. The functions return checked values (`CheckedWait`, `CheckedSession`, `CheckedConnect`); the
// rest of the code sees no others.
// - Misuse is a TypeError or a RangeError that names the option, the rule and the value. An unknown option is rejected with
//   the known names that are near to it, and with all of them.
// - No error shows a password, a private key or a certificate: `secretTypeError` gives the kind of the value only.
import { MAX_PERMITS } from "../../keys.js";
import { isLockValue } from "../../kinds.js";
import { printable } from "../util/printable.js";
import { isAbortSignal } from "../util/realm.js";

/** The unit that a name ends with: `timeout` and `timeoutSec` are near `timeoutMs`. */
const UNIT = /(?:ms|millis|milliseconds|s|secs?|seconds?)$/;
const MAX_EDITS = 2;

const normal = (name: string): string => name.toLowerCase().replaceAll(/[_-]/g, "");
const stem = (name: string): string => normal(name).replace(UNIT, "");

/** The known names that a user may have meant by `option`: none if none is near. */
export function suggestions(option: string, known: readonly string[]): readonly string[] {
  const ranked = known.map((name) => ({ name, rank: rankOf(option, name) }));
  const best = Math.min(...ranked.map(({ rank }) => rank));
  return best === Infinity ? [] : ranked.filter(({ rank }) => rank === best).map(({ name }) => name);
}

/** What an error adds. */
export const didYouMean = (near: readonly string[]): string =>
  near.length === 0 ? "" : `: did you mean ${eitherOf(near)}?`;

/** 0: the same name but for case, dashes and unit; from 1 on: single edits; then: one is a part of the other. */
function rankOf(option: string, name: string): number {
  if (normal(option) === normal(name) || (stem(option) !== "" && stem(option) === stem(name))) return 0;
  const edits = Math.min(distance(normal(option), normal(name)), distance(stem(option), stem(name)));
  // Two edits make any short name of any other.
  if (edits <= Math.min(MAX_EDITS, Math.floor(stem(option).length / 3))) return edits;
  const [short, long] = stem(option).length < stem(name).length ? [option, name] : [name, option];
  if (stem(short).length < 3) return Infinity;
  if (normal(long).startsWith(stem(short))) return MAX_EDITS + 1;
  return normal(long).includes(stem(short)) ? MAX_EDITS + 2 : Infinity;
}

/** Single-character edits and swaps of neighbors between two names (optimal string alignment). */
function distance(a: string, b: string): number {
  let [before, row] = [[] as readonly number[], Array.from({ length: b.length + 1 }, (_, j) => j)];
  for (let i = 1; i <= a.length; i++) {
    const next = [i];
    for (let j = 1; j <= b.length; j++) {
      const replaced = (row[j - 1] ?? 0) + (a[i - 1] === b[j - 1] ? 0 : 1);
      const swapped = a[i - 1] === b[j - 2] && a[i - 2] === b[j - 1] ? (before[j - 2] ?? 0) + 1 : Infinity;
      next.push(Math.min((row[j] ?? 0) + 1, (next[j - 1] ?? 0) + 1, replaced, swapped));
    }
    [before, row] = [row, next];
  }
  return row[b.length] ?? 0;
}

/** `a`, `a or b`, `a, b or c`. */
export function eitherOf(names: readonly string[]): string {
  return names.length < 2 ? names.join("") : `${names.slice(0, -1).join(", ")} or ${names.at(-1)}`;
}

/** Checks of what users pass in. Each message names the option, the rule and the value that violates it. */

/** Larger delays overflow Node's timer, which then fires immediately. */
export const MAX_TIMER_MS = 2_147_483_647;

export type Options = Readonly<Record<string, unknown>>;

function show(value: unknown): string {
  // JSON leaves some control characters and those that reorder a text as they are.
  if (typeof value === "string") return printable(JSON.stringify(shorten(value)), Infinity);
  if (typeof value === "bigint") return `${value}n`;
  if (typeof value === "number" || typeof value === "boolean") return String(value);
  return kindOf(value);
}

/** Also hides a password: a URL may contain one. */
function shorten(text: string): string {
  const open = text.replace(/^([^/]*:\/\/)?.*@/s, "$1…@");
  return open.length > 60 ? `${open.slice(0, 60)}…` : open;
}

function classOf(value: object): string {
  // Parsed JSON can set `constructor` to any value.
  const name: unknown = (value.constructor as { readonly name?: unknown } | undefined)?.name;
  return typeof name === "string" && name !== "" ? printable(shorten(name), Infinity) : "of no class";
}

function kindOf(value: unknown): string {
  if (value === undefined || value === null) return String(value);
  if (Array.isArray(value)) return "an array";
  if (typeof value === "object") return `an object (${classOf(value)})`;
  return `a ${typeof value}`;
}

export function typeError(option: string, rule: string, value: unknown): TypeError {
  return new TypeError(`Expected ${option} to be ${rule}, got ${show(value)}`);
}

/** Like `typeError`, for values that may be a secret or part of one: the message gives only the kind of the value. */
export function secretTypeError(option: string, rule: string, value: unknown): TypeError {
  return new TypeError(`Expected ${option} to be ${rule}, got ${kindOf(value)}`);
}

export function rangeError(option: string, rule: string, value: unknown): RangeError {
  return new RangeError(`Expected ${option} to be ${rule}, got ${show(value)}`);
}

/** Accepts known option names only: a call with a misspelled `timeout` would wait forever. */
export function checkOptions(where: string, options: unknown, known: readonly string[]): Options {
  if (options === undefined) return {};
  if (typeof options !== "object" || options === null || Array.isArray(options)) {
    throw typeError(`the options of ${where}`, "an object", options);
  }
  for (const option of Object.keys(options)) {
    if (known.includes(option)) continue;
    if (known.includes("session") && (SESSION_OPTIONS as readonly string[]).includes(option))
      throw new TypeError(
        `Unknown option ${option} of ${where}: it belongs inside session, { session: { ${option} } }`,
      );
    const hint = didYouMean(suggestions(option, known));
    const list = known.length === 0 ? ": it takes none" : ` (known: ${known.join(", ")})`;
    throw new TypeError(`Unknown option ${printable(option)} of ${where}${hint}${list}`);
  }
  return options as Options;
}

/** For options that may contain a secret. */
export function checkPlainObject(option: string, value: unknown): Options {
  if (typeof value !== "object" || value === null || Array.isArray(value))
    throw secretTypeError(option, "an object", value);
  return value as Options;
}

/** A whole number within the range, or `fallback` if the option is not set. */
export function checkInteger(
  option: string,
  value: unknown,
  { min, max, fallback }: { readonly min: number; readonly max: number; readonly fallback: number },
): number {
  return value === undefined ? fallback : checkWhole(option, value, { min, max });
}

function checkWhole(
  option: string,
  value: unknown,
  { min, max }: { readonly min: number; readonly max: number },
): number {
  const rule = `a whole number from ${min} to ${max}`;
  if (typeof value !== "number") throw typeError(option, rule, value);
  if (!Number.isInteger(value) || value < min || value > max) throw rangeError(option, rule, value);
  return value;
}

function checkNumber(option: string, value: unknown, min: number): number {
  const rule = `a number of milliseconds from ${min} to ${MAX_TIMER_MS}`;
  if (typeof value !== "number") throw typeError(option, rule, value);
  if (!(value >= min && value <= MAX_TIMER_MS)) throw rangeError(option, rule, value);
  return value;
}

export function checkSignal(value: unknown): AbortSignal | undefined {
  if (value === undefined || isAbortSignal(value)) return value;
  throw typeError("signal", "an AbortSignal", value);
}

export interface CheckedWait {
  readonly signal: AbortSignal | undefined;
  readonly timeoutMs: number | undefined;
}

export const WAIT_OPTIONS = ["signal", "timeoutMs"] as const;

const NO_LIMITS: CheckedWait = { signal: undefined, timeoutMs: undefined };

/** Checks `signal` and `timeoutMs`, which every waiting call takes; `also` lists the other options of this call. */
export function checkWait(where: string, options: unknown, also: readonly string[] = []): CheckedWait {
  const given = checkOptions(where, options, [...WAIT_OPTIONS, ...also]);
  if (given.signal === undefined && given.timeoutMs === undefined) return NO_LIMITS;
  return {
    signal: checkSignal(given.signal),
    // Larger delays overflow Node's timer, which then fires immediately.
    timeoutMs: given.timeoutMs === undefined ? undefined : checkNumber("timeoutMs", given.timeoutMs, 1),
  };
}

export function checkBoolean(option: string, value: unknown): boolean {
  if (value === undefined) return false;
  if (typeof value !== "boolean") throw typeError(option, "true or false", value);
  return value;
}

export function checkFunction(option: string, value: unknown): void {
  if (typeof value !== "function") throw typeError(option, "a function", value);
}

export const checkPermits = (value: unknown): number =>
  checkWhole("permits", value, { min: 1, max: MAX_PERMITS });

/** A heavier call would never hold. */
export const checkWeight = (value: unknown, permits: number): number =>
  checkWhole("weight", value, { min: 1, max: permits });

/** The `drainMs` of `close()`. */
export function checkDrain(where: string, options: unknown): number {
  const { drainMs } = checkOptions(where, options, ["drainMs"]);
  return drainMs === undefined ? 5000 : checkNumber("drainMs", drainMs, 0);
}

export function checkAtLeast(value: unknown): number {
  if (typeof value !== "number") throw typeError("atLeastMs", "a number of milliseconds, 0 or more", value);
  if (!(value >= 0)) throw rangeError("atLeastMs", "a number of milliseconds, 0 or more", value);
  return value;
}

/** A queue's name. The queue's keys are `name/...`, so these rules give each name one range of keys. */
export function checkName(value: unknown, option = "name"): string {
  if (typeof value !== "string") throw typeError(option, "a string", value);
  const rule = "1 to 1024 bytes of well-formed Unicode";
  const bytes = Buffer.byteLength(value);
  // A lone surrogate would be encoded as U+FFFD, so that two different names would share one key.
  if (bytes < 1 || bytes > 1024 || !isWellFormed(value)) throw rangeError(option, rule, value);
  if (value.startsWith("/") || value.endsWith("/") || value.includes("//")) {
    throw rangeError(option, 'free of "/" at its ends and of "//"', value);
  }
  return value;
}

/** A prefix of names: the start of one or more of them, or empty. */
export function checkPrefix(value: unknown): string {
  if (typeof value !== "string") throw typeError("prefix", "a string", value);
  const isNone = Buffer.byteLength(value) > 1024 || !isWellFormed(value);
  if (isNone) throw rangeError("prefix", "at most 1024 bytes of well-formed Unicode", value);
  return value;
}

/** Names in one transaction: etcd's limit on operations allows this many besides the other transactions of a request. */
const MAX_NAMES = 30;

/** The `names` of `lockAll`. */
export function checkNames(value: unknown): readonly string[] {
  const rule = `an array of 1 to ${MAX_NAMES} names`;
  if (!Array.isArray(value)) throw typeError("names", rule, value);
  if (value.length < 1 || value.length > MAX_NAMES) throw rangeError("names", rule, value.length);
  const names = Array.from(value as readonly unknown[], (name) => checkName(name));
  const sorted = [...names].sort();
  names.forEach((name, n) => {
    if (names.indexOf(name) !== n) throw rangeError("names", "free of duplicates", name);
    const inside = sorted.find((other) => other.startsWith(`${name}/`));
    if (inside !== undefined)
      throw new RangeError(`Expected names that are not nested, got ${show(inside)} below ${show(name)}`);
  });
  return names;
}

export function isWellFormed(text: string): boolean {
  return !/[\uD800-\uDBFF](?![\uDC00-\uDFFF])|(?<![\uD800-\uDBFF])[\uDC00-\uDFFF]/.test(text);
}

/** A candidate's value. Every observer of an election reads the values of all its candidates. */
export function checkValue(option: string, value: unknown): string {
  const rule = "a well-formed string of at most 65536 bytes";
  if (typeof value !== "string") throw typeError(option, rule, value);
  if (Buffer.byteLength(value) > 65_536 || !isWellFormed(value)) throw rangeError(option, rule, value);
  if (isLockValue(value)) throw rangeError(option, "other than the value of a lock's entry", value);
  return value;
}

export interface CheckedSession {
  readonly ttlSeconds: number;
  /** `undefined` means "host:pid". */
  readonly owner: string | undefined;
  /** 0: none. */
  readonly releaseDelayMs: number;
}

export const SESSION_OPTIONS = ["ttlSeconds", "owner", "releaseDelayMs"] as const;
const MAX_RELEASE_DELAY_MS = 3_600_000;

/** A text in the value of a key, which every client that looks at the queue reads. */
export function checkShown(option: "owner" | "reason" | "id" | "zone", value: unknown): string | undefined {
  if (value === undefined) return undefined;
  if (typeof value !== "string") throw typeError(option, "a string of at most 256 bytes", value);
  if (Buffer.byteLength(value) > 256 || !isWellFormed(value))
    throw rangeError(option, "a well-formed string of at most 256 bytes", value);
  return value;
}

export const checkOwner = (value: unknown): string | undefined => checkShown("owner", value);

const SESSION_DEFAULTS: CheckedSession = { ttlSeconds: 15, owner: undefined, releaseDelayMs: 0 };

/** @param more `also`: the other options of the call; `defaults`: what stands for an option that is not given */
export function checkSession(
  where: string,
  options: unknown,
  { also = [], defaults = SESSION_DEFAULTS }: { also?: readonly string[]; defaults?: CheckedSession } = {},
): CheckedSession {
  const given = checkOptions(where, options, [...SESSION_OPTIONS, ...also]);
  const ttl = { min: 2, max: 86_400, fallback: defaults.ttlSeconds };
  const delay = { min: 0, max: MAX_RELEASE_DELAY_MS, fallback: defaults.releaseDelayMs };
  return {
    ttlSeconds: checkInteger("ttlSeconds", given.ttlSeconds, ttl),
    owner: checkOwner(given.owner) ?? defaults.owner,
    releaseDelayMs: checkInteger("releaseDelayMs", given.releaseDelayMs, delay),
  };
}
