import { AsyncResource } from "node:async_hooks";

/** The async context in which this file was loaded: that of no call. No code of a user runs in this very resource. */
const own = new AsyncResource("leasehold");

/**
 * Runs `start`, which begins what outlives the call that needs it first: a socket, a timer, work that several calls wait for.
 * What it begins continues in the library's own async context, not in that of this call: otherwise its events would carry the
 * tenant and the trace of one caller for ever, and would count as being inside the locks which that caller holds.
 */
export const inOwnContext = <T>(start: () => T): T => own.runInAsyncScope(start);

const NOT_COLLECTED = { requireManualDestroy: true };

/**
 * Like `inOwnContext`, for code of users: the listeners of signals and events. Each call has a context of its own: before
 * Node.js 24, `enterWith()` in a listener changes the resource in which it runs, which would change all that follows.
 */
export const tellOutside = <T>(tell: () => T): T =>
  own.runInAsyncScope(() => new AsyncResource("leasehold.event", NOT_COLLECTED).runInAsyncScope(tell));
