import {
  BrokenCircuitError,
  circuitBreaker,
  CircuitState,
  ConsecutiveBreaker,
  handleWhen,
  type CircuitBreakerPolicy,
} from "cockatiel";
import type { Clock } from "../async/clock.js";
import { CancelledError, MemberRefusedError, UnansweredError } from "./port-errors.js";

/** For this long after two failures in a row, a member is used only if no other is left. */
const OPEN_MS = 1000;

interface Breaker {
  readonly host: string;
  readonly policy: CircuitBreakerPolicy;
  brokenAt: number;
}

/** Whether `error` is a reason to use another member. */
export const isMembersFault = (error: unknown): boolean =>
  error instanceof MemberRefusedError ||
  (error instanceof UnansweredError && !(error instanceof CancelledError));

/** A circuit breaker for each member. An open one does not exclude its member but makes it the last choice. */
export class CircuitBreakers {
  readonly #breakers: readonly Breaker[];

  constructor(
    hosts: readonly string[],
    private readonly clock: Clock,
  ) {
    this.#breakers = hosts.map((host) => {
      // One failed call says little about a member; two in a row open its breaker.
      const policy = circuitBreaker(handleWhen(isMembersFault), {
        halfOpenAfter: OPEN_MS,
        breaker: new ConsecutiveBreaker(2),
      });
      const breaker = { host, policy, brokenAt: 0 };
      policy.onBreak(() => (breaker.brokenAt = clock.monotonic()));
      return breaker;
    });
  }

  async execute<T>(host: string, run: () => Promise<T>): Promise<T> {
    const breaker = this.#breakers.find((each) => each.host === host);
    if (!breaker) return run();
    // Another call is testing the member, at its own pace; cockatiel would make this one wait for the outcome.
    if (breaker.policy.state === CircuitState.HalfOpen) return run();
    try {
      return await breaker.policy.execute(run);
    } catch (error) {
      // No better member is left, so this one is used anyway.
      if (error instanceof BrokenCircuitError) return run();
      throw error;
    }
  }

  /** Index of the first member, from `start` on with wraparound, that has not just failed; `start` if all have. */
  firstUsable(start: number): number {
    const { length } = this.#breakers;
    for (let i = 0; i < length; i++)
      if (!this.#isLastChoice((start + i) % length)) return (start + i) % length;
    return start % length;
  }

  #isLastChoice(index: number): boolean {
    const breaker = this.#breakers[index];
    if (breaker?.policy.state !== CircuitState.Open) return false;
    return this.clock.monotonic() - breaker.brokenAt < OPEN_MS;
  }
}
