import { setMaxListeners } from "node:events";
import type { AbortFanOut } from "./abort-fan-out.js";

/** A signal that follows others until it has aborted, or until `stop` is called. */
export interface FirstAbort {
  readonly signal: AbortSignal;
  stop(): void;
}

/**
 * Aborts with the first of `signals`, none of which has aborted yet. Nothing of it stays at the others after that, nor after
 * `stop`; each signal of `AbortSignal.any` leaves 2.4 to 2.8 KB at a signal that lives on, in Node.js 20 and 22.
 */
export function firstAbort(aborts: AbortFanOut, signals: readonly AbortSignal[]): FirstAbort {
  const controller = new AbortController();
  // Any number of listeners is legitimate.
  setMaxListeners(0, controller.signal);
  const stops = signals.map((each) =>
    aborts.add(each, () => {
      stop();
      controller.abort(each.reason);
    }),
  );
  const stop = (): void => {
    for (const stopListening of stops) stopListening();
  };
  return { signal: controller.signal, stop };
}
