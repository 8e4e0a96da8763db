import type { StreamFailure } from "../http2/failure.js";
import { TooManyPingsError, UnansweredError } from "../port-errors.js";
import { readable } from "../refusals/failure-text.js";
import { certificateFailure } from "../refusals/refusals.js";

/** The error for a call that ended without a status; `inDoubt`: the peer may have executed it. */
export function streamFailure(failure: StreamFailure, host: string, inDoubt: boolean): Error {
  const { kind, message } = failure;
  if (kind === "calm") return new TooManyPingsError(readable(message), { inDoubt });
  const refusal = kind === "connecting" ? certificateFailure(message, host) : undefined;
  return refusal ?? new UnansweredError(readable(message), { cause: failure, inDoubt });
}
