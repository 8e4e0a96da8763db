import { setMaxListeners } from "node:events";
import { LockLostError, LockReleasedError } from "../errors.js";
import { HoldBase, type HoldEnd } from "../hold/hold-base.js";
import type { HoldFacts, LockAbout } from "../hold/events.js";
import type { HoldHandle, Lock } from "../hold/hold.js";
import { tellOutside } from "../async/own-context.js";

/** Several names that were locked at once. They are lost as a whole and released as a whole. */
export interface MultiLock extends Omit<Lock, "name" | "key" | "toJSON"> {
  /** The names as passed to `lockAll`. */
  readonly names: readonly string[];
  /** The key under each name, in the same order. */
  readonly keys: readonly string[];
  /** For logs, at this moment. Bigints become decimal strings; `remainingMs` is a whole number. */
  toJSON(): MultiLockJson;
}

/** A MultiLock in JSON. */
export interface MultiLockJson {
  readonly names: readonly string[];
  readonly keys: readonly string[];
  readonly revision: string;
  readonly held: boolean;
  readonly remainingMs: number;
  readonly fence: string;
}

export class MultiLockHandle extends HoldBase implements MultiLock {
  readonly names: readonly string[];
  readonly keys: readonly string[];
  /** The create revision of all keys: one transaction put them. */
  readonly revision: bigint;
  readonly #holds: readonly HoldHandle[];
  readonly #controller = new AbortController();

  constructor(holds: readonly HoldHandle[]) {
    super(HoldBase.leaseOf(holds[0] as HoldHandle));
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

  get facts(): HoldFacts {
    return { key: this.keys[0] as string, revision: this.revision, fence: this.fence };
  }

  get signal(): AbortSignal {
    this.#endWithHolds();
    this.limits?.refresh();
    return this.#controller.signal;
  }

  get held(): boolean {
    this.limits?.refresh();
    return this.#holds.every((hold) => hold.held) && !this.#controller.signal.aborted;
  }

  remainingMs(): number {
    const limitMs = this.limits?.remainingMs() ?? Infinity;
    return Math.min(limitMs, ...this.#holds.map((hold) => hold.remainingMs()));
  }

  /** All names were held longer than `maxHoldMs`. The limits release them after the grace. */
  exceeded(maxHoldMs: number): void {
    const loss = new LockLostError(this.label, this.facts.key, "max hold", undefined, maxHoldMs);
    tellOutside(() => this.#controller.abort(loss));
    this.ended("max hold", loss);
  }

  override started(about: LockAbout): void {
    super.started(about);
    for (const hold of this.#holds) hold.startedAsPart({ ...about, name: hold.name });
  }

  toJSON(): MultiLockJson {
    const { names, keys } = this;
    const revision = this.revision.toString();
    return { names, keys, revision, ...this.standing, fence: revision };
  }

  protected override get title(): string {
    return "MultiLock";
  }

  protected override get shown(): Readonly<Record<string, unknown>> {
    return { names: this.names, fence: this.fence };
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
    this.limits?.stop();
    tellOutside(() => this.#controller.abort(reason));
    for (const hold of this.#holds) void hold.release();
    if (reason instanceof LockLostError) this.ended(reason.loss, reason);
  }

  protected async releaseOnce(): Promise<void> {
    for (const hold of this.#holds) hold.refresh();
    this.#endWithHolds();
    this.limits?.refresh();
    this.limits?.stop();
    if (this.limits?.exceeded) await Promise.allSettled(this.#holds.map((hold) => hold.release()));
    this.#controller.signal.throwIfAborted();
    this.#end(new LockReleasedError(this.label));
    await Promise.all(this.#holds.map((hold) => hold.release()));
  }
}
