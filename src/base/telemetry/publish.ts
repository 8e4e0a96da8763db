import type { TracingChannel } from "node:diagnostics_channel";
import { jsonOf } from "../../errors.js";

const TO_JSON: PropertyDescriptor & ThisType<object> = {
  value(): Record<string, unknown> {
    return Object.fromEntries(Object.entries(this).map(([field, value]) => [field, jsonOf(value)]));
  },
};

/**
 * The same message, which can be written as JSON: bigints become decimal strings, as in locks and errors. Its `toJSON` is not
 * enumerable, so that logs and comparisons show only the data.
 */
export const withJson = <M extends object>(message: M): M =>
  Object.defineProperty(message, "toJSON", TO_JSON);

/** Set by `tracePromise` before the events `error` and `asyncEnd`. */
interface Failed {
  error?: unknown;
}

/**
 * Publishes the events of one call, as `channel.tracePromise` does, but without its `result`: the value goes to the caller
 * alone. `run` must not throw, but reject. Check `channel.hasSubscribers` first. `start` is published before this returns, in
 * the async context of the caller; a subscriber of it can set the one of `run` and of the other events.
 */
export function tracePromise<M extends object, T>(
  channel: TracingChannel<unknown, M>,
  message: M & Failed,
  run: () => Promise<T>,
): Promise<T> {
  const { start, end, error } = channel;
  const resolved = (value: T): T => {
    settled(channel, message);
    return value;
  };
  const rejected = (reason: unknown): never => {
    message.error = reason;
    error.publish(message);
    settled(channel, message);
    throw reason;
  };
  return start.runStores(message, () => {
    const promise = run().then(resolved, rejected);
    end.publish(message);
    return promise;
  });
}

function settled<M extends object>({ asyncStart, asyncEnd }: TracingChannel<unknown, M>, message: M): void {
  asyncStart.publish(message);
  asyncEnd.publish(message);
}
