/** Work that the first call starts and every call waits for. The promise may be left un-awaited. */
export class Once {
  #done: Promise<void> | undefined;

  constructor(private readonly begin: () => Promise<void>) {}

  run(): Promise<void> {
    if (!this.#done) {
      let settle: (done: Promise<void>) => void = () => {};
      // Set before the work starts: the work itself may call `run`.
      this.#done = new Promise((resolve) => (settle = resolve));
      // `void lock.release()` must not become an unhandled rejection; a caller that awaits it still gets the error.
      this.#done.catch(() => undefined);
      settle(this.begin());
    }
    return this.#done;
  }
}
