import { EtcdRefusedError, SessionClosedError, SessionLostError } from "../errors.js";
import type { Lease } from "../session/lease.js";
import type { CheckedWait } from "../options/check.js";
import type { LeaseSource } from "../session/session-source.js";
import { withCallersStack } from "../async/callers-stack.js";
import type { Clock } from "../async/clock.js";
import type { LockAbout } from "./events.js";
import { Repetition } from "./repetition.js";

/** A call that needs a lease. */
export interface LeasedCall<T, R> {
  readonly about: LockAbout;
  /** It joins again although it had an entry in a queue, and continues while etcd does not answer. */
  readonly rejoin: boolean;
  /** Called again, with another lease, if the session of the one before had ended. */
  begin(lease: Lease, left: CheckedWait): Promise<T>;
  /** The call had an entry in a queue, which is lost with the session. */
  readonly joined: boolean;
  /** The value for the caller. @throws the end of the session, if it has ended since the grant. */
  result(value: T): R;
  /** The error for the caller when the time limit ends before the call has begun again after `error`. */
  overdue(error: unknown): unknown;
}

/**
 * Runs `call` with a lease that accepts new calls, and with the rest of the time limit after its session was opened. The
 * session may have ended unnoticed, for example because its lease was revoked: unless the call had joined a queue by then,
 * it begins again, with the next session of the cluster. A call with `rejoin` begins again in any case. This is the only
 * suspended function of a waiting call, and it keeps few variables: a process may have thousands.
 */
export async function withLease<T, R>(
  source: LeaseSource,
  wait: CheckedWait,
  call: LeasedCall<T, R>,
): Promise<R> {
  const left = timeBudget(source.services.clock, wait.timeoutMs);
  let lease: Lease | undefined;
  let repetition: Repetition | undefined;
  for (;;) {
    try {
      lease = await source.lease({ signal: wait.signal, timeoutMs: left() });
      lease.assertOpen();
      wait.signal?.throwIfAborted();
      return call.result(await call.begin(lease, { signal: wait.signal, timeoutMs: left() }));
    } catch (error) {
      repetition ??= new Repetition(source, call);
      if (!repetition.mayFollow(error, lease)) throw withCallersStack(error);
      await repetition.pause(error, lease, { signal: wait.signal, timeoutMs: left() });
    }
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
