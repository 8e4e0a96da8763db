import { checkInteger, rangeError, typeError } from "./check.js";
import { checkLock, LOCK_OPTIONS, type CheckedLock } from "./lock.js";
import { checkQueueWait, QUEUE_WAIT_OPTIONS, type CheckedQueueWait } from "./queue-wait.js";

/** The checked options of `once`. */
export interface CheckedOnce {
  readonly wait: CheckedQueueWait;
  readonly lock: CheckedLock;
  readonly rerunsLost: boolean;
  readonly keep: number;
}

/** Some minutes of a job that runs each second, and some years of one that runs each day. */
const DEFAULT_KEEP = 1000;
/** Each release of etcd has room for so many small keys, and lists the oldest of them in a moment. */
const MAX_KEEP = 100_000;
const ONCE_OPTIONS = ["rerun", "keep"] as const;

/** Slots that are no integers could be equal as numbers and differ as texts. */
export function checkSlot(value: unknown): number {
  const limits = { min: 0, max: Number.MAX_SAFE_INTEGER, fallback: NaN };
  const slot = checkInteger("slot", value, limits);
  if (Number.isNaN(slot)) throw typeError("slot", `a whole number from 0 to ${limits.max}`, value);
  return slot;
}

export function checkOnce(options: unknown, source: { readonly reopens: boolean }): CheckedOnce {
  const wait = checkQueueWait(options, { where: "once", also: [...LOCK_OPTIONS, ...ONCE_OPTIONS], source });
  const lock = checkLock("once", options, [...QUEUE_WAIT_OPTIONS, ...ONCE_OPTIONS]);
  const { rerun, keep } = (options ?? {}) as { readonly rerun?: unknown; readonly keep?: unknown };
  return {
    wait,
    lock,
    rerunsLost: checkRerun(rerun) === "if lost",
    keep: checkInteger("keep", keep, { min: 1, max: MAX_KEEP, fallback: DEFAULT_KEEP }),
  };
}

function checkRerun(value: unknown): "never" | "if lost" {
  if (value === undefined || value === "never" || value === "if lost") return value ?? "never";
  const error = typeof value === "string" ? rangeError : typeError;
  throw error("rerun", '"never" or "if lost"', value);
}
