import type { Clock } from "../async/clock.js";

const FIRST_MS = 20;
const MAX_MS = 1000;

/**
 * The pauses between the attempts of one call or stream: each is twice as long as the one before, up to 1 s, and the random
 * half of it spreads clients that failed together
 * (https://aws.amazon.com/blogs/architecture/exponential-backoff-and-jitter/, "equal jitter").
 */
export class Backoff {
  #longest = FIRST_MS;

  constructor(private readonly clock: Clock) {}

  /** Milliseconds until the next attempt. */
  nextMs(): number {
    const half = this.#longest / 2;
    this.#longest = Math.min(2 * this.#longest, MAX_MS);
    return half + this.clock.random() * half;
  }

  /** An attempt was successful: the next pause is short again. */
  reset(): void {
    this.#longest = FIRST_MS;
  }
}
