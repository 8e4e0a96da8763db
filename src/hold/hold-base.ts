import { firstAbort } from "../async/first-abort.js";
import { Once } from "../async/once.js";
import { tellOutside } from "../async/own-context.js";
import { holdEndChannel } from "../diagnostics/channels.js";
import { withJson } from "../diagnostics/message-json.js";
import type { HoldEndReason } from "../diagnostics/messages.js";
import { LockExpiringError, LockLostError, type LockReleasedError } from "../errors.js";
import { checkAtLeast, typeError } from "../options/check.js";
import { INSPECT, inspected, type InspectArguments } from "../report/inspect.js";
import type { HoldSnapshot } from "../report/snapshot.js";
import type { Lease } from "../session/lease.js";
import { holdMessage, type HoldFacts, type LockAbout } from "./events.js";
import { limitsOf, type DescribedHold, type HoldLimits, type LimitedHold } from "./hold-limits.js";

export type HoldEnd = LockLostError | LockReleasedError;

/** A hold in JSON. */
export interface HoldJson {
  readonly name: string;
  readonly key: string;
  readonly revision: string;
  readonly held: boolean;
  readonly remainingMs: number;
}

/** The members that work alike for a hold of one name and of several. */
export abstract class HoldBase implements LimitedHold {
  readonly #released = new Once(() =>
    holdEndChannel.hasSubscribers ? this.#releaseAndPublish() : this.releaseOnce(),
  );
  /** Set while the caller has the hold. */
  #about: LockAbout | undefined;
  #reported: LockAbout | undefined;
  /** When the caller got it. */
  #since = 0;
  protected limits: HoldLimits | undefined;
  /** The signals that `signalWith` has returned. */
  #with: WeakMap<AbortSignal, AbortSignal> | undefined;
  /** Private at run time, too: it leads to the credentials of the cluster. */
  readonly #lease: Lease;

  constructor(lease: Lease) {
    this.#lease = lease;
  }

  /** The lease of a hold. */
  protected static leaseOf(hold: HoldBase): Lease {
    return hold.#lease;
  }

  abstract get signal(): AbortSignal;
  abstract get held(): boolean;
  /** What events say of it. */
  abstract get facts(): HoldFacts;
  abstract remainingMs(): number;
  /** Names the hold in error messages. */
  protected abstract get label(): string;
  /** The reason of its signal, if it has ended. */
  protected abstract get end(): HoldEnd | undefined;
  protected abstract releaseOnce(): Promise<void>;

  /** A caller gets the hold: its end is published. The end of a hold that no caller got is not published. */
  started(about: LockAbout): void {
    this.#about = this.#reported = about;
    const { clock } = this.#lease.services;
    this.#since = clock.monotonic();
    const { end } = this;
    if (end instanceof LockLostError) this.ended(end.loss, end);
    else this.limits = limitsOf(this, about.options, clock);
  }

  /** What events say of it while the caller has it. */
  message(): DescribedHold | undefined {
    return this.#about && holdMessage(this.#about, this.#lease, this.facts);
  }

  /** A caller has it as a part of another hold, which has the events. */
  startedAsPart(about: LockAbout): void {
    this.#reported = about;
    this.#since = this.#lease.services.clock.monotonic();
  }

  /** For a snapshot. undefined before a caller gets it. */
  describe(): HoldSnapshot | undefined {
    if (this.#reported === undefined) return undefined;
    const { kind, name, options } = this.#reported;
    const { leaseId } = this.#lease;
    return { kind, name, label: options.label, leaseId, ...this.facts, heldMs: this.#heldMs };
  }

  /** It was held longer than its `maxHoldMs`: it is lost, and its limits release it after the grace. */
  abstract exceeded(maxHoldMs: number): void;

  /** The hold has ended. Publishes that, unless it has been published before or there is no subscriber. */
  ended(why: HoldEndReason, reason: Error | undefined, heldMs = this.#heldMs): void {
    const described = holdEndChannel.hasSubscribers ? this.message() : undefined;
    this.#about = undefined;
    if (!described) return;
    // In Node.js 20, a spread that is followed by further properties takes 30 times as long.
    const message = withJson(Object.assign(described, { heldMs, why, reason }));
    // Any call may find a loss; a release is that of its caller.
    if (why === "released") holdEndChannel.publish(message);
    else tellOutside(() => holdEndChannel.publish(message));
  }

  assertHeld(atLeastMs = 0): void {
    checkAtLeast(atLeastMs);
    const left = this.remainingMs();
    const { end } = this;
    if (end) throw end;
    if (!this.held || left < atLeastMs) throw new LockExpiringError(this.label, left);
  }

  signalWith(other: AbortSignal): AbortSignal {
    if (!(other instanceof AbortSignal)) throw typeError("signal", "an AbortSignal", other);
    const { signal } = this;
    if (signal.aborted || other.aborted || signal === other) return signal.aborted ? signal : other;
    this.#with ??= new WeakMap();
    const { aborts } = this.#lease.services;
    const both = this.#with.get(other) ?? firstAbort(aborts, [signal, other]).signal;
    this.#with.set(other, both);
    return both;
  }

  release(): Promise<void> {
    return this.#released.run();
  }

  /** @internal */
  [INSPECT](...how: InspectArguments): string {
    const read = (): Record<string, unknown> => {
      return { ...this.shown, ...this.standing };
    };
    return inspected(this.title, read, how);
  }

  async [Symbol.asyncDispose](): Promise<void> {
    await this.release();
  }

  /** How it stands now, for JSON and `console.log`. */
  protected get standing(): { readonly held: boolean; readonly remainingMs: number } {
    const { held } = this;
    return { held, remainingMs: Math.floor(this.remainingMs()) };
  }

  /** Its class, as users know it, for `console.log`. */
  protected get title(): string {
    return "Hold";
  }

  /** What identifies it, for `console.log`. */
  protected get shown(): Readonly<Record<string, unknown>> {
    const { key, revision, fence } = this.facts;
    return { name: this.label, key, ...(fence === undefined ? { revision } : { fence }) };
  }

  get #heldMs(): number {
    return this.#lease.services.clock.monotonic() - this.#since;
  }

  /** Only the answer of etcd shows whether the lock was still held. The time until that answer does not count. */
  async #releaseAndPublish(): Promise<void> {
    const heldMs = this.#heldMs;
    try {
      await this.releaseOnce();
    } catch (error) {
      const loss = error as LockLostError;
      this.ended(loss.loss, loss, heldMs);
      throw error;
    }
    this.ended("released", undefined, heldMs);
  }
}
