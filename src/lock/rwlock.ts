import { acquireHold, type HoldTarget, tryAcquire } from "./hold/acquire.js";
import { type Hold, HoldHandle } from "./hold/hold.js";
import { HeldScope } from "./hold/reentrancy.js";
import { WriteHoldHandle, type WriteLock } from "./hold/write-lock.js";
import { checkFunction, checkName, checkWait } from "../base/options/check.js";
import { type CheckedLockWait, checkLockWait, checkStickyLock } from "../base/options/lock.js";
import { reader, writer } from "./queue/lock-mode.js";
import { leaseSourceOf, type SessionSource } from "./session/cluster.js";
import type { LockWaitOptions, StickyLockOptions, WaitOptions } from "./session/session-options.js";

/**
 * Many readers or one writer at a time, in all processes that use the same name on the same etcd. They are served in
 * order: a reader behind a waiting writer waits, too, so a stream of readers cannot keep a writer out. A Mutex of the same
 * name excludes both. An RwLock holds no connection and needs no closing.
 *
 * A writer can become a reader without letting go: `WriteLock.downgrade`. A reader can't become a writer, since two of them would wait for
 * each other: release the hold, and take the write lock.
 */
export class RwLock {
  readonly name: string;
  readonly #reading: HoldTarget<HoldHandle>;
  readonly #writing: HoldTarget<WriteHoldHandle>;

  /**
   * @throws {TypeError | RangeError} when `source` is not a Cluster or Session, or `name` is not 1..1024 bytes of
   * well-formed Unicode without "/" at its ends and without "//", and on invalid options.
   */
  constructor(source: SessionSource, name: string, options?: StickyLockOptions) {
    const leases = leaseSourceOf(source);
    this.name = checkName(name);
    const target = { source: leases, name: this.name, options: checkStickyLock("RwLock", options) };
    this.#reading = { ...target, kind: "reader", mode: reader, handle: HoldHandle };
    this.#writing = { ...target, kind: "writer", mode: writer, handle: WriteHoldHandle };
  }

  /**
   * Waits until no writer is ahead in the queue, but for one that has become a reader, and returns the hold. It has no fence: of several readers, an older one
   * would be rejected after a newer one. Release it, or use `await using`; prefer `withReadLock`. Each reader costs a transaction; the
   * readers of one session that wait behind the same writer share its watches and reads.
   *
   * On abort and throws: as `Mutex.lock`.
   * @throws {LockTimeoutError} after `timeoutMs`, with the first in the queue and the number of entries ahead, including readers.
   * @throws {DeadlockError} inside a `with…Lock` of the same name, or of a name under it: see `withReadLock`.
   */
  readLock(options?: LockWaitOptions): Promise<Hold> {
    return acquireHold(this.#reading, () => this.#checked("readLock", options));
  }

  /** Waits until no entry is ahead in the queue and returns the lock. Otherwise as `readLock`; prefer `withWriteLock`. */
  writeLock(options?: LockWaitOptions): Promise<WriteLock> {
    return acquireHold(this.#writing, () => this.#checked("writeLock", options));
  }

  /**
   * Returns the hold if no writer holds or waits, else undefined: one request, which writes nothing if a writer does. Beside a writer that
   * has become a reader it takes two. Otherwise as `Mutex.tryLock`.
   */
  async tryReadLock(options?: WaitOptions): Promise<Hold | undefined> {
    return tryAcquire(this.#reading, checkWait("tryReadLock", options));
  }

  /** Returns the lock if the queue is empty, else undefined. Otherwise as `Mutex.tryLock`. */
  async tryWriteLock(options?: WaitOptions): Promise<WriteLock | undefined> {
    return tryAcquire(this.#writing, checkWait("tryWriteLock", options));
  }

  /**
   * Runs `work` while holding the read lock, releases it, and returns what `work` returned. `work` should stop when
   * `hold.signal` aborts. If `work` throws, that very error is thrown, whatever the outcome of the release.
   * `work` cannot wait for the same name again, not even to read: a writer that joined in between would wait for the outer
   * hold, and the inner one would wait for that writer, forever.
   *
   * On abort and throws: as `readLock`.
   * @throws {LockLostError} when `work` succeeded but the hold was lost before it ended.
   */
  async withReadLock<T>(work: (hold: Hold) => T, options?: LockWaitOptions): Promise<Awaited<T>> {
    checkFunction("work", work);
    return during(this.#reading, this.#checked("withReadLock", options), work);
  }

  /** The same with the write lock. */
  async withWriteLock<T>(work: (lock: WriteLock) => T, options?: LockWaitOptions): Promise<Awaited<T>> {
    checkFunction("work", work);
    return during(this.#writing, this.#checked("withWriteLock", options), work);
  }

  #checked(where: string, options: LockWaitOptions | undefined): CheckedLockWait {
    return checkLockWait(options, { where, source: this.#reading.source });
  }
}

async function during<H extends HoldHandle, T>(
  target: HoldTarget<H>,
  wait: CheckedLockWait,
  work: (held: H) => T,
): Promise<Awaited<T>> {
  const hold = await acquireHold(target, () => wait);
  return new HeldScope(target.source.services, hold).enter(work);
}
