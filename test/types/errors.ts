// Compiled against the packed declarations, by every TypeScript that leasehold supports.
/* eslint-disable @typescript-eslint/no-unsafe-return, @typescript-eslint/no-unnecessary-type-assertion -- wrong on purpose */
import {
  isLeaseholdError,
  LeaseholdError,
  LockTimeoutError,
  type AnyLeaseholdError,
  type EtcdRefusedError,
  type LeaseholdErrorCode,
  type LockLostError,
} from "leasehold";

export function narrowing(error: unknown): string | number | undefined {
  if (isLeaseholdError(error, "LOCK_TIMEOUT")) {
    const name: "LockTimeoutError" = error.name;
    return error.holder?.owner ?? error.ahead ?? name;
  }
  if (isLeaseholdError(error)) {
    const any: AnyLeaseholdError = error;
    if (any.code === "LOCK_LOST") return any.loss;
    // @ts-expect-error -- not every error of leasehold has it
    return any.timeoutMs;
  }
  // @ts-expect-error -- still unknown
  return error.message;
}

export const twoCodes = (error: unknown): EtcdRefusedError | LockLostError | undefined =>
  isLeaseholdError(error, "ETCD_REFUSED" as "ETCD_REFUSED" | "LOCK_LOST") ? error : undefined;

// @ts-expect-error -- no such code
isLeaseholdError(undefined, "LOCK_TIMEUOT");

export const code: LeaseholdErrorCode = new LockTimeoutError("jobs", 100, undefined, undefined).code;

// @ts-expect-error -- an abstract class
new LeaseholdError("message");
