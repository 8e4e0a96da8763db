import { setFlagsFromString } from "node:v8";

/** Runs all microtasks that are waiting, and those that they cause. Does nothing inside a microtask. */
export type Drain = () => void;

/**
 * Node.js's own end of a callback: `process.nextTick` callbacks, microtasks, and the report of unhandled rejections. Not documented;
 * Node.js 20 to 26 have it (lib/internal/bootstrap/node.js).
 */
export const drainByTick: Drain = () =>
  (process as unknown as { readonly _tickCallback: () => void })._tickCallback();

/** V8's own checkpoint: microtasks alone. An unhandled rejection is reported only when the event loop turns. */
export function drainByCheckpoint(): Drain {
  setFlagsFromString("--allow-natives-syntax");
  // eslint-disable-next-line @typescript-eslint/no-implied-eval -- the flag applies to code that is compiled after it was set
  return new Function("%PerformMicrotaskCheckpoint()") as Drain;
}
