import type { Clock } from "../async/clock.js";
import { CancelledError, MemberRefusedError, UnansweredError } from "./port-errors.js";

/** For this long after the failures, a member is used only if no other is left. */
const OPEN_MS = 1000;
/** One failed call says little about a member. */
const FAILURES = 2;

interface Breaker {
  /** Failures in a row. */
  failures: number;
  failedAt: number;
}

/** Whether `error` is a reason to use another member. */
export const isMembersFault = (error: unknown): boolean =>
  error instanceof MemberRefusedError ||
  (error instanceof UnansweredError && !(error instanceof CancelledError));

/** A circuit breaker for each member. An open one does not exclude its member but makes it the last choice. */
export class CircuitBreakers {
  readonly #breakers: ReadonlyMap<string, Breaker>;

  constructor(
    private readonly hosts: readonly string[],
    private readonly clock: Clock,
  ) {
    this.#breakers = new Map(hosts.map((host) => [host, { failures: 0, failedAt: 0 }]));
  }

  /** A call to the member was answered. */
  succeeded(host: string): void {
    const breaker = this.#breakers.get(host);
    if (breaker !== undefined) breaker.failures = 0;
  }

  /** A call to the member has failed, and that is the member's fault. */
  failed(host: string): void {
    const breaker = this.#breakers.get(host);
    // A call that began before the breaker opened is no new failure.
    if (breaker === undefined || this.#isOpen(breaker)) return;
    breaker.failures++;
    breaker.failedAt = this.clock.monotonic();
  }

  /** Index of the first member, from `start` on with wraparound, that has not just failed; `start` if all have. */
  firstUsable(start: number): number {
    const { length } = this.hosts;
    for (let i = 0; i < length; i++)
      if (!this.#isOpen(this.#breakers.get(this.hosts[(start + i) % length]!)!)) return (start + i) % length;
    return start % length;
  }

  #isOpen({ failures, failedAt }: Breaker): boolean {
    return failures >= FAILURES && this.clock.monotonic() - failedAt < OPEN_MS;
  }
}
