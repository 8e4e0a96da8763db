/** Work that is begun by the first call, and whose end every call waits for. May be left un-awaited. */
export class Once {
  #done: Promise<void> | undefined;

  constructor(private readonly begin: () => Promise<void>) {}

  run(): Promise<void> {
    if (!this.#done) {
      let settle: (done: Promise<void>) => void = () => {};
      // Before it begins: what it calls may ask for it, too.
      this.#done = new Promise((resolve) => (settle = resolve));
      // `void lock.release()` must not become an unhandled rejection; who awaits it still hears of it.
      this.#done.catch(() => undefined);
      settle(this.begin());
    }
    return this.#done;
  }
}
