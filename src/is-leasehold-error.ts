import { isBranded } from "./base-error.js";
import type { AnyLeaseholdError, LeaseholdErrorCode } from "./errors.js";
import { rangeError } from "./options/check.js";

const CODES: Readonly<Record<LeaseholdErrorCode, true>> = {
  SESSION_LOST: true,
  SESSION_CLOSED: true,
  LOCK_LOST: true,
  LOCK_RELEASED: true,
  LOCK_TIMEOUT: true,
  LOCK_EXPIRING: true,
  STALE_FENCE: true,
  DEADLOCK: true,
  KIND_MISMATCH: true,
  ETCD_UNAVAILABLE: true,
  ETCD_REFUSED: true,
};

/**
 * Whether leasehold created `error`, and, with `code`, whether it has that code: `isLeaseholdError(e, "LOCK_TIMEOUT")` narrows
 * `e` to LockTimeoutError. Unlike `instanceof`, it also recognizes errors of another copy of leasehold in this process, such as
 * another version or a bundled one. It is false for what JSON or a structured clone has made of an error.
 * @throws {RangeError} when leasehold has no such `code`.
 */
export function isLeaseholdError<C extends LeaseholdErrorCode = LeaseholdErrorCode>(
  error: unknown,
  code?: C,
): error is Extract<AnyLeaseholdError, { readonly code: C }> {
  if (code !== undefined && !Object.hasOwn(CODES, code))
    throw rangeError("code", `one of ${Object.keys(CODES).join(", ")}`, code);
  return isBranded(error) && (code === undefined || error.code === code);
}
