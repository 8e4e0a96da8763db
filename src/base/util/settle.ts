// How a wait ends: `settleWithin` gives the value or the failure, the caller's own abort reason, or the timeout. An aborted
// signal wins over a value that is there. A value that comes after the caller gave up goes to `onUnwanted`.
import type { CheckedWait } from "../options/check.js";
import type { AbortFanOut } from "./abort.js";
import type { Clock, Timer } from "./clock.js";

/** Counts work in progress, for callers that must not end before it. */
export class TaskTracker {
  #running = 0;
  #onIdle: (() => void) | undefined;
  #idle: Promise<void> | undefined;

  begin(): void {
    this.#running++;
  }

  end(): void {
    this.#running--;
    if (this.#running > 0) return;
    this.#onIdle?.();
    this.#idle = this.#onIdle = undefined;
  }

  track<T>(work: Promise<T>): Promise<T> {
    this.begin();
    const end = (): void => this.end();
    work.then(end, end);
    return work;
  }

  /** Resolves when all work has ended, including work that began meanwhile, or after `turn`: what follows from it is under way then. */
  async settled(turn: () => Promise<void>): Promise<void> {
    for (;;) {
      while (this.#running > 0) await (this.#idle ??= new Promise((resolve) => (this.#onIdle = resolve)));
      await turn();
      if (this.#running === 0) return;
    }
  }
}

interface SettleHandlers<T> {
  /** Makes the timeout error; it may take a moment to collect the details. */
  onTimeout(): Error | Promise<Error>;
  /** The caller has stopped waiting: undo what was started. */
  onGiveUp?(): void;
  /** Receives a value that arrived after the caller gave up. */
  onUnwanted?(value: T): void;
}

interface WaitServices {
  readonly clock: Clock;
  readonly aborts: AbortFanOut;
}

/** Settles with the value or failure of `promise`, with the reason of the caller's abort, or with the timeout error. */
// eslint-disable-next-line max-params -- one object more per waiter would cost memory
export function settleWithin<T>(
  promise: Promise<T>,
  limits: CheckedWait,
  services: WaitServices,
  handlers: SettleHandlers<T>,
): Promise<T> {
  if (limits.signal === undefined && limits.timeoutMs === undefined) return promise;
  return new Promise((resolve, reject) => {
    const wait = new LimitedWait(resolve, reject, handlers);
    wait.limit(limits, services);
    wait.follow(promise);
    // An already aborted signal wins over an already available value.
    if (limits.signal?.aborted) wait.abort(limits.signal);
  });
}

/** A caller's wait for a promise: the first of value, failure, abort and timeout ends it. */
class LimitedWait<T> {
  #over = false;
  #timer: Timer | undefined;
  #stopListening: (() => void) | undefined;

  constructor(
    private readonly resolve: (value: T) => void,
    private readonly reject: (reason: unknown) => void,
    private readonly handlers: SettleHandlers<T>,
  ) {}

  limit({ signal, timeoutMs }: CheckedWait, { clock, aborts }: WaitServices): void {
    if (timeoutMs !== undefined) this.#timer = clock.after(timeoutMs, () => this.#timeOut());
    if (signal !== undefined) this.#stopListening = aborts.add(signal, () => this.abort(signal));
  }

  follow(promise: Promise<T>): void {
    promise.then(
      (value) => (this.#end() ? this.resolve(value) : this.handlers.onUnwanted?.(value)),
      (error: unknown) => this.#end() && this.reject(error),
    );
  }

  abort(signal: AbortSignal): void {
    if (!this.#end()) return;
    this.handlers.onGiveUp?.();
    this.reject(signal.reason);
  }

  #timeOut(): void {
    if (!this.#end()) return;
    this.handlers.onGiveUp?.();
    void Promise.resolve(this.handlers.onTimeout()).then(this.reject, this.reject);
  }

  /** False: it has ended before. */
  #end(): boolean {
    if (this.#over) return false;
    this.#over = true;
    this.#timer?.cancel();
    this.#stopListening?.();
    return true;
  }
}
