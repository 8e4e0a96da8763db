import type { AbortFanOut } from "./abort-fan-out.js";
import type { CheckedWait } from "../options/check.js";
import type { Clock } from "./clock.js";

export interface SettleHandlers<T> {
  /** The error of the timeout. It may take a moment to say more. */
  onTimeout(): Error | Promise<Error>;
  /** The caller waits no longer: undo what was begun. */
  onGiveUp?(): void;
  /** A value that came although the caller had given up. */
  onUnwanted?(value: T): void;
}

/** The three ends of a wait: the value or failure of `promise`, the caller's abort with its own reason, the timeout. */
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
    // A signal that is aborted already wins over a value that is there already.
    if (signal?.aborted) onAbort();
  });
}
