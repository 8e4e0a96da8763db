/**
 * `connecting`: there was no connection yet. `lost`: it broke, or did not answer a ping. `protocol`: the peer violated
 * the protocol. `calm`: the peer asks for fewer pings or calls (ENHANCE_YOUR_CALM). `reset`: the peer reset this one
 * stream. `retired`: this side closed the connection.
 */
export type FailureKind = "connecting" | "lost" | "protocol" | "calm" | "reset" | "retired";

/** Why a stream ended before its answer was complete. Whether the peer processed the request is a separate matter. */
export class StreamFailure extends Error {
  override readonly name = "StreamFailure";

  constructor(
    readonly kind: FailureKind,
    message: string,
    options?: ErrorOptions,
  ) {
    super(message, options);
  }
}
