import type { Contender } from "../../contender.js";
import { tellOutside } from "../../base/util/own-context.js";
import type { WantedListener } from "../queue/demand.js";

/** A listener of a user. What it throws is an uncaught exception, as of any event listener. */
export const listenerOf = (call: (waiter: Contender) => void): WantedListener => ({
  told: (waiter) =>
    tellOutside(() => {
      try {
        call(waiter);
      } catch (error) {
        process.nextTick(() => {
          throw error;
        });
      }
    }),
  over: () => undefined,
});

type Result = IteratorResult<Contender, undefined>;
const DONE: Result = { done: true, value: undefined };

/** The waiters as a loop. A slow loop gets the latest of those that it has missed. */
export class Waiters implements AsyncIterableIterator<Contender>, WantedListener {
  readonly #pending: { resolve: (result: Result) => void; reject: (error: Error) => void }[] = [];
  #latest: Contender | undefined;
  #over = false;
  #error: Error | undefined;
  readonly #stop: () => void;

  constructor(listen: (listener: WantedListener) => () => void) {
    this.#stop = listen(this);
  }

  told(waiter: Contender): void {
    if (this.#over) return;
    const pending = this.#pending.shift();
    if (pending) pending.resolve({ done: false, value: waiter });
    else this.#latest = waiter;
  }

  over(error?: Error): void {
    if (this.#over) return;
    this.#over = true;
    this.#latest = undefined;
    this.#stop();
    for (const { resolve, reject } of this.#pending.splice(0)) {
      if (error) reject(error);
      else resolve(DONE);
      error = undefined;
    }
    this.#error = error;
  }

  next(): Promise<Result> {
    const [latest, error] = [this.#latest, this.#error];
    this.#latest = this.#error = undefined;
    if (latest) return Promise.resolve({ done: false, value: latest });
    if (error) return Promise.reject(error);
    if (this.#over) return Promise.resolve(DONE);
    return new Promise((resolve, reject) => this.#pending.push({ resolve, reject }));
  }

  return(): Promise<Result> {
    this.over();
    return Promise.resolve(DONE);
  }

  [Symbol.asyncIterator](): this {
    return this;
  }
}
