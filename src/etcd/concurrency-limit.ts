import { AbortFanOut } from "../async/abort-fan-out.js";

/** Attempts at a time: enough to keep etcd busy, and few enough to be answered soon even if etcd is slow. */
const MAX_AT_ONCE = 256;

/**
 * Limits the attempts at a time; the others wait in order of arrival. Attempts that are all sent at once only wait for each
 * other while their time limits run: thousands would time out together, again and again, on a healthy etcd.
 */
export class ConcurrencyLimit {
  #free = MAX_AT_ONCE;
  readonly #aborts = new AbortFanOut("all");
  /** Each returns whether it takes the slot. */
  readonly #waiting = new Set<() => boolean>();

  /** False: no slot is free; wait for one with `acquire()`. */
  tryAcquire(): boolean {
    if (this.#free === 0) return false;
    this.#free--;
    return true;
  }

  /** True: a slot is acquired. False: it was no longer `wanted` when its turn came. Rejects with the signal's reason. */
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
