import { acquireHold, type HoldTarget, tryAcquire } from "./hold/acquire.js";
import { type Hold, HoldHandle } from "./hold/hold.js";
import { HeldScope } from "./hold/reentrancy.js";
import { checkFunction, checkName, checkPermits, checkWait } from "../base/options/check.js";
import { checkLockWait, checkStickyLock } from "../base/options/lock.js";
import { permit } from "./queue/lock-mode.js";
import { leaseSourceOf, type SessionSource } from "./session/cluster.js";
import type { LockWaitOptions, StickyLockOptions, WaitOptions } from "./session/session-options.js";

/**
 * At most `permits` holders at a time, in all processes that use the same name on the same etcd, served in order. Limits
 * concurrency, not rate. While processes use different numbers, as during a deploy, the number of the oldest entry in the
 * queue applies; no permit is ever taken back. A Semaphore holds no connection and needs no closing.
 */
export class Semaphore {
  readonly name: string;
  readonly permits: number;
  readonly #target: HoldTarget<HoldHandle>;

  /**
   * @throws {TypeError | RangeError} when `source` is not a Cluster or Session, `name` is not 1..1024 bytes of well-formed
   * Unicode without "/" at its ends and without "//", or `permits` is not an integer from 1 to 1000, and on invalid options.
   */
  // eslint-disable-next-line max-params -- public: the options come last, as everywhere
  constructor(source: SessionSource, name: string, permits: number, options?: StickyLockOptions) {
    const leases = leaseSourceOf(source);
    this.name = checkName(name);
    this.permits = checkPermits(permits);
    this.#target = {
      source: leases,
      name: this.name,
      kind: "permit",
      mode: permit(this.permits),
      options: checkStickyLock("Semaphore", options),
      handle: HoldHandle,
    };
  }

  /**
   * Waits for its turn and returns the hold. It has no fence: an older permit is as good as a newer one. Release it, or
   * use `await using`; prefer `withPermit`.
   *
   * On abort and throws: as `Mutex.lock`.
   * @throws {LockTimeoutError} after `timeoutMs`, with the oldest holder and the number of entries ahead, including holders.
   * @throws {DeadlockError} inside a `withPermit` of the same name, or of a name under it: see `withPermit`.
   */
  acquire(options?: LockWaitOptions): Promise<Hold> {
    const { source } = this.#target;
    return acquireHold(this.#target, () => checkLockWait(options, { where: "acquire", source }));
  }

  /**
   * Returns the hold if a permit is free and no caller waits, else undefined, after one read and no write. If several callers
   * see the last free permit at once, the caller whose entry comes first gets it; the others leave the queue. Otherwise as
   * `Mutex.tryLock`.
   * @throws {KindMismatchError} when the read shows an entry of another kind, or of a nested name: see docs/kinds.md.
   */
  async tryAcquire(options?: WaitOptions): Promise<Hold | undefined> {
    return tryAcquire(this.#target, checkWait("tryAcquire", options));
  }

  /**
   * Runs `work` while holding a permit, releases it, and returns what `work` returned. `work` should stop when
   * `hold.signal` aborts. If `work` throws, that very error is thrown, whatever the outcome of the release.
   * `work` cannot wait for another permit of the same name: as many such callbacks as there are permits would wait for one
   * another forever.
   *
   * On abort and throws: as `acquire`.
   * @throws {LockLostError} when `work` succeeded but the hold was lost before it ended.
   */
  async withPermit<T>(work: (hold: Hold) => T, options?: LockWaitOptions): Promise<Awaited<T>> {
    checkFunction("work", work);
    const { source } = this.#target;
    const wait = checkLockWait(options, { where: "withPermit", source });
    const hold = await acquireHold(this.#target, () => wait);
    return new HeldScope(source.services, hold).enter(work);
  }
}
