import { setTimeout as delay } from "node:timers/promises";

const PAUSE_MS = 100;

/**
 * Repeats a request until it is answered: a member that was cut off refuses quorum reads and writes until its peers have
 * connected to it again. Rejects with the last reason after `timeoutMs`.
 */
export async function untilAnswered<T>(ask: () => Promise<T>, { timeoutMs = 30_000 } = {}): Promise<T> {
  const until = performance.now() + timeoutMs;
  for (;;) {
    try {
      return await ask();
    } catch (error) {
      if (performance.now() > until) throw error;
      await delay(PAUSE_MS);
    }
  }
}
