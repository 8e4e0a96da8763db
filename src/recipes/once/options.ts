import {
  checkInteger,
  checkOptions,
  eitherOf,
  isWellFormed,
  rangeError,
  typeError,
} from "../../base/options/check.js";
import {
  type CheckedLock,
  type CheckedQueueWait,
  checkLock,
  checkQueueWait,
  LOCK_OPTIONS,
  QUEUE_WAIT_OPTIONS,
} from "../../base/options/lock.js";
import { isBytes } from "../../base/util/realm.js";
import type { PlanOptions } from "./plan.js";
import { lockOf } from "./slots.js";

/** Some minutes of a job that runs each second, and some years of one that runs each day. */
const DEFAULT_KEEP = 1000;
/** Each release of etcd has room for so many small keys, and lists the oldest of them in a moment. */
const MAX_KEEP = 100_000;
/** Payment services keep the answers to their idempotency keys for a day. */
const DEFAULT_KEEP_MS = 86_400_000;
/** etcd counts leases in whole seconds. */
const MIN_KEEP_MS = 1000;
const MAX_KEEP_MS = 366 * 86_400_000;
/** The time limit of a call that does not wait in the queue, as of `tryLock`. */
const SKIP_TIMEOUT_MS = 5000;
const ONCE_OPTIONS = ["rerun", "ifHeld", "ifRunning", "keep", "result", "fingerprint"] as const;

const RERUN = ["never", "if_lost", "if_failed"] as const;
const IF_HELD = ["wait", "skip"] as const;
const IF_RUNNING = ["wait", "skip", "fail"] as const;

type Given = { readonly [K in (typeof ONCE_OPTIONS)[number]]?: unknown };

/** Slots that are no integers could be equal as numbers and differ as texts. */
export function checkSlot(value: unknown): number {
  const limits = { min: 0, max: Number.MAX_SAFE_INTEGER, fallback: NaN };
  const slot = checkInteger("slot", value, limits);
  if (Number.isNaN(slot)) throw typeError("slot", `a whole number from 0 to ${limits.max}`, value);
  return slot;
}

/** Its lock is a name, too: at most 1024 bytes, in which each character but the plain ones of a URL counts as three or more. */
export function checkText(name: string, slot: string): string {
  if (slot === "" || !isWellFormed(slot))
    throw rangeError("slot", "a well-formed string that is not empty", slot);
  const bytes = Buffer.byteLength(lockOf(name, slot));
  if (bytes > 1024) throw rangeError("slot", "at most 1024 bytes with its name, percent-encoded", bytes);
  return slot;
}

export interface CheckedOnce {
  readonly wait: CheckedQueueWait;
  readonly lock: CheckedLock;
  readonly plan: PlanOptions;
  /** So many slots. */
  readonly keep: number;
  readonly keepMs: number;
}

export function checkOnce(
  options: unknown,
  slot: number | string,
  source: { readonly reopens: boolean },
): CheckedOnce {
  const limits = checkQueueWait(options, { where: "once", also: [...LOCK_OPTIONS, ...ONCE_OPTIONS], source });
  const lock = checkLock("once", options, [...QUEUE_WAIT_OPTIONS, ...ONCE_OPTIONS]);
  const given = (options ?? {}) as Given;
  const skips = checkChoice("ifHeld", given.ifHeld, { choices: IF_HELD, fallback: "wait" }) === "skip";
  const rerun = checkChoice("rerun", given.rerun, { choices: RERUN, fallback: "never" });
  const ifRunning = checkChoice("ifRunning", given.ifRunning, { choices: IF_RUNNING, fallback: undefined });
  return {
    wait:
      skips && ifRunning !== "wait" ? { ...limits, timeoutMs: limits.timeoutMs ?? SKIP_TIMEOUT_MS } : limits,
    lock,
    ...checkKeep(given.keep, slot),
    plan: {
      ...{ skips, rerun, ifRunning: ifRunning ?? (rerun === "never" ? "skip" : "queue") },
      keepsResult: checkChoice("result", given.result, { choices: ["keep"], fallback: undefined }) === "keep",
      fingerprint: checkFingerprint(given.fingerprint),
    },
  };
}

export function checkChoice<T extends string, D extends T | undefined>(
  option: string,
  value: unknown,
  { choices, fallback }: { readonly choices: readonly T[]; readonly fallback: D },
): T | D {
  if (value === undefined) return fallback;
  const chosen = choices.find((choice) => choice === value);
  if (chosen !== undefined) return chosen;
  const error = typeof value === "string" ? rangeError : typeError;
  throw error(option, eitherOf(choices.map((choice) => JSON.stringify(choice))), value);
}

function checkKeep(keep: unknown, slot: number | string): Pick<CheckedOnce, "keep" | "keepMs"> {
  const isText = typeof slot === "string";
  const limits = { min: 1, max: MAX_KEEP, fallback: DEFAULT_KEEP };
  if (typeof keep !== "object" || keep === null) {
    if (isText && keep !== undefined) throw typeError("keep", "{ ms }, as the slot is a string", keep);
    return { keep: checkInteger("keep", keep, limits), keepMs: DEFAULT_KEEP_MS };
  }
  const { slots, ms } = checkOptions("keep", keep, ["slots", "ms"]);
  if (isText && slots !== undefined) throw typeError("keep", "{ ms }, as the slot is a string", keep);
  if (!isText && ms !== undefined) throw typeError("keep", "{ slots }, as the slot is a number", keep);
  const msLimits = { min: MIN_KEEP_MS, max: MAX_KEEP_MS, fallback: DEFAULT_KEEP_MS };
  return {
    keep: checkInteger("keep.slots", slots, limits),
    keepMs: checkInteger("keep.ms", ms, msLimits),
  };
}

/** Of any length: etcd gets its hash. */
function checkFingerprint(value: unknown): string | undefined {
  if (value === undefined) return undefined;
  if (typeof value !== "string" && !isBytes(value))
    throw typeError("fingerprint", "a string or a Uint8Array", value);
  const { createHash } = process.getBuiltinModule("node:crypto");
  return createHash("sha256").update(value).digest("base64url");
}
