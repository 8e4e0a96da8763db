import { EtcdRefusedError, SessionClosedError, SessionLostError } from "./errors.js";
import type { Lease } from "./lease.js";
import type { CheckedWait } from "./options.js";
import type { LeaseSource } from "./source.js";
import type { Clock } from "./time.js";

/** What a call does with a lease. */
export interface Attempt<T> {
  readonly settled: Promise<T>;
  /** It had a place in a queue, which is lost with the session: the caller hears of that. */
  joined(): boolean;
}

/**
 * Runs `begin` with a lease that takes new calls, and with what opening its session has left of the time limit. The
 * session may have ended unnoticed, as when its lease was revoked: unless the call had joined a queue by then, it is
 * begun once more, with the next session of a cluster. A session of the caller's own only says again that it has ended.
 */
export async function withLease<T>(
  source: LeaseSource,
  wait: CheckedWait,
  begin: (lease: Lease, left: CheckedWait) => Attempt<T>,
): Promise<T> {
  const left = timeLeft(source.connection.clock, wait.timeoutMs);
  const limits = (): CheckedWait => ({ signal: wait.signal, timeoutMs: left() });
  let attempt: Attempt<T> | undefined;
  let used: Lease | undefined;
  const run = async (lease: Lease): Promise<T> => {
    used = lease;
    lease.assertOpen();
    wait.signal?.throwIfAborted();
    attempt = begin(lease, limits());
    return attempt.settled;
  };
  try {
    return await run(await source.lease(wait));
  } catch (error) {
    if (!isOfSession(error, used) || attempt?.joined()) throw error;
  }
  return run(await source.lease(limits()));
}

/** Would the same call with another session be answered otherwise? */
export const isOfSession = (error: unknown, lease: Lease | undefined): boolean =>
  error instanceof SessionLostError ||
  error instanceof SessionClosedError ||
  (error instanceof EtcdRefusedError && lease?.unfit === true);

/** What is left of a time limit that earlier steps may have used up in part. */
export function timeLeft(clock: Clock, timeoutMs: number | undefined): () => number | undefined {
  const start = clock.monotonic();
  return () => timeoutMs && Math.max(1, Math.ceil(timeoutMs - (clock.monotonic() - start)));
}
