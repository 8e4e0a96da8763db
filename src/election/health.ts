import { checkFunction, checkInteger, type Options, rangeError, typeError } from "../options/check.js";
import { type Clock, pause, type Timer } from "../util/clock.js";
import { inOwnContext } from "../util/own-context.js";

/** How `lead` learns that the work of a leader goes on. */
export interface HealthOptions {
  /**
   * Called every `everyMs` while this process leads. The term ends when it returns false, or a promise of false, or throws; and when no
   * call has passed for `withinMs`. After that, it must pass once before the next campaign.
   * @default none: only the lease decides
   */
  readonly healthy?: (() => boolean | Promise<boolean>) | undefined;
  /** Milliseconds between two calls of `healthy`, 1..2147483647. @default a quarter of `withinMs` */
  readonly everyMs?: number | undefined;
  /**
   * Milliseconds after which the term ends unless `healthy` has passed, or `leadership.heartbeat()` was called, 1..2147483647. Without
   * `healthy`, the heartbeats alone count.
   * @default 10000 with `healthy`, else no limit
   */
  readonly withinMs?: number | undefined;
  /** Milliseconds between the abort of `leadership.signal` and the resignation of a term that was not healthy, 0..2147483647. @default 250 */
  readonly graceMs?: number | undefined;
}

export const HEALTH_OPTIONS = ["healthy", "everyMs", "withinMs", "graceMs"] as const;

export interface CheckedHealth {
  readonly healthy: (() => unknown) | undefined;
  readonly everyMs: number;
  readonly withinMs: number;
  readonly graceMs: number;
}

const MAX_MS = 2_147_483_647;

/** Undefined: nothing is asked for. @throws {TypeError | RangeError} */
export function checkHealth(given: Options): CheckedHealth | undefined {
  const { healthy } = given;
  if (healthy !== undefined) checkFunction("healthy", healthy);
  const wait = { min: 1, max: MAX_MS };
  const withinMs = checkInteger("withinMs", given["withinMs"], { ...wait, fallback: 10_000 });
  const everyMs = checkInteger("everyMs", given["everyMs"], {
    ...wait,
    fallback: Math.max(1, Math.floor(withinMs / 4)),
  });
  const graceMs = checkInteger("graceMs", given["graceMs"], { min: 0, max: MAX_MS, fallback: 250 });
  if (healthy === undefined && given["everyMs"] !== undefined)
    throw typeError("everyMs", "left out without healthy, which it calls", given["everyMs"]);
  if (healthy !== undefined && everyMs >= withinMs)
    throw rangeError("everyMs", `less than withinMs (${withinMs})`, everyMs);
  if (healthy === undefined && given["withinMs"] === undefined) {
    if (given["graceMs"] === undefined) return undefined;
    throw typeError("graceMs", "left out without healthy and withinMs", given["graceMs"]);
  }
  return { healthy: healthy as CheckedHealth["healthy"], everyMs, withinMs, graceMs };
}

/** Watches the work of one term, until it is stopped or has failed. */
export class HealthWatch {
  readonly #timers = new Set<Timer>();
  #goodAt: number;
  #over = false;

  /** @param failed called once, with the reason */
  constructor(
    private readonly options: CheckedHealth,
    private readonly clock: Clock,
    private readonly failed: (reason: Error) => void,
  ) {
    this.#goodAt = clock.monotonic();
    inOwnContext(() => {
      this.#awaitOverdue(options.withinMs);
      if (options.healthy) this.#checkSoon();
    });
  }

  /** The work goes on. */
  beat(): void {
    this.#goodAt = this.clock.monotonic();
  }

  stop(): void {
    this.#over = true;
    for (const timer of this.#timers) timer.cancel();
  }

  #awaitOverdue(delayMs: number): void {
    this.#after(delayMs, () => {
      const { withinMs, healthy } = this.options;
      const leftMs = this.#goodAt + withinMs - this.clock.monotonic();
      if (leftMs > 0) return this.#awaitOverdue(leftMs);
      const what = healthy ? "healthy has not passed" : "no heartbeat has come";
      this.#fail(new Error(`${what} for ${withinMs} ms`));
    });
  }

  #checkSoon(): void {
    this.#after(this.options.everyMs, () => void this.#check());
  }

  /** Never rejects. A check that never ends is the last one. */
  async #check(): Promise<void> {
    const problem = await problemOf(this.options.healthy);
    if (this.#over) return;
    if (problem) return this.#fail(problem);
    this.beat();
    this.#checkSoon();
  }

  #fail(reason: Error): void {
    if (this.#over) return;
    this.stop();
    this.failed(reason);
  }

  #after(delayMs: number, run: () => void): void {
    // Past the limit, not on it: Node.js rounds down to whole milliseconds.
    const timer = this.clock.after(delayMs + 1, () => {
      this.#timers.delete(timer);
      if (!this.#over) run();
    });
    timer.unref?.();
    this.#timers.add(timer);
  }
}

/** Undefined: it is healthy. Never rejects. */
async function problemOf(healthy: CheckedHealth["healthy"]): Promise<Error | undefined> {
  try {
    return (await healthy?.()) === false ? new Error("healthy has returned false") : undefined;
  } catch (error) {
    // Any value may be thrown, also one that has no text.
    return error instanceof Error ? error : new Error("healthy has thrown what is no Error");
  }
}

/** Resolves when a check has passed, with pauses between checks that fail, or when `stop` aborts. */
export async function untilHealthy(
  { healthy }: CheckedHealth,
  {
    clock,
    stop,
    nextMs,
  }: { readonly clock: Clock; readonly stop: AbortSignal; readonly nextMs: () => number },
): Promise<void> {
  while (!stop.aborted) {
    const done = new AbortController();
    let passed = false;
    void problemOf(healthy).then((problem) => {
      passed = problem === undefined;
      done.abort();
    });
    // A check that hangs is not healthy: it is not begun a second time.
    await pause(clock, MAX_MS, stop, done.signal);
    if (passed) return;
    await pause(clock, nextMs(), stop);
  }
}
