import { AbortFanOut } from "../async/abort-fan-out.js";

/** Attempts at a time: enough to keep etcd busy, and soon answered even where one takes long. */
const MAX_AT_ONCE = 256;

/**
 * So many attempts at a time, the others in the order of their coming. What is sent all at once only waits for its own
 * crowd while its time limit runs: thousands would time out together, again and again, on an etcd that is well.
 */
export class ConcurrencyLimit {
  #free = MAX_AT_ONCE;
  readonly #aborts = new AbortFanOut(true);
  /** Each tells whether it takes the slot. */
  readonly #waiting = new Set<() => boolean>();

  /** False: none is free, `wait()` for one. */
  tryAcquire(): boolean {
    if (this.#free === 0) return false;
    this.#free--;
    return true;
  }

  /** True: a slot is taken. False: not `wanted` any more when its turn came. Rejects with the signal's reason. */
  acquire(signal: AbortSignal | undefined, wanted: () => boolean): Promise<boolean> {
    return new Promise((resolve, reject) => {
      const go = (): boolean => {
        stop();
        const still = wanted();
        resolve(still);
        return still;
      };
      const leave = (): void => {
        this.#waiting.delete(go);
        reject(signal?.reason as Error);
      };
      this.#waiting.add(go);
      const stop = this.#aborts.add(signal, leave);
    });
  }

  release(): void {
    this.#free++;
    for (const go of this.#waiting) {
      if (this.#free === 0) return;
      this.#waiting.delete(go);
      if (go()) this.#free--;
    }
  }
}
