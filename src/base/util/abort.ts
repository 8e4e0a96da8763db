// A signal of a user carries at most one listener of all `AbortFanOut`s, however many calls use it, and none when no call
// waits, unless a fan-out was made for signals that live as long as itself.
import { setMaxListeners } from "node:events";

/** A signal that follows others until it has aborted, or until `stop` is called. */
interface FirstAbort {
  readonly signal: AbortSignal;
  stop(): void;
}

/**
 * Lets `target` have any number of listeners, without a warning of Node.js. Where a test environment or Electron has put a class of
 * its own in the place of Node.js's, there is no limit to lift.
 */
export function allowListeners(target: EventTarget): void {
  try {
    setMaxListeners(0, target);
  } catch {
    // No EventTarget of Node.js.
  }
}

/** A controller whose signal may have any number of listeners. */
export function newController(): AbortController {
  const controller = new AbortController();
  allowListeners(controller.signal);
  return controller;
}

/**
 * Aborts with the first of `signals`, none of which has aborted yet. Nothing of it stays at the others after that, nor after
 * `stop`; each signal of `AbortSignal.any` leaves 2.4 to 2.8 KB at a signal that lives on, in Node.js 20 and 22.
 */
export function firstAbort(aborts: AbortFanOut, signals: readonly AbortSignal[]): FirstAbort {
  const controller = newController();
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

/** What listens to a signal, by one listener. */
interface Listening {
  readonly listeners: Set<() => void>;
  readonly run: () => void;
}

const listening = new WeakMap<AbortSignal, Listening>();

/** Listens for all fan-outs together: most programs have one for each cluster. Returns a function that stops listening. */
function listen(signal: AbortSignal, listener: () => void): () => void {
  const { listeners, run } = listening.get(signal) ?? begin(signal);
  listeners.add(listener);
  return () => {
    listeners.delete(listener);
    if (listeners.size > 0) return;
    signal.removeEventListener("abort", run);
    if (listening.get(signal)?.listeners === listeners) listening.delete(signal);
  };
}

function begin(signal: AbortSignal): Listening {
  const listeners = new Set<() => void>();
  const run = (): void => {
    // Who listens from now on comes too late.
    listening.delete(signal);
    for (const listener of listeners) listener();
  };
  const began = { listeners, run };
  listening.set(signal, began);
  signal.addEventListener("abort", run, { once: true });
  return began;
}

/**
 * Adds at most one listener to each of the callers' signals, however many calls and clusters use it, and removes it after the
 * last one. Otherwise a signal that a thousand calls share would carry a thousand listeners, and Node would print a warning.
 */
export class AbortFanOut {
  readonly #calls = new Map<AbortSignal, { readonly onAborts: Set<() => void>; readonly stop: () => void }>();

  /** The signal that was used last. */
  #last: AbortSignal | undefined;

  /**
   * `keep`: listeners that stay though no call uses them. To add and remove one costs more than the rest of this class. "all"
   * is for signals that live as long as this object; "last", for calls one after the other that use the same signal.
   */
  constructor(private keep: "none" | "last" | "all" = "none") {}

  /** Removes the listeners that no call uses, now and whenever a call ends. */
  release(): void {
    this.keep = "none";
    for (const [signal, { onAborts }] of this.#calls)
      if (onAborts.size === 0) this.#unlisten(signal, onAborts);
  }

  /** Runs `onAbort` once when `signal` aborts. Returns a function that stops listening. */
  add(signal: AbortSignal | undefined, onAbort: () => void): () => void {
    if (signal === undefined) return () => {};
    const { onAborts } = this.#calls.get(signal) ?? this.#listen(signal);
    onAborts.add(onAbort);
    return () => {
      onAborts.delete(onAbort);
      if (onAborts.size > 0 || this.keep === "all") return;
      if (this.keep === "none") this.#unlisten(signal, onAborts);
      else this.#keepLast(signal);
    };
  }

  #keepLast(signal: AbortSignal): void {
    if (signal.aborted) return;
    const before = this.#last;
    this.#last = signal;
    if (before === undefined || before === signal) return;
    const call = this.#calls.get(before);
    if (call?.onAborts.size === 0) this.#unlisten(before, call.onAborts);
  }

  #listen(signal: AbortSignal): { readonly onAborts: Set<() => void> } {
    const onAborts = new Set<() => void>();
    const listener = (): void => {
      this.#unlisten(signal, onAborts);
      for (const onAbort of onAborts) onAbort();
    };
    const call = { onAborts, stop: listen(signal, listener) };
    this.#calls.set(signal, call);
    return call;
  }

  #unlisten(signal: AbortSignal, onAborts: Set<() => void>): void {
    const call = this.#calls.get(signal);
    // This call may come late, when the same signal already has a new listener.
    if (call?.onAborts !== onAborts) return;
    call.stop();
    this.#calls.delete(signal);
  }
}
