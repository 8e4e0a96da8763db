import {
  checkBoolean,
  checkInteger,
  type CheckedWait,
  checkOptions,
  checkShown,
  checkWait,
  MAX_TIMER_MS,
  type Options,
  rangeError,
  typeError,
  WAIT_OPTIONS,
} from "./check.js";
import { MAX_PRIORITY } from "../../keys.js";

/** The checked options of a lock, which apply to all of its holds. */
export interface CheckedLock {
  readonly label: string | undefined;
  readonly maxHoldMs: number | undefined;
  /** Given exactly if `maxHoldMs` is. */
  readonly maxHoldGraceMs: number | undefined;
  readonly warnHoldMs: number | undefined;
  /** Its key may stay after a release. */
  readonly sticky?: boolean;
  readonly local?: CheckedLocal | undefined;
  /** Its calls have priorities. */
  readonly priorities?: { readonly agingMs: number } | undefined;
}

/** How long a key that somebody waits for is passed on in one process. */
export interface CheckedLocal {
  readonly turns: number;
  readonly ms: number;
}

export const LOCK_OPTIONS = ["label", "maxHoldMs", "maxHoldGraceMs", "warnHoldMs"] as const;

/** Work that listens to the signal stops within a moment. As a part of the limit, it also suits short limits. */
const GRACE_PART = 0.1;
const MAX_DEFAULT_GRACE_MS = 1000;

export const NO_LOCK_OPTIONS: CheckedLock = {
  label: undefined,
  maxHoldMs: undefined,
  maxHoldGraceMs: undefined,
  warnHoldMs: undefined,
};

const STICKY_OPTIONS = ["sticky", "local"] as const;
const MAX_LOCAL_TURNS = 1_000_000;
const DEFAULT_LOCAL_MS = 100;

/** The options of a lock whose key may stay with its session. `also` lists the other options of `where`. */
export function checkStickyLock(where: string, options: unknown, also: readonly string[] = []): CheckedLock {
  const checked = checkLock(where, options, [...STICKY_OPTIONS, ...also]);
  const given = (options ?? {}) as Options;
  const sticky = checkBoolean("sticky", given.sticky);
  if (given.local !== undefined && !sticky)
    throw new TypeError(`Option local of ${where} needs sticky: true`);
  return sticky ? { ...checked, sticky, local: checkLocal(given.local) } : checked;
}

const DEFAULT_AGING_MS = 30_000;

/** The options of a Mutex. A key that stays with its session would overtake whoever waits. */
export function checkMutex(options: unknown): CheckedLock {
  const lock = checkStickyLock("Mutex", options, ["priorities"]);
  const priorities = checkPriorities((options as Options | undefined)?.priorities);
  if (priorities && lock.sticky)
    throw new TypeError("Options priorities and sticky of Mutex exclude each other");
  return priorities ? { ...lock, priorities } : lock;
}

function checkPriorities(value: unknown): { readonly agingMs: number } | undefined {
  if (value === undefined || value === false) return undefined;
  if (typeof value !== "boolean" && (typeof value !== "object" || value === null))
    throw typeError("priorities", "true, false or an object", value);
  const { agingMs } = value === true ? {} : checkOptions("priorities", value, ["agingMs"]);
  return { agingMs: checkHoldMs("priorities.agingMs", agingMs) ?? DEFAULT_AGING_MS };
}

/** The options of a semaphore. A key that stays with its session has one weight, and the next call may want another one. */
export function checkSemaphore(options: unknown): {
  readonly isWeighted: boolean;
  readonly lock: CheckedLock;
} {
  const lock = checkStickyLock("Semaphore", options, ["weighted"]);
  const isWeighted = checkBoolean("weighted", (options as Options | undefined)?.weighted);
  if (isWeighted && lock.sticky)
    throw new TypeError("Options weighted and sticky of Semaphore exclude each other");
  return { isWeighted, lock };
}

function checkLocal(value: unknown): CheckedLocal | undefined {
  if (value === undefined) return undefined;
  const { turns, ms } = checkOptions("local", value, ["turns", "ms"]);
  if (turns === undefined) throw typeError("local.turns", "a whole number", turns);
  return {
    turns: checkInteger("local.turns", turns, { min: 1, max: MAX_LOCAL_TURNS, fallback: 1 }),
    ms: checkHoldMs("local.ms", ms) ?? DEFAULT_LOCAL_MS,
  };
}

/** `also` lists the other options of `where`. */
export function checkLock(where: string, options: unknown, also: readonly string[] = []): CheckedLock {
  const given = checkOptions(where, options, [...LOCK_OPTIONS, ...also]);
  if (LOCK_OPTIONS.every((option) => given[option] === undefined)) return NO_LOCK_OPTIONS;
  const maxHoldMs = checkHoldMs("maxHoldMs", given.maxHoldMs);
  return {
    label: checkLabel(given.label),
    maxHoldMs,
    maxHoldGraceMs: checkGraceMs(given.maxHoldGraceMs, maxHoldMs),
    warnHoldMs: checkHoldMs("warnHoldMs", given.warnHoldMs),
  };
}

/** Metrics keep one time series for each label, and monitoring systems limit its length. */
function checkLabel(value: unknown): string | undefined {
  if (value === undefined) return undefined;
  const rule = "a string of 1 to 100 printable ASCII characters";
  if (typeof value !== "string") throw typeError("label", rule, value);
  if (!/^[\x20-\x7e]{1,100}$/.test(value)) throw rangeError("label", rule, value);
  return value;
}

/** Without a maximum, a grace has no effect: its user expects one that does not exist. */
function checkGraceMs(value: unknown, maxHoldMs: number | undefined): number | undefined {
  const graceMs = checkHoldMs("maxHoldGraceMs", value, 0);
  if (maxHoldMs !== undefined) return graceMs ?? Math.min(GRACE_PART * maxHoldMs, MAX_DEFAULT_GRACE_MS);
  if (graceMs !== undefined) throw new TypeError("Option maxHoldGraceMs needs maxHoldMs");
  return undefined;
}

function checkHoldMs(option: string, value: unknown, least = 1): number | undefined {
  if (value === undefined) return undefined;
  const rule = `a number of milliseconds from ${least} to ${MAX_TIMER_MS}`;
  if (typeof value !== "number") throw typeError(option, rule, value);
  if (!(value >= least && value <= MAX_TIMER_MS)) throw rangeError(option, rule, value);
  return value;
}

/** The checked limits of a call that waits in a queue. */
export interface CheckedQueueWait extends CheckedWait {
  readonly rejoin: boolean;
}

export const QUEUE_WAIT_OPTIONS = [...WAIT_OPTIONS, "rejoin"] as const;

const NO_LIMITS: CheckedQueueWait = { signal: undefined, timeoutMs: undefined, rejoin: false };

/** The checked options of a call that waits for a lock. */
export interface CheckedLockWait extends CheckedQueueWait {
  readonly reason?: string;
  readonly maxWaiting?: number;
  readonly supersede?: boolean;
  readonly priority?: number;
}

const PRIORITIES = { min: -MAX_PRIORITY, max: MAX_PRIORITY };

/** What a read of the whole queue may return. */
const MAX_WAITING = 1000;

export const LOCK_WAIT_OPTIONS = [...QUEUE_WAIT_OPTIONS, "reason"] as const;

interface QueueWaitCall {
  /** The call, in words of its user. */
  readonly where: string;
  /** The other options of the call. */
  readonly also?: readonly string[];
  readonly source: { readonly reopens: boolean };
}

/** Checks `signal`, `timeoutMs` and `rejoin`, which every call that waits in a queue takes. */
export function checkQueueWait(
  options: unknown,
  { where, also = [], source }: QueueWaitCall,
): CheckedQueueWait {
  if (options === undefined) return NO_LIMITS;
  const { signal, timeoutMs } = checkWait(where, options, ["rejoin", ...also]);
  const rejoin = checkBoolean("rejoin", (options as Options | undefined)?.rejoin);
  if (rejoin && !source.reopens)
    throw new TypeError(
      `Option rejoin of ${where} needs a Cluster: a Session has no next session to join with`,
    );
  if (signal === undefined && timeoutMs === undefined && !rejoin) return NO_LIMITS;
  return { signal, timeoutMs, rejoin };
}

/** Checks `reason` and `maxWaiting`, too, which every call takes that waits for one lock. */
export function checkLockWait(options: unknown, { also = [], ...call }: QueueWaitCall): CheckedLockWait {
  if (options === undefined) return NO_LIMITS;
  const wait = checkReasonedWait(options, { ...call, also: ["maxWaiting", ...also] });
  const { maxWaiting } = options as Options;
  if (maxWaiting === undefined) return wait;
  return {
    ...wait,
    maxWaiting: checkInteger("maxWaiting", maxWaiting, { min: 1, max: MAX_WAITING, fallback: 1 }),
  };
}

/** Checks `supersede` and `priority`, too, which only calls of a Mutex take. */
export function checkMutexWait(
  options: unknown,
  { also = [], where, source }: QueueWaitCall,
  { sticky, priorities }: CheckedLock,
): CheckedLockWait {
  const wait = checkLockWait(options, { where, source, also: ["supersede", "priority", ...also] });
  const { priority, supersede } = (options ?? {}) as Options;
  const isNewest = checkBoolean("supersede", supersede);
  if (priorities && (isNewest || wait.maxWaiting !== undefined))
    throw new TypeError(
      `Option ${isNewest ? "supersede" : "maxWaiting"} of ${where} excludes a Mutex with priorities`,
    );
  if (priority !== undefined && !priorities)
    throw new TypeError(`Option priority of ${where} needs a Mutex with priorities: true`);
  if (priority !== undefined)
    return { ...wait, priority: checkInteger("priority", priority, { ...PRIORITIES, fallback: 0 }) };
  if (!isNewest) return wait;
  for (const [other, given] of [
    ["maxWaiting", wait.maxWaiting !== undefined],
    ["sticky: true", sticky],
  ] as const)
    if (given) throw new TypeError(`Option supersede of ${where} excludes ${other}`);
  return { ...wait, supersede: true };
}

/** Without `maxWaiting`: `lockAll` puts its entries into several queues. */
export function checkReasonedWait(options: unknown, { also = [], ...call }: QueueWaitCall): CheckedLockWait {
  const wait = checkQueueWait(options, { ...call, also: ["reason", ...also] });
  const reason = checkShown("reason", (options as Options | undefined)?.reason);
  return reason === undefined ? wait : { ...wait, reason };
}
