// What a handle says about itself over time, sampled every few milliseconds and kept as runs of equal samples.

/**
 * @typedef {{ held: boolean, aborted: boolean, from: bigint, to: bigint, samples: number }} Run
 *   `from`, `to`: first and last sample, on the monotonic clock that all processes of one machine share.
 * @typedef {{ readonly held: boolean, readonly signal: AbortSignal }} Sampled
 */

const EVERY_MS = 2;

export class Sampler {
  /** @type {Map<string, { hold: Sampled, runs: Run[] }>} */
  #tracks = new Map();

  constructor() {
    setInterval(() => this.sample(), EVERY_MS).unref();
  }

  /** @param {string} name @param {Sampled} hold */
  follow(name, hold) {
    this.#tracks.set(name, { hold, runs: [] });
    this.sample();
  }

  /** @param {string} name @returns {Run[]} */
  runs(name) {
    return this.#tracks.get(name)?.runs ?? [];
  }

  sample() {
    for (const { hold, runs } of this.#tracks.values()) {
      // Read before `held`, so that a claim is never dated later than it was made.
      const at = process.hrtime.bigint();
      const { held, signal } = hold;
      const last = runs.at(-1);
      if (last?.held === held && last.aborted === signal.aborted) {
        last.to = at;
        last.samples += 1;
      } else runs.push({ held, aborted: signal.aborted, from: at, to: at, samples: 1 });
    }
  }
}

/** The last moment at which the handle claimed to be held. @param {readonly Run[]} runs */
export const lastClaim = (runs) => runs.findLast((run) => run.held)?.to;

/** Claims made after the signal had aborted. @param {readonly Run[]} runs */
export const claimsAfterSignal = (runs) => runs.filter((run) => run.held && run.aborted);
