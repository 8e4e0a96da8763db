const BEAT_MS = 15;
/** So many lanes are alone most of the time, and leasehold's calls with them. */
const ALONE = 4;

/** Who waits for the next beat goes on in the same turn of the event loop as all others: what they send leaves together. */
export class Beats {
  #waiting: (() => void)[] = [];
  readonly #timer = setInterval(() => {
    for (const go of this.#waiting.splice(0)) go();
  }, BEAT_MS);

  next(): Promise<void> {
    return new Promise((resolve) => this.#waiting.push(resolve));
  }

  /** Nobody may be waiting. */
  stop(): void {
    clearInterval(this.#timer);
  }
}

/** undefined: a few lanes go as they please. */
export const lanesInStep = (lanes: number): Beats | undefined => (lanes > ALONE ? new Beats() : undefined);
