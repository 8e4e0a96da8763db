const TICK_MS = 25;

/** Tells when this process did not get to run for four ticks more than it should. */
export class StallClock {
  readonly #timer: NodeJS.Timeout;

  constructor(tell: (ms: number) => void) {
    let last = performance.now();
    this.#timer = setInterval(() => {
      const late = performance.now() - last - TICK_MS;
      last = performance.now();
      if (late > 4 * TICK_MS) tell(Math.round(late));
    }, TICK_MS);
  }

  stop(): void {
    clearInterval(this.#timer);
  }
}
