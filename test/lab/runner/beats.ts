const BEAT_MS = 15;
/** Up to this many lanes, most calls of leasehold are sent alone. */
const ALONE = 4;

/**
 * All lanes that wait for the next beat continue in the same turn of the event loop, so that their requests are sent
 * together.
 */
export class Beats {
  #waiting: (() => void)[] = [];
  readonly #timer = setInterval(() => {
    for (const go of this.#waiting.splice(0)) go();
  }, BEAT_MS);

  next(): Promise<void> {
    return new Promise((resolve) => this.#waiting.push(resolve));
  }

  /** No lane may be waiting. */
  stop(): void {
    clearInterval(this.#timer);
  }
}

/** undefined: a few lanes are not synchronized. */
export const lanesInStep = (lanes: number): Beats | undefined => (lanes > ALONE ? new Beats() : undefined);
