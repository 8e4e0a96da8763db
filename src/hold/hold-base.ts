import { LockExpiringError, type LockLostError, type LockReleasedError } from "../errors.js";
import { Once } from "../async/once.js";
import { checkAtLeast } from "../options/check.js";

export type HoldEnd = LockLostError | LockReleasedError;

/** The members that work alike for a hold of one name and of several. */
export abstract class HoldBase {
  readonly #released = new Once(() => this.releaseOnce());

  abstract get held(): boolean;
  abstract remainingMs(): number;
  /** Names the hold in error messages. */
  protected abstract get label(): string;
  /** The reason of its signal, if it has ended. */
  protected abstract get end(): HoldEnd | undefined;
  protected abstract releaseOnce(): Promise<void>;

  assertHeld(atLeastMs = 0): void {
    checkAtLeast(atLeastMs);
    const left = this.remainingMs();
    const { end } = this;
    if (end) throw end;
    if (!this.held || left < atLeastMs) throw new LockExpiringError(this.label, left);
  }

  release(): Promise<void> {
    return this.#released.run();
  }

  async [Symbol.asyncDispose](): Promise<void> {
    await this.release();
  }
}
