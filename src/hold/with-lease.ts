import { EtcdRefusedError, SessionClosedError, SessionLostError } from "../errors.js";
import type { Lease } from "../session/lease.js";
import type { CheckedWait } from "../options/check.js";
import type { LeaseSource } from "../session/session-source.js";
import { withCallersStack } from "../async/callers-stack.js";
import type { Clock } from "../async/clock.js";

/** A call that needs a lease. */
export interface LeasedCall<T, R> {
  /** Called once more, with another lease, if the session of the first one had ended. */
  begin(lease: Lease, left: CheckedWait): Promise<T>;
  /** The call had an entry in a queue, which is lost with the session: the failure is reported to the caller. */
  readonly joined: boolean;
  /** The value for the caller. */
  result(value: T): R;
  /** The error for the caller. */
  failure(error: unknown): unknown;
}

/**
 * Runs `call` with a lease that accepts new calls, and with the rest of the time limit after its session was opened. The
 * session may have ended unnoticed, for example because its lease was revoked: unless the call had joined a queue by then,
 * it begins once more, with the next session of the cluster. A session of the caller's own only rejects it again. This is
 * the only suspended function of a waiting call, and it keeps few variables: a process may have thousands.
 */
export async function withLease<T, R>(
  source: LeaseSource,
  wait: CheckedWait,
  call: LeasedCall<T, R>,
): Promise<R> {
  const left = timeBudget(source.services.clock, wait.timeoutMs);
  let lease: Lease | undefined;
  for (let again = false; ; again = true) {
    let value: T;
    try {
      lease = await source.lease({ signal: wait.signal, timeoutMs: left() });
      lease.assertOpen();
      wait.signal?.throwIfAborted();
      value = await call.begin(lease, { signal: wait.signal, timeoutMs: left() });
    } catch (error) {
      if (again || !isOfSession(error, lease) || call.joined) throw withCallersStack(call.failure(error));
      continue;
    }
    return call.result(value);
  }
}

/** Whether another session could give the same call another result. */
export const isOfSession = (error: unknown, lease: Lease | undefined): boolean =>
  error instanceof SessionLostError ||
  error instanceof SessionClosedError ||
  (error instanceof EtcdRefusedError && lease?.unfit === true);

const NO_LIMIT = (): undefined => undefined;

/** The rest of a time limit that earlier steps may have used in part. */
export function timeBudget(clock: Clock, timeoutMs: number | undefined): () => number | undefined {
  if (timeoutMs === undefined) return NO_LIMIT;
  const start = clock.monotonic();
  return () => Math.max(1, Math.ceil(timeoutMs - (clock.monotonic() - start)));
}
