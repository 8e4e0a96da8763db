import type { StreamFailure } from "../http2/failure.js";
import { TooManyPingsError, UnansweredError, UnreachableError } from "../port-errors.js";
import { isUnreachable, readable } from "../refusals/failure-text.js";
import { certificateFailure } from "../refusals/refusals.js";

/** The error for a call that ended without a status; `inDoubt`: the peer may have executed it. */
export function streamFailure(failure: StreamFailure, host: string, inDoubt: boolean): Error {
  const { kind, message } = failure;
  if (kind === "calm") return new TooManyPingsError(readable(message), { inDoubt });
  if (kind === "connecting" && isUnreachable(message))
    return new UnreachableError(readable(message), failure);
  const refusal = kind === "connecting" ? certificateFailure(message, host) : undefined;
  return refusal ?? new UnansweredError(readable(message), { cause: failure, inDoubt });
}
