import { EtcdRefusedError } from "../../errors.js";
import { messageOf, type StreamFailure } from "../http2/failure.js";
import { TooManyPingsError, TurnedAwayError, UnansweredError, UnreachableError } from "../port-errors.js";
import { isUnreachable, readable } from "../refusals/failure-text.js";
import { certificateFailure } from "../refusals/refusals.js";

/** The error for a call that ended without a status; `inDoubt`: the peer may have executed it. */
export function streamFailure(failure: StreamFailure, host: string, inDoubt: boolean): Error {
  const { kind, message, cause } = failure;
  if (kind === "calm") return new TooManyPingsError(readable(message), { inDoubt });
  if (kind === "connecting" && isUnreachable(message))
    return new UnreachableError(readable(message), failure);
  if (kind === "turned away")
    return new TurnedAwayError(new EtcdRefusedError("tls", host, readable(message)));
  // The message may quote the peer.
  const isOwn = kind === "connecting" && cause instanceof Error;
  const refusal = isOwn ? certificateFailure(messageOf(cause), host) : undefined;
  return refusal ?? new UnansweredError(readable(message), { cause: failure, inDoubt });
}
