import type { AbortFanOut } from "./abort-fan-out.js";
import type { CheckedWait } from "../options/check.js";
import type { Clock } from "./clock.js";

export interface SettleHandlers<T> {
  /** Makes the timeout error; it may take a moment to collect the details. */
  onTimeout(): Error | Promise<Error>;
  /** The caller has stopped waiting: undo what was started. */
  onGiveUp?(): void;
  /** Receives a value that arrived after the caller gave up. */
  onUnwanted?(value: T): void;
}

/** Settles with the value or failure of `promise`, with the reason of the caller's abort, or with the timeout error. */
export function settleWithin<T>(
  promise: Promise<T>,
  { signal, timeoutMs }: CheckedWait,
  { clock, aborts }: { readonly clock: Clock; readonly aborts: AbortFanOut },
  handlers: SettleHandlers<T>,
): Promise<T> {
  if (signal === undefined && timeoutMs === undefined) return promise;
  return new Promise((resolve, reject) => {
    let over = false;
    const end = (): boolean => {
      if (over) return false;
      over = true;
      timer?.cancel();
      stop();
      return true;
    };
    const onAbort = (): void => {
      if (!end()) return;
      handlers.onGiveUp?.();
      reject(signal?.reason as Error);
    };
    const onTimeout = (): void => {
      if (!end()) return;
      handlers.onGiveUp?.();
      void Promise.resolve(handlers.onTimeout()).then(reject, reject);
    };
    const timer = timeoutMs === undefined ? undefined : clock.after(timeoutMs, onTimeout);
    const stop = aborts.add(signal, onAbort);
    promise.then(
      (value) => (end() ? resolve(value) : handlers.onUnwanted?.(value)),
      (error: unknown) => end() && reject(error as Error),
    );
    // An already aborted signal wins over an already available value.
    if (signal?.aborted) onAbort();
  });
}
