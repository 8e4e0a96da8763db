/**
 * At most one listener on each of the caller's signals, however many calls wait with it; removed when none is left.
 * A signal that a thousand calls share would else carry a thousand listeners and make Node warn.
 */
export class AbortFanOut {
  readonly #calls = new Map<
    AbortSignal,
    { readonly onAborts: Set<() => void>; readonly listener: () => void }
  >();

  /** `stay`: for signals that live as long as this does, a listener is cheaper kept than added for each call. */
  constructor(private readonly stay = false) {}

  /** Runs `onAbort` once when `signal` aborts. Returns what stops listening. */
  add(signal: AbortSignal | undefined, onAbort: () => void): () => void {
    if (signal === undefined) return () => {};
    const { onAborts } = this.#calls.get(signal) ?? this.#listen(signal);
    onAborts.add(onAbort);
    return () => {
      onAborts.delete(onAbort);
      if (onAborts.size === 0 && !this.stay) this.#unlisten(signal, onAborts);
    };
  }

  #listen(signal: AbortSignal): { readonly onAborts: Set<() => void> } {
    const onAborts = new Set<() => void>();
    const listener = (): void => {
      this.#unlisten(signal, onAborts);
      for (const onAbort of onAborts) onAbort();
    };
    const call = { onAborts, listener };
    this.#calls.set(signal, call);
    signal.addEventListener("abort", listener, { once: true });
    return call;
  }

  #unlisten(signal: AbortSignal, onAborts: Set<() => void>): void {
    const call = this.#calls.get(signal);
    // Late: another round of listening may have begun on the same signal.
    if (call?.onAborts !== onAborts) return;
    signal.removeEventListener("abort", call.listener);
    this.#calls.delete(signal);
  }
}
