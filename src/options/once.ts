import { checkInteger, rangeError, typeError } from "./check.js";
import { checkLock, LOCK_OPTIONS, type CheckedLock } from "./lock.js";
import { eitherOf } from "./suggest.js";
import { checkQueueWait, QUEUE_WAIT_OPTIONS, type CheckedQueueWait } from "./queue-wait.js";

/** The checked options of `once`. */
export interface CheckedOnce {
  readonly wait: CheckedQueueWait;
  readonly lock: CheckedLock;
  readonly rerun: Rerun;
  readonly keep: number;
  /** The call does not wait while another holder has the lock. */
  readonly skips: boolean;
}

type Rerun = "never" | "if lost" | "if failed";

/** Some minutes of a job that runs each second, and some years of one that runs each day. */
const DEFAULT_KEEP = 1000;
/** Each release of etcd has room for so many small keys, and lists the oldest of them in a moment. */
const MAX_KEEP = 100_000;
/** Of a call that does not wait in the queue, as of `tryLock`. */
const SKIP_TIMEOUT_MS = 5000;
const ONCE_OPTIONS = ["rerun", "ifHeld", "keep"] as const;

/** Slots that are no integers could be equal as numbers and differ as texts. */
export function checkSlot(value: unknown): number {
  const limits = { min: 0, max: Number.MAX_SAFE_INTEGER, fallback: NaN };
  const slot = checkInteger("slot", value, limits);
  if (Number.isNaN(slot)) throw typeError("slot", `a whole number from 0 to ${limits.max}`, value);
  return slot;
}

export function checkOnce(options: unknown, source: { readonly reopens: boolean }): CheckedOnce {
  const limits = checkQueueWait(options, { where: "once", also: [...LOCK_OPTIONS, ...ONCE_OPTIONS], source });
  const lock = checkLock("once", options, [...QUEUE_WAIT_OPTIONS, ...ONCE_OPTIONS]);
  const { rerun, ifHeld, keep } = (options ?? {}) as {
    readonly [K in (typeof ONCE_OPTIONS)[number]]?: unknown;
  };
  const skips = checkChoice("ifHeld", ifHeld, IF_HELD) === "skip";
  return {
    wait: skips ? { ...limits, timeoutMs: limits.timeoutMs ?? SKIP_TIMEOUT_MS } : limits,
    lock,
    skips,
    rerun: checkChoice("rerun", rerun, RERUN),
    keep: checkInteger("keep", keep, { min: 1, max: MAX_KEEP, fallback: DEFAULT_KEEP }),
  };
}

/** The first one is the default. */
const RERUN: readonly [Rerun, ...Rerun[]] = ["never", "if lost", "if failed"];
const IF_HELD: readonly ["wait", "skip"] = ["wait", "skip"];

function checkChoice<T extends string>(option: string, value: unknown, choices: readonly [T, ...T[]]): T {
  if (value === undefined) return choices[0];
  const chosen = choices.find((choice) => choice === value);
  if (chosen !== undefined) return chosen;
  const error = typeof value === "string" ? rangeError : typeError;
  throw error(option, eitherOf(choices.map((choice) => JSON.stringify(choice))), value);
}
