import { acquireHold, tryAcquire } from "../hold/acquire.js";
import { HeldScope } from "../hold/reentrancy.js";
import type { HoldHandle, Hold } from "../hold/hold.js";
import type { LockMode } from "../queue/lock-mode.js";
import { checkFunction, checkName, checkPermits, checkWait, type CheckedWait } from "../options/check.js";
import { permit } from "../queue/permit-mode.js";
import type { WaitOptions } from "../session/session.js";
import { leaseSourceOf, type LeaseSource, type SessionSource } from "../session/session-source.js";

/**
 * At most `permits` holders at a time, in all processes that use the same name on the same etcd, served in order. Limits
 * concurrency, not rate. While users disagree, as during a deploy with another number, the number of the oldest place in
 * the queue rules; it never takes a permit back. Holds no connection and needs no closing.
 */
export class Semaphore {
  readonly name: string;
  readonly permits: number;
  readonly #source: LeaseSource;
  readonly #mode: LockMode;

  /**
   * @throws {TypeError | RangeError} when `source` is no Cluster or Session, `name` is not 1..1024 bytes of well-formed
   * Unicode without "/" at its ends and without "//", or `permits` is no whole number from 1 to 1000.
   */
  constructor(source: SessionSource, name: string, permits: number) {
    this.#source = leaseSourceOf(source);
    this.name = checkName(name);
    this.permits = checkPermits(permits);
    this.#mode = permit(this.permits);
  }

  /**
   * Waits for its turn and returns the hold, which has no fence: an older permit is as good as a newer one. Release it, or
   * use `await using`; prefer `withPermit`.
   * On abort: rejects at once with the signal's own reason; the place in the queue is removed in the background.
   * @throws {LockTimeoutError} after `timeoutMs`, with the oldest holder and the places ahead, holders included.
   * @throws {SessionLostError | SessionClosedError} when the session ends while waiting.
   * @throws {DeadlockError} inside a `withPermit` of the same name, or of a name under it: see there.
   * @throws {EtcdUnavailableError} when no session could be opened. @throws {EtcdRefusedError} when etcd said no.
   * @throws {TypeError | RangeError} on bad options.
   */
  acquire(options?: WaitOptions): Promise<Hold> {
    return this.#acquire(() => checkWait("acquire", options));
  }

  /**
   * The hold if a permit is free and nobody waits, else undefined: one read then, which writes nothing. Of several who see
   * the last free permit at once, the one whose place comes first gets it; the others leave again. `timeoutMs` (5000 when
   * not given) bounds the wait for etcd. On abort: rejects at once with the signal's own reason; a permit that was taken all
   * the same is given back in the background.
   * @throws {EtcdUnavailableError} when etcd did not answer in time. @throws {EtcdRefusedError} when etcd said no.
   * @throws {SessionLostError | SessionClosedError} when the session is over. @throws {TypeError | RangeError} on bad options.
   */
  async tryAcquire(options?: WaitOptions): Promise<Hold | undefined> {
    return tryAcquire(this.#source, this.name, checkWait("tryAcquire", options), { mode: this.#mode });
  }

  /**
   * Runs `work` while holding a permit, releases it, and returns what `work` returned. Stop when `hold.signal` aborts.
   * If `work` throws, that very error is thrown, whatever the release does.
   * Inside, another permit of the same name cannot be waited for: as many such works as there are permits would wait for
   * one another for ever.
   * @throws {LockLostError} when `work` ended well but the hold was lost before.
   * @throws {DeadlockError} inside a `withPermit` of the same name. Else as `acquire()`.
   */
  async withPermit<T>(work: (hold: Hold) => T, options?: WaitOptions): Promise<Awaited<T>> {
    checkFunction("work", work);
    const wait = checkWait("withPermit", options);
    return new HeldScope(this.#source.connection, await this.#acquire(() => wait)).enter(work);
  }

  #acquire(check: () => CheckedWait): Promise<HoldHandle> {
    return acquireHold(this.#source, this.name, check, { mode: this.#mode });
  }
}
