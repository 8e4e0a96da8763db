import type { TracingChannel } from "node:diagnostics_channel";

/** Set by `tracePromise` before the events `error` and `asyncEnd`. */
interface Failed {
  error?: unknown;
}

/**
 * Publishes the events of one call, as `channel.tracePromise` does, but without its `result`: the value goes to the caller
 * alone. `run` must not throw, but reject. Check `channel.hasSubscribers` first. `start` is published before this returns, in
 * the async context of the caller.
 */
export function tracePromise<M extends object, T>(
  channel: TracingChannel<unknown, M>,
  message: M & Failed,
  run: () => Promise<T>,
): Promise<T> {
  const { start, end, asyncStart, asyncEnd, error } = channel;
  const ended = (): void => {
    asyncStart.publish(message);
    asyncEnd.publish(message);
  };
  const resolved = (value: T): T => {
    ended();
    return value;
  };
  const rejected = (reason: unknown): never => {
    message.error = reason;
    error.publish(message);
    ended();
    throw reason;
  };
  // Both run in the async context that a subscriber of `start` sets for the call.
  const promise = start.runStores(message, () => run().then(resolved, rejected));
  end.publish(message);
  return promise;
}
