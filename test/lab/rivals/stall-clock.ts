const TICK_MS = 25;

/** Reports when this process was not scheduled for four ticks longer than expected. */
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
