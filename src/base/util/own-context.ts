// What outlives a call leaves the call's async context. Code that opens a socket, or begins work that several calls wait for
// or that goes on in the background, does so by `inOwnContext`. Code that calls listeners of users does so by `tellOutside`.
import { AsyncResource } from "node:async_hooks";
import {
  EtcdUnavailableError,
  KindMismatchError,
  LockTimeoutError,
  QueueFullError,
  SupersededError,
} from "../../errors.js";

/** A context alone: nothing of it keeps the process alive. What lists open handles, such as Jest's `--detectOpenHandles`, asks for that. */
export class ContextResource extends AsyncResource {
  hasRef(): boolean {
    return false;
  }
}

/** The async context in which this file was loaded: that of no call. No code of a user runs in this very resource. */
const own = new ContextResource("leasehold");

/**
 * Runs `start`, which begins what outlives the call that needs it first: a socket, a timer, work that several calls wait for.
 * What it begins continues in the library's own async context, not in that of this call: otherwise its events would carry the
 * tenant and the trace of one caller for ever, and would count as being inside the locks which that caller holds.
 */
export const inOwnContext = <T>(start: () => T): T => own.runInAsyncScope(start);

/** Those of the process: the fake timers of test runners replace the global ones, and delay what goes by them. */
export const { queueMicrotask } = globalThis;
export const nextTick = process.nextTick.bind(process);

/** Those of Node.js: test environments with a DOM have others in their place, or none. */
export const { setTimeout, clearTimeout, setImmediate, clearImmediate } =
  process.getBuiltinModule("node:timers");

/** Destroyed by its end: the collector would have to be asked to tell of each. */
const BY_HAND = { requireManualDestroy: true };

function asEvent<T>(call: () => T): T {
  const event = new ContextResource("leasehold.event", BY_HAND);
  try {
    return event.runInAsyncScope(call);
  } finally {
    // Tools keep what they know of an async resource, such as the context of its user, until it is destroyed.
    event.emitDestroy();
  }
}

/** Each call has a context of its own: before Node.js 24, `enterWith()` in it changes the resource in which it runs, and so all that follows. */
const callsIn =
  (resource: AsyncResource) =>
  <T>(call: () => T): T =>
    resource.runInAsyncScope(() => asEvent(call));

/** Like `inOwnContext`, for code of users: the listeners of signals and events. */
export const tellOutside = callsIn(own);

/** For code of users that belongs to the call which is made now, and that a timer calls: what is returned runs it in the call's context. */
export const inThisContext = (): (<T>(call: () => T) => T) => callsIn(new ContextResource("leasehold.call"));

/**
 * Gives an error that was created in a timer, or upon an answer, the stack of the async function that is about to reject with it. So the stack
 * contains the line of the user's code that awaits the call, and a successful call pays nothing for it.
 */
export function withCallersStack(error: unknown): unknown {
  // Callers that share the opening of a session would get one another's stack.
  const own = error instanceof EtcdUnavailableError ? error.again() : error;
  const made = [EtcdUnavailableError, KindMismatchError, LockTimeoutError, QueueFullError, SupersededError];
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
