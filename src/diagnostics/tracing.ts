import type { TracingChannel } from "node:diagnostics_channel";

/**
 * Publishes the events of one call, as `channel.tracePromise` does, but without its `result`: the value goes to the caller
 * alone. Check `channel.hasSubscribers` first. `start` is published before this returns, in the async context of the caller.
 */
export async function tracePromise<M extends object, T>(
  channel: TracingChannel<unknown, M>,
  message: M,
  run: () => Promise<T>,
): Promise<T> {
  let value: T | undefined;
  await channel.tracePromise(async () => void (value = await run()), message);
  return value as T;
}
