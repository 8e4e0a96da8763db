// What outlives a call leaves the call's async context. Code that opens a socket, or begins work that several calls wait for
// or that goes on in the background, does so by `inOwnContext`. Code that calls listeners of users does so by `tellOutside`.
import { AsyncResource } from "node:async_hooks";
import { EtcdUnavailableError, KindMismatchError, LockTimeoutError } from "../errors.js";

/** The async context in which this file was loaded: that of no call. No code of a user runs in this very resource. */
const own = new AsyncResource("leasehold");

/**
 * Runs `start`, which begins what outlives the call that needs it first: a socket, a timer, work that several calls wait for.
 * What it begins continues in the library's own async context, not in that of this call: otherwise its events would carry the
 * tenant and the trace of one caller for ever, and would count as being inside the locks which that caller holds.
 */
export const inOwnContext = <T>(start: () => T): T => own.runInAsyncScope(start);

/** That of the process: the fake timers of test runners replace the global one, and delay what goes by it. */
export const { queueMicrotask } = globalThis;

const NOT_COLLECTED = { requireManualDestroy: true };

/**
 * Like `inOwnContext`, for code of users: the listeners of signals and events. Each call has a context of its own: before
 * Node.js 24, `enterWith()` in a listener changes the resource in which it runs, which would change all that follows.
 */
export const tellOutside = <T>(tell: () => T): T =>
  own.runInAsyncScope(() => new AsyncResource("leasehold.event", NOT_COLLECTED).runInAsyncScope(tell));

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
