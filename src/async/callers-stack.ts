import { EtcdUnavailableError, LockTimeoutError } from "../errors.js";

/**
 * Gives an error that was created in a timer the stack of the async function that is about to reject with it. So the stack
 * contains the line of the user's code that awaits the call, and a successful call pays nothing for it.
 */
export function withCallersStack(error: unknown): unknown {
  // Callers that share the opening of a session would get one another's stack.
  const own = error instanceof EtcdUnavailableError ? error.again() : error;
  if (own instanceof EtcdUnavailableError || own instanceof LockTimeoutError)
    Error.captureStackTrace(own, withCallersStack);
  return own;
}

/** The same promise, for calls that are rare: its rejections get the stack of the caller. */
export async function atCaller<T>(promise: Promise<T>): Promise<T> {
  try {
    return await promise;
  } catch (error) {
    throw withCallersStack(error);
  }
}
