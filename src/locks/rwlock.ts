import { acquireHold, tryAcquire } from "../hold/acquire.js";
import { HeldScope } from "../hold/reentrancy.js";
import type { HoldHandle, Hold, Lock } from "../hold/hold.js";
import { writer, type LockMode } from "../queue/lock-mode.js";
import { checkFunction, checkName, checkWait, type CheckedWait } from "../options/check.js";
import { reader } from "../queue/reader-mode.js";
import type { WaitOptions } from "../session/session.js";
import { leaseSourceOf, type LeaseSource, type SessionSource } from "../session/session-source.js";

/**
 * Many readers or one writer at a time, in all processes that use the same name on the same etcd. Served in order: a
 * reader behind a writer who waits waits, too, so readers who come and go cannot keep a writer out. A Mutex of the same
 * name excludes both. Holds no connection and needs no closing.
 *
 * What is held can be neither upgraded nor downgraded: release it, and take the other.
 */
export class RwLock {
  readonly name: string;
  readonly #source: LeaseSource;

  /**
   * @throws {TypeError | RangeError} when `source` is no Cluster or Session, or `name` is not 1..1024 bytes of
   * well-formed Unicode without "/" at its ends and without "//".
   */
  constructor(source: SessionSource, name: string) {
    this.#source = leaseSourceOf(source);
    this.name = checkName(name);
  }

  /**
   * Waits until no writer is before it and returns the hold, which has no fence: of readers who share, an older one would
   * be refused after a newer one. Release it, or use `await using`; prefer `withReadLock`.
   * On abort: rejects at once with the signal's own reason; the place in the queue is removed in the background.
   * @throws {LockTimeoutError} after `timeoutMs`, with the first in the queue and the places ahead, other readers included.
   * @throws {SessionLostError | SessionClosedError} when the session ends while waiting.
   * @throws {DeadlockError} inside a `with…Lock` of the same name, or of a name under it: see `withReadLock`.
   * @throws {EtcdUnavailableError} when no session could be opened. @throws {EtcdRefusedError} when etcd said no.
   * @throws {TypeError | RangeError} on bad options.
   */
  readLock(options?: WaitOptions): Promise<Hold> {
    return this.#lock(reader, () => checkWait("readLock", options));
  }

  /** Waits until nobody is before it and returns the lock. Else as `readLock`; prefer `withWriteLock`. */
  writeLock(options?: WaitOptions): Promise<Lock> {
    return this.#lock(writer, () => checkWait("writeLock", options));
  }

  /**
   * The hold if no writer holds or waits, else undefined: one request, which writes nothing when refused. `timeoutMs`
   * (5000 when not given) bounds the wait for etcd. On abort: rejects at once with the signal's own reason; what was taken
   * all the same is given back in the background.
   * @throws {EtcdUnavailableError} when etcd did not answer in time. @throws {EtcdRefusedError} when etcd said no.
   * @throws {SessionLostError | SessionClosedError} when the session is over. @throws {TypeError | RangeError} on bad options.
   */
  async tryReadLock(options?: WaitOptions): Promise<Hold | undefined> {
    return tryAcquire(this.#source, this.name, checkWait("tryReadLock", options), { mode: reader });
  }

  /** The lock if nobody holds or waits, else undefined. Else as `tryReadLock`. */
  async tryWriteLock(options?: WaitOptions): Promise<Lock | undefined> {
    return tryAcquire(this.#source, this.name, checkWait("tryWriteLock", options), { mode: writer });
  }

  /**
   * Runs `work` while reading is held, releases it, and returns what `work` returned. Stop when `hold.signal` aborts.
   * If `work` throws, that very error is thrown, whatever the release does.
   * Inside, the same name cannot be waited for again, not even to read: a writer that has come in between would wait for
   * the outer hold, and the inner one for that writer, for ever.
   * @throws {LockLostError} when `work` ended well but the hold was lost before.
   * @throws {DeadlockError} inside a `with…Lock` of the same name. Else as `readLock()`.
   */
  async withReadLock<T>(work: (hold: Hold) => T, options?: WaitOptions): Promise<Awaited<T>> {
    checkFunction("work", work);
    return this.#during(reader, checkWait("withReadLock", options), work);
  }

  /** The same while writing is held. */
  async withWriteLock<T>(work: (lock: Lock) => T, options?: WaitOptions): Promise<Awaited<T>> {
    checkFunction("work", work);
    return this.#during(writer, checkWait("withWriteLock", options), work);
  }

  #lock(mode: LockMode, check: () => CheckedWait): Promise<HoldHandle> {
    return acquireHold(this.#source, this.name, check, { mode });
  }

  async #during<T>(mode: LockMode, wait: CheckedWait, work: (held: HoldHandle) => T): Promise<Awaited<T>> {
    return new HeldScope(this.#source.connection, await this.#lock(mode, () => wait)).enter(work);
  }
}
