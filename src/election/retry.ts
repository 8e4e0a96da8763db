import { pause, type Clock } from "../async/clock.js";

const FIRST_PAUSE_MS = 1000;
const MAX_PAUSE_MS = 30_000;
/** An attempt that takes longer has failed for lack of an answer, so it has already waited. */
const LONG_ATTEMPT_MS = 2500;

/** Pauses that double from 1 s to 30 s, and restart at 1 s after a run that lasted longer than `longMs`. */
export class Pauses {
  #nextMs = FIRST_PAUSE_MS;

  constructor(private readonly longMs: number) {}

  lasted(ms: number): void {
    if (ms > this.longMs) this.#nextMs = FIRST_PAUSE_MS;
  }

  next(): number {
    const ms = this.#nextMs;
    this.#nextMs = Math.min(MAX_PAUSE_MS, 2 * ms);
    return ms;
  }
}

export interface RetryPolicy {
  readonly clock: Clock;
  /** Ends the pauses; later failures are not reported. */
  readonly stop: AbortSignal;
  /** Whether another attempt may succeed. */
  mayPass(error: unknown): boolean;
  /** Called before each pause. */
  onRetry(error: unknown, delayMs: number): void;
}

/** Repeats `attempt` until it succeeds, with pauses that grow while it fails quickly. */
export async function retry<T>(attempt: () => Promise<T>, policy: RetryPolicy): Promise<T | undefined> {
  const { clock, stop } = policy;
  const pauses = new Pauses(LONG_ATTEMPT_MS);
  while (!stop.aborted) {
    const begin = clock.monotonic();
    try {
      return await attempt();
    } catch (error) {
      if (stop.aborted) return undefined;
      if (!policy.mayPass(error)) throw error;
      pauses.lasted(clock.monotonic() - begin);
      // Candidates that were rejected at the same moment do not all retry at the same moment.
      const delayMs = pauses.next() * (0.75 + clock.random() / 2);
      policy.onRetry(error, delayMs);
      await pause(clock, delayMs, stop);
    }
  }
  return undefined;
}
