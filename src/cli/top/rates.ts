/** Grants count for about so long. */
const WINDOW_MS = 10_000;
/** Below this, a name that has no queue is forgotten. */
const FORGOTTEN = 1e-6;

interface Rate {
  grants: number;
  /** In each millisecond, at `at`. */
  value: number;
  at: number;
}

/** How often the holder of each name changes lately: an average in which what is old counts less and less. */
export class Rates {
  readonly #names = new Map<string, Rate>();

  /** `grants`: all that the board has counted, from 0 when it began. */
  count(name: string, grants: number, at: number): void {
    const known = this.#names.get(name);
    if (grants === (known?.grants ?? 0)) return;
    // The board has forgotten the name in between and counts from 0 again.
    const more = known === undefined || grants < known.grants ? grants : grants - known.grants;
    const value = (known ? faded(known, at) : 0) + more / WINDOW_MS;
    this.#names.set(name, { grants, value, at });
  }

  perSecond(name: string, at: number): number {
    const rate = this.#names.get(name);
    return rate ? faded(rate, at) * 1000 : 0;
  }

  /** Drops the names that have no queue and no rate left. */
  forget(at: number, isLive: (name: string) => boolean): void {
    for (const [name, rate] of this.#names)
      if (faded(rate, at) < FORGOTTEN && !isLive(name)) this.#names.delete(name);
  }
}

const faded = ({ value, at }: Rate, now: number): number => value * Math.exp((at - now) / WINDOW_MS);
