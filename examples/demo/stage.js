// @ts-check

/** @typedef {{ k: string } & Record<string, any>} StageEvent */

/** Collects all events while the demo runs: the timeline shows them, and the nemesis waits for them. */
export class Stage {
  /** @type {Set<(event: StageEvent) => void>} */
  #listeners = new Set();
  #signal;

  /** @param {AbortSignal} signal ends every wait */
  constructor(signal) {
    this.#signal = signal;
  }

  /**
   * @param {(event: StageEvent) => void} listener
   * @returns {() => void} removes the listener
   */
  listen(listener) {
    this.#listeners.add(listener);
    return () => void this.#listeners.delete(listener);
  }

  /** @param {StageEvent} event */
  emit(event) {
    for (const listener of [...this.#listeners]) listener(event);
  }

  /**
   * The next matching event; `undefined` if none came in time.
   * @param {(event: StageEvent) => boolean} fits
   * @param {number} timeoutMs
   * @returns {Promise<StageEvent | undefined>}
   */
  until(fits, timeoutMs) {
    this.#signal.throwIfAborted();
    return new Promise((resolve, reject) => {
      const listener = (/** @type {StageEvent} */ event) => fits(event) && settle(() => resolve(event));
      const aborted = () => settle(() => reject(this.#signal.reason));
      const timer = setTimeout(() => settle(() => resolve(undefined)), timeoutMs);
      const settle = (/** @type {() => void} */ end) => {
        clearTimeout(timer);
        this.#listeners.delete(listener);
        this.#signal.removeEventListener("abort", aborted);
        end();
      };
      this.#listeners.add(listener);
      this.#signal.addEventListener("abort", aborted);
    });
  }
}
