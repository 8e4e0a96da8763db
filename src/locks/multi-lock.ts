import { setMaxListeners } from "node:events";
import { LockExpiringError, LockReleasedError, type LockLostError } from "../errors.js";
import type { HoldHandle, Lock } from "../hold/hold.js";
import { Once } from "../async/once.js";
import { checkAtLeast } from "../options/check.js";

/** Several names that were locked at once. They are lost as a whole and released as a whole. */
export interface MultiLock extends Omit<Lock, "name" | "key" | "toJSON"> {
  /** The names as passed to `lockAll`. */
  readonly names: readonly string[];
  /** The key under each name, in the same order. */
  readonly keys: readonly string[];
  /** Bigints become decimal strings. */
  toJSON(): { readonly names: readonly string[]; readonly revision: string; readonly held: boolean };
}

export class MultiLockHandle implements MultiLock {
  readonly names: readonly string[];
  readonly keys: readonly string[];
  /** The create revision of all keys: one transaction put them. */
  readonly revision: bigint;
  readonly #holds: readonly HoldHandle[];
  readonly #controller = new AbortController();
  readonly #released = new Once(() => this.#release());

  constructor(holds: readonly HoldHandle[]) {
    this.#holds = holds;
    this.names = Object.freeze(holds.map(({ name }) => name));
    this.keys = Object.freeze(holds.map(({ key }) => key));
    this.revision = (holds[0] as HoldHandle).revision;
    // Any number of listeners is legitimate.
    setMaxListeners(0, this.#controller.signal);
    for (const { signal } of holds)
      signal.addEventListener("abort", () => this.#end(signal.reason as LockLostError), { once: true });
  }

  get fence(): bigint {
    return this.revision;
  }

  get signal(): AbortSignal {
    this.#endWithHolds();
    return this.#controller.signal;
  }

  get held(): boolean {
    return this.#holds.every((hold) => hold.held) && !this.#controller.signal.aborted;
  }

  remainingMs(): number {
    return Math.min(...this.#holds.map((hold) => hold.remainingMs()));
  }

  assertHeld(atLeastMs = 0): void {
    checkAtLeast(atLeastMs);
    const left = this.remainingMs();
    this.signal.throwIfAborted();
    if (!this.held || left < atLeastMs) throw new LockExpiringError(this.#label, left);
  }

  release(): Promise<void> {
    return this.#released.run();
  }

  async [Symbol.asyncDispose](): Promise<void> {
    await this.release();
  }

  toJSON(): { readonly names: readonly string[]; readonly revision: string; readonly held: boolean } {
    return { names: this.names, revision: this.revision.toString(), held: this.held };
  }

  get #label(): string {
    return this.names.join(", ");
  }

  /** Listeners of the session's own signal run before the session notifies its holds, so this checks each hold. */
  #endWithHolds(): void {
    for (const { signal } of this.#holds) if (signal.aborted) this.#end(signal.reason as LockLostError);
  }

  /** Ends all holds: after one is lost, the others are useless and are released. */
  #end(reason: LockLostError | LockReleasedError): void {
    if (this.#controller.signal.aborted) return;
    this.#controller.abort(reason);
    for (const hold of this.#holds) void hold.release();
  }

  async #release(): Promise<void> {
    for (const hold of this.#holds) hold.refresh();
    this.signal.throwIfAborted();
    this.#end(new LockReleasedError(this.#label));
    await Promise.all(this.#holds.map((hold) => hold.release()));
  }
}
