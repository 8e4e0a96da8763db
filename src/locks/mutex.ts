import { acquireHold, tryAcquire } from "../hold/acquire.js";
import { HeldScope, enclosingHold } from "../hold/reentrancy.js";
import type { Lock } from "../hold/hold.js";
import { checkBoolean, checkFunction, checkName, checkWait } from "../options/check.js";
import type { WaitOptions } from "../session/session.js";
import { leaseSourceOf, type LeaseSource, type SessionSource } from "../session/session-source.js";

export interface WorkOptions extends WaitOptions {
  /**
   * When the same async context already holds the name: enter again with the lock that is held, instead of a
   * DeadlockError. The lock is released when the last of the works inside has ended.
   * @default false
   */
  readonly reentrant?: boolean | undefined;
}

/**
 * A lock of which one holder exists at a time, in all processes and languages that use the same name on the same etcd.
 * Waiters are served in order. Holds no connection and needs no closing: it is a name and a session to lock it with.
 */
export class Mutex {
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
   * Waits for its turn and returns the lock. Release it, or use `await using`; prefer `withLock`.
   * On abort: rejects at once with the signal's own reason; the place in the queue is removed in the background.
   * @throws {LockTimeoutError} after `timeoutMs`, with the holder and the places ahead where etcd still says so. Opening
   * the first session counts; if a member failed meanwhile, EtcdUnavailableError says which.
   * @throws {SessionLostError | SessionClosedError} when the session ends while waiting.
   * @throws {DeadlockError} inside a `withLock` of the same name, or of a name under it.
   * @throws {EtcdUnavailableError} when no session could be opened. @throws {EtcdRefusedError} when etcd said no.
   * @throws {TypeError | RangeError} on bad options.
   */
  lock(options?: WaitOptions): Promise<Lock> {
    return acquireHold(this.#source, this.name, () => checkWait("lock", options));
  }

  /**
   * The lock if nobody is in the queue, else undefined: one request, which writes nothing when refused. `timeoutMs`
   * (5000 when not given) bounds the wait for etcd. On abort: rejects at once with the signal's own reason; a lock that
   * was taken all the same is given back in the background.
   * @throws {EtcdUnavailableError} when etcd did not answer in time. @throws {EtcdRefusedError} when etcd said no.
   * @throws {SessionLostError | SessionClosedError} when the session is over. @throws {TypeError | RangeError} on bad options.
   */
  async tryLock(options?: WaitOptions): Promise<Lock | undefined> {
    return tryAcquire(this.#source, this.name, checkWait("tryLock", options));
  }

  /**
   * Runs `work` while holding the lock, releases it, and returns what `work` returned. Stop when `lock.signal` aborts.
   * If `work` throws, that very error is thrown, whatever the release does.
   * @throws {LockLostError} when `work` ended well but the lock was lost before. Else as `lock()`.
   */
  async withLock<T>(work: (lock: Lock) => T, options?: WorkOptions): Promise<Awaited<T>> {
    checkFunction("work", work);
    const wait = checkWait("withLock", options, ["reentrant"]);
    const reentrant = checkBoolean("reentrant", options?.reentrant);
    wait.signal?.throwIfAborted();
    const here = reentrant ? enclosingHold(this.#source.connection, this.name) : undefined;
    if (here) return here.enterAgain(work);
    const lock = await acquireHold(this.#source, this.name, () => wait);
    return new HeldScope(this.#source.connection, lock).enter(work);
  }
}
