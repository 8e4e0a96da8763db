import { acquireHold, type HoldTarget, tryAcquire } from "./hold/acquire.js";
import { type Hold, HoldHandle } from "./hold/hold.js";
import { HeldScope } from "./hold/reentrancy.js";
import { checkFunction, checkName, checkPermits, checkWait, checkWeight } from "../base/options/check.js";
import { checkLockWait, checkSemaphore } from "../base/options/lock.js";
import { permit, weighted } from "./queue/permit-mode.js";
import { leaseSourceOf, type SessionSource } from "./session/cluster.js";
import type { LockWaitOptions, StickyLockOptions, WaitOptions } from "./session/session-options.js";

export interface SemaphoreOptions extends StickyLockOptions {
  /**
   * Each call may take several permits at once, with its option `weight`. All clients of the name must set it, or none: a weighted
   * semaphore is of a kind of its own, and a call of the other kind is rejected with a KindMismatchError. Not together with `sticky`.
   *
   * A call that is heavier than the number of the oldest living entry waits until its own entry is the oldest. After a change to a smaller
   * number, nobody enters before there is room by that one. An adopted session gives its entry to a call of the same `weight` only. The cost
   * is that of a plain permit, but with more than 64 entries before its own, a call that fits sends a read and a put more, and while a heavy
   * call is the first in line, it reads the queue after each release.
   * @default false: each call takes one permit
   */
  readonly weighted?: boolean | undefined;
}

/** How many permits a call takes. */
export interface WeightOption {
  /** Only with `weighted: true`: a whole number, 1 to the number of permits. @default 1 */
  readonly weight?: number | undefined;
}

/**
 * At most `permits` holders at a time, in all processes that use the same name on the same etcd, served in order. Limits
 * concurrency, not rate. While processes use different numbers, as during a deploy, the number of the oldest entry in the
 * queue applies; no permit is ever taken back. With `weighted: true`, a call takes as many permits as its `weight`, and those of all
 * holders together are at most `permits`. If a client that waits for a permit dies, the one behind it may wait until the lease of the dead one
 * ends, usually one TTL at most. A Semaphore holds no connection and needs no closing.
 *
 * A permit that is handed over costs two transactions and one read, and wakes two other waiters at most. A session that waits for a permit
 * behind another waiter reads the queue again and again, each time after 0.4 s for each entry that must end first: N such sessions send
 * about 2.5 ln N reads per second.
 */
export class Semaphore {
  readonly name: string;
  readonly permits: number;
  readonly #target: HoldTarget<HoldHandle>;
  readonly #isWeighted: boolean;

  /**
   * @throws {TypeError | RangeError} when `source` is not a Cluster or Session, `name` is not 1..1024 bytes of well-formed
   * Unicode without "/" at its ends and without "//", or `permits` is not an integer from 1 to 1000, and on invalid options.
   */
  // eslint-disable-next-line max-params -- public: the options come last, as everywhere
  constructor(source: SessionSource, name: string, permits: number, options?: SemaphoreOptions) {
    const leases = leaseSourceOf(source);
    this.name = checkName(name);
    this.permits = checkPermits(permits);
    const { isWeighted, lock } = checkSemaphore(options);
    this.#isWeighted = isWeighted;
    this.#target = {
      source: leases,
      name: this.name,
      kind: isWeighted ? "weighted" : "permit",
      mode: isWeighted ? weighted(this.permits, 1) : permit(this.permits),
      options: lock,
      handle: HoldHandle,
    };
  }

  /**
   * Waits for its turn and returns the hold. It has no fence: an older permit is as good as a newer one. Release it, or
   * use `await using`; prefer `withPermit`. The order is that of the calls, whatever their `weight`: while a heavy one waits, those
   * behind it wait, too, even if there is room for them.
   *
   * On abort and throws: as `Mutex.lock`.
   * @throws {LockTimeoutError} after `timeoutMs`, with the oldest holder and the number of entries ahead, including holders.
   * @throws {DeadlockError} inside a `withPermit` of the same name, or of a name under it: see `withPermit`.
   * @throws {RangeError} when `weight` is not a whole number from 1 to the number of permits.
   * @throws {TypeError} when `weight` is given without `weighted: true`.
   */
  acquire(options?: LockWaitOptions & WeightOption): Promise<Hold> {
    const { source } = this.#target;
    try {
      const wait = checkLockWait(options, { where: "acquire", source, also: ["weight"] });
      return acquireHold(this.#targetOf("acquire", options), () => wait);
    } catch (error) {
      return Promise.reject(error);
    }
  }

  /**
   * Returns the hold if as many permits as its `weight` are free and no caller waits, else undefined, after one read and no write. If
   * several callers see the last free permit at once, the caller whose entry comes first gets it; the others leave the queue. Otherwise
   * as `Mutex.tryLock`.
   * @throws {KindMismatchError} when the read shows an entry of another kind, or of a nested name: see docs/kinds.md.
   */
  async tryAcquire(options?: WaitOptions & WeightOption): Promise<Hold | undefined> {
    const wait = checkWait("tryAcquire", options, ["weight"]);
    return tryAcquire(this.#targetOf("tryAcquire", options), wait);
  }

  /**
   * Runs `work` while holding a permit, or as many as `weight`, releases them, and returns what `work` returned. `work` should stop when
   * `hold.signal` aborts. If `work` throws, that very error is thrown, whatever the outcome of the release.
   * `work` cannot wait for another permit of the same name: as many such callbacks as there are permits would wait for one
   * another forever.
   *
   * On abort and throws: as `acquire`.
   * @throws {LockLostError} when `work` succeeded but the hold was lost before it ended.
   */
  async withPermit<T>(
    work: (hold: Hold) => T,
    options?: LockWaitOptions & WeightOption,
  ): Promise<Awaited<T>> {
    checkFunction("work", work);
    const { source } = this.#target;
    const wait = checkLockWait(options, { where: "withPermit", source, also: ["weight"] });
    const target = this.#targetOf("withPermit", options);
    const hold = await acquireHold(target, () => wait);
    return new HeldScope(source.services, hold).enter(work);
  }

  /** After the check of the other options. */
  #targetOf(where: string, options: WeightOption | undefined): HoldTarget<HoldHandle> {
    const weight = options?.weight;
    if (weight === undefined) return this.#target;
    if (!this.#isWeighted)
      throw new TypeError(`Option weight of ${where} needs a Semaphore with weighted: true`);
    return { ...this.#target, mode: weighted(this.permits, checkWeight(weight, this.permits)) };
  }
}
