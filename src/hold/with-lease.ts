import { EtcdRefusedError, EtcdUnavailableError, SessionClosedError, SessionLostError } from "../errors.js";
import { Backoff } from "../etcd/retry.js";
import type { CheckedWait } from "../options/check.js";
import type { LeaseSource } from "../session/cluster.js";
import type { Lease } from "../session/lease.js";
import { type Clock, pause } from "../util/clock.js";
import { withCallersStack } from "../util/own-context.js";
import { type LockAbout, publishRejoin } from "./events.js";

/** An attempt that lasted longer has waited in a queue: its session did not end at once, as the one before it may have. */
const LONG_ATTEMPT_MS = 5000;

/** The call, as far as its repetition depends on it. */
interface RepeatedCall {
  readonly about: LockAbout;
  readonly rejoin: boolean;
  readonly joined: boolean;
  overdue(error: unknown): unknown;
}

/** Decides whether and when a failed call restarts on the next session. Created on the first failure. */
class Repetition {
  /** Failures in a row. */
  #failures = 0;
  #began = -Infinity;
  readonly #backoff: Backoff;

  constructor(
    private readonly source: LeaseSource,
    private readonly call: RepeatedCall,
  ) {
    this.#backoff = new Backoff(source.services.clock);
  }

  /** Whether the next session of the source may give the call another result. */
  mayFollow(error: unknown, lease: Lease | undefined): boolean {
    const { source, call } = this;
    if (!source.reopens) return false;
    if (error instanceof EtcdUnavailableError) return call.rejoin;
    if (call.joined && !call.rejoin) return false;
    if (error instanceof SessionLostError || error instanceof SessionClosedError) return true;
    // The lease may be the reason, but not of two in a row.
    return error instanceof EtcdRefusedError && lease?.unfit === true && !call.joined && this.#failures === 0;
  }

  /**
   * Resolves when the call may begin again: at once after the first end of a session, else after a pause; pauses grow up to 1 s.
   * @throws the reason of an aborted signal. @throws SessionClosedError when the cluster is closed.
   * @throws when the time limit ends first.
   */
  async pause(error: unknown, lease: Lease | undefined, left: CheckedWait): Promise<void> {
    const { clock, closed } = this.source.services;
    const { signal, timeoutMs = Infinity } = left;
    signal?.throwIfAborted();
    closed.throwIfAborted();
    const delayMs = this.#nextMs(error);
    if (delayMs < timeoutMs) this.#publish(error as Error, lease, delayMs);
    if (delayMs > 0) await pause(clock, Math.min(delayMs, timeoutMs), signal, closed);
    signal?.throwIfAborted();
    closed.throwIfAborted();
    if (delayMs >= timeoutMs) throw withCallersStack(this.call.overdue(error));
    this.#began = clock.monotonic();
  }

  #nextMs(error: unknown): number {
    const unanswered = error instanceof EtcdUnavailableError;
    const lastedMs = this.source.services.clock.monotonic() - this.#began;
    if (!unanswered && lastedMs > LONG_ATTEMPT_MS) {
      this.#failures = 0;
      this.#backoff.reset();
    }
    this.#failures++;
    return unanswered || this.#failures > 1 ? this.#backoff.nextMs() : 0;
  }

  #publish(error: Error, lease: Lease | undefined, delayMs: number): void {
    const { about, rejoin } = this.call;
    const failures = this.#failures;
    if (rejoin) publishRejoin(this.source.services, about, { lease, error, failures, delayMs });
  }
}

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
