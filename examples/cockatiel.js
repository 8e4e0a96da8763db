// @ts-check
// Locks and permits as policies of cockatiel. Inside a retry and a circuit breaker each attempt takes the lock anew, and work under a
// lost lock is repeated:
//   const retries = retry(handleWhen(isRetryable), { maxAttempts: 3, backoff: new ExponentialBackoff() });
//   const guarded = wrap(retries, circuitBreaker(handleWhen(isRetryable), { … }), lockPolicy(mutex, { timeoutMs: 2_000 }));
//   await guarded.execute(({ signal, lock }) => work({ signal, fence: lock.fence }));
import { noop } from "cockatiel";
import { httpStatusOf } from "leasehold";

/** Others have the lock, etcd does not answer, or the lock was lost: another attempt may end well. @param {unknown} error */
export const isRetryable = (error) => [429, 503].includes(httpStatusOf(error) ?? 0);

/**
 * Runs a call while it holds the mutex. `lock` is in its context, and `signal` aborts with the lock or with the caller's.
 * @param {import("leasehold").Mutex} mutex
 * @param {import("leasehold").WorkOptions} [options]
 * @returns {import("cockatiel").IPolicy<{ signal: AbortSignal, lock: import("leasehold").Lock }>}
 */
export const lockPolicy = (mutex, options) =>
  policy((work, signal) =>
    mutex.withLock((lock) => work({ lock, signal: lock.signalWith(signal) }), { ...options, signal }),
  );

/**
 * Runs a call while it has a permit of the semaphore. `permit` is in its context.
 * @param {import("leasehold").Semaphore} semaphore
 * @param {import("leasehold").WaitOptions} [options]
 * @returns {import("cockatiel").IPolicy<{ signal: AbortSignal, permit: import("leasehold").Hold }>}
 */
export const permitPolicy = (semaphore, options) =>
  policy((work, signal) =>
    semaphore.withPermit((permit) => work({ permit, signal: permit.signalWith(signal) }), {
      ...options,
      signal,
    }),
  );

/**
 * @template C
 * @param {<T>(work: (context: C) => PromiseLike<T> | T, signal: AbortSignal) => Promise<T>} execute
 */
const policy = (execute) => ({
  _altReturn: /** @type {never} */ (undefined),
  ...{ onSuccess: noop.onSuccess, onFailure: noop.onFailure },
  /**
   * @template T
   * @param {(context: C) => PromiseLike<T> | T} work
   */
  execute: (work, signal = new AbortController().signal) => execute(work, signal),
});
