import { acquireHold, type HoldTarget, tryAcquire } from "./hold/acquire.js";
import { ExclusiveHoldHandle, type Lock } from "./hold/hold.js";
import { enclosingHold, HeldScope } from "./hold/reentrancy.js";
import { checkBoolean, checkFunction, checkName, checkWait } from "../base/options/check.js";
import { checkMutex, checkMutexWait } from "../base/options/lock.js";
import { prioritized } from "./queue/priority-mode.js";
import { leaseSourceOf, type SessionSource } from "./session/cluster.js";
import type { MutexOptions, MutexWaitOptions, WaitOptions } from "./session/session-options.js";

export interface WorkOptions extends MutexWaitOptions {
  /**
   * If the same async context already holds the name, run `work` with that lock instead of throwing a DeadlockError. The
   * lock is released when the last callback inside has ended.
   * @default false
   */
  readonly reentrant?: boolean | undefined;
}

/**
 * A lock that has one holder at a time, in all processes and languages that use the same name on the same etcd. Waiters
 * are served in order, or by their `priority`. A Mutex holds no connection and needs no closing: it is a name and a session to lock it with.
 */
export class Mutex {
  readonly name: string;
  readonly #target: HoldTarget<ExclusiveHoldHandle>;

  /**
   * @throws {TypeError | RangeError} when `source` is not a Cluster or Session, or `name` is not 1..1024 bytes of
   * well-formed Unicode without "/" at its ends and without "//", and on invalid options.
   */
  constructor(source: SessionSource, name: string, options?: MutexOptions) {
    const leases = leaseSourceOf(source);
    this.name = checkName(name);
    const lock = checkMutex(options);
    const { priorities } = lock;
    this.#target = {
      source: leases,
      name: this.name,
      kind: priorities ? "priority" : "mutex",
      ...(priorities && { mode: prioritized(0, priorities.agingMs).hold }),
      options: lock,
      handle: ExclusiveHoldHandle,
    };
  }

  /**
   * Waits for its turn and returns the lock. Release it, or use `await using`; prefer `withLock`.
   *
   * On abort: rejects at once with the signal's own reason; the queue entry is removed in the background.
   * @throws {LockTimeoutError} after `timeoutMs`, with the holder and the number of entries ahead, the holder included.
   * The time to open the first session counts; if a member failed in that time, EtcdUnavailableError names it.
   * @throws {SupersededError} with `supersede`, when a newer call with it has come while this one waited.
   * @throws {QueueFullError} with `maxWaiting`, when so many wait, and with `priorities`, when 1,000 do.
   * @throws {SessionLostError | SessionClosedError} when the session ends while waiting without `rejoin`.
   * @throws {KindMismatchError} when it would wait for an entry of another kind, or of a nested name: see docs/kinds.md.
   * @throws {DeadlockError} inside a `withLock` of the same name, or of a name under it.
   * @throws {EtcdUnavailableError} when no session could be opened, or etcd had fallen silent when `timeoutMs` passed.
   * @throws {EtcdRefusedError} when etcd rejects the request.
   * @throws {TypeError | RangeError} on bad options.
   */
  lock(options?: MutexWaitOptions): Promise<Lock> {
    const { source, options: lock } = this.#target;
    return acquireHold(this.#target, () => checkMutexWait(options, { where: "lock", source }, lock));
  }

  /**
   * Returns the lock if the queue is empty, else undefined: one request, which writes nothing if the queue is not empty.
   * `timeoutMs` (default 5000) bounds the wait for etcd. If the key of another session's sticky lock is in the way, it asks for the key by
   * joining the queue, and waits for up to 50 ms, or four round trips if that is longer: a key that nobody holds is given back. It asks again
   * for the same key after a second at the earliest, twice as long after each further time, up to a minute.
   *
   * On abort and throws: as `Mutex.lock`, but it never waits for its turn, so there is no LockTimeoutError, KindMismatchError or
   * DeadlockError. A lock acquired after the abort is released in the background.
   * @throws {EtcdUnavailableError} when etcd did not answer within `timeoutMs`.
   */
  async tryLock(options?: WaitOptions): Promise<Lock | undefined> {
    return tryAcquire(this.#target, checkWait("tryLock", options));
  }

  /**
   * Runs `work` while holding the lock, releases it, and returns what `work` returned. `work` should stop when
   * `lock.signal` aborts. If `work` throws, that very error is thrown, whatever the outcome of the release.
   *
   * On abort and throws: as `Mutex.lock`.
   * @throws {LockLostError} when `work` succeeded but the lock was lost before it ended.
   * @throws {LockExpiringError} with `reentrant`, in a `withLock` whose lock is in doubt after the process was suspended.
   */
  async withLock<T>(work: (lock: Lock) => T, options?: WorkOptions): Promise<Awaited<T>> {
    checkFunction("work", work);
    const { source, options: options_ } = this.#target;
    const wait = checkMutexWait(options, { where: "withLock", also: ["reentrant"], source }, options_);
    const reentrant = checkBoolean("reentrant", options?.reentrant);
    const { services } = source;
    const here = reentrant ? enclosingHold(services, this.name) : undefined;
    if (here) {
      wait.signal?.throwIfAborted();
      return here.enterAgain(work);
    }
    const lock = await acquireHold(this.#target, () => wait);
    return new HeldScope(services, lock).enter(work);
  }
}
