import { withCallersStack } from "../async/callers-stack.js";
import { pause } from "../async/clock.js";
import { EtcdRefusedError, EtcdUnavailableError, SessionClosedError, SessionLostError } from "../errors.js";
import { Backoff } from "../etcd/backoff.js";
import type { CheckedWait } from "../options/check.js";
import type { Lease } from "../session/lease.js";
import type { LeaseSource } from "../session/session-source.js";
import { publishRejoin, type LockAbout } from "./events.js";

/** An attempt that lasted longer has waited in a queue: its session did not end at once, as the one before it may have. */
const LONG_ATTEMPT_MS = 5000;

/** The call, as far as its repetition depends on it. */
interface RepeatedCall {
  readonly about: LockAbout;
  readonly rejoin: boolean;
  readonly joined: boolean;
  overdue(error: unknown): unknown;
}

/** Of a call that may begin again with the next session, after a failure. Only a call that has failed has one. */
export class Repetition {
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
