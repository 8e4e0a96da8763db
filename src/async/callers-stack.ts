import { EtcdUnavailableError, KindMismatchError, LockTimeoutError } from "../errors.js";

/**
 * Gives an error that was created in a timer, or upon an answer, the stack of the async function that is about to reject with it. So the stack
 * contains the line of the user's code that awaits the call, and a successful call pays nothing for it.
 */
export function withCallersStack(error: unknown): unknown {
  // Callers that share the opening of a session would get one another's stack.
  const own = error instanceof EtcdUnavailableError ? error.again() : error;
  const made = [EtcdUnavailableError, KindMismatchError, LockTimeoutError];
  if (made.some((each) => own instanceof each)) Error.captureStackTrace(own as Error, withCallersStack);
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
