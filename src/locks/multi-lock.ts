import { setMaxListeners } from "node:events";
import { LockReleasedError } from "../errors.js";
import { HoldBase, type HoldEnd } from "../hold/hold-base.js";
import type { HoldHandle, Lock } from "../hold/hold.js";

/** Several names that were locked at once. They are lost as a whole and released as a whole. */
export interface MultiLock extends Omit<Lock, "name" | "key" | "toJSON"> {
  /** The names as passed to `lockAll`. */
  readonly names: readonly string[];
  /** The key under each name, in the same order. */
  readonly keys: readonly string[];
  /** Bigints become decimal strings. */
  toJSON(): { readonly names: readonly string[]; readonly revision: string; readonly held: boolean };
}

export class MultiLockHandle extends HoldBase implements MultiLock {
  readonly names: readonly string[];
  readonly keys: readonly string[];
  /** The create revision of all keys: one transaction put them. */
  readonly revision: bigint;
  readonly #holds: readonly HoldHandle[];
  readonly #controller = new AbortController();

  constructor(holds: readonly HoldHandle[]) {
    super();
    this.#holds = holds;
    this.names = Object.freeze(holds.map(({ name }) => name));
    this.keys = Object.freeze(holds.map(({ key }) => key));
    this.revision = (holds[0] as HoldHandle).revision;
    // Any number of listeners is legitimate.
    setMaxListeners(0, this.#controller.signal);
    for (const { signal } of holds)
      signal.addEventListener("abort", () => this.#end(signal.reason as HoldEnd), { once: true });
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

  toJSON(): { readonly names: readonly string[]; readonly revision: string; readonly held: boolean } {
    return { names: this.names, revision: this.revision.toString(), held: this.held };
  }

  protected get label(): string {
    return this.names.join(", ");
  }

  protected get end(): HoldEnd | undefined {
    return this.signal.reason as HoldEnd | undefined;
  }

  /** Listeners of the session's own signal run before the session notifies its holds, so this checks each hold. */
  #endWithHolds(): void {
    for (const { signal } of this.#holds) if (signal.aborted) this.#end(signal.reason as HoldEnd);
  }

  /** Ends all holds: after one is lost, the others are useless and are released. */
  #end(reason: HoldEnd): void {
    if (this.#controller.signal.aborted) return;
    this.#controller.abort(reason);
    for (const hold of this.#holds) void hold.release();
  }

  protected async releaseOnce(): Promise<void> {
    for (const hold of this.#holds) hold.refresh();
    this.signal.throwIfAborted();
    this.#end(new LockReleasedError(this.label));
    await Promise.all(this.#holds.map((hold) => hold.release()));
  }
}
