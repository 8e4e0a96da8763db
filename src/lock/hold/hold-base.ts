import { LockExpiringError, LockLostError, type LockReleasedError } from "../../errors.js";
import { checkAtLeast, checkFunction, typeError } from "../../base/options/check.js";
import type { CheckedLock } from "../../base/options/lock.js";
import type { Lease } from "../session/lease.js";
import { holdEndChannel, holdLongChannel } from "../../base/telemetry/channels.js";
import {
  type HoldSnapshot,
  INSPECT,
  type InspectArguments,
  inspected,
} from "../../base/telemetry/inspect.js";
import type { HoldEndReason, HoldLongMessage } from "../../base/telemetry/messages.js";
import { withJson } from "../../base/telemetry/publish.js";
import { firstAbort } from "../../base/util/abort.js";
import type { Clock, Timer } from "../../base/util/clock.js";
import { nextTick, tellOutside } from "../../base/util/own-context.js";
import { printable } from "../../base/util/printable.js";
import { type HoldFacts, holdMessage, type LockAbout } from "./events.js";
import { isAbortSignal } from "../../base/util/realm.js";
import type { Contender } from "../../contender.js";
import type { WantedListener } from "../queue/demand.js";
import { listenerOf, Waiters } from "./wanted.js";

/** Work that the first call starts and every call waits for. The promise may be left un-awaited. */
class Once {
  #done: Promise<void> | undefined;
  #began = false;
  #settle: ((done: Promise<void>) => void) | undefined;

  constructor(private readonly begin: () => Promise<void>) {}

  get began(): boolean {
    return this.#began;
  }

  run(): Promise<void> {
    if (this.#began) return (this.#done ??= this.#own(new Promise((resolve) => (this.#settle = resolve))));
    this.#began = true;
    const done = this.begin();
    // The work itself has called `run` before it waited for anything.
    if (this.#settle) this.#settle(done);
    else this.#done = this.#own(done);
    return this.#done as Promise<void>;
  }

  /** `void lock.release()` must not become an unhandled rejection; a caller that awaits it still gets the error. */
  #own(done: Promise<void>): Promise<void> {
    done.catch(() => undefined);
    return done;
  }
}

/** A hold as its events describe it. */
type DescribedHold = Omit<HoldLongMessage, "heldMs" | "warnHoldMs">;

/** What may end a hold while its key is there: its maximum, or work that stands still. */
export interface HoldLimit {
  /** Ends the hold if its time is over, even if no timer has fired since, because the process was suspended. */
  refresh(): void;
  /** Milliseconds that are left, after `refresh`. */
  remainingMs(): number;
  stop(): void;
}

/** The hold of one name or of several whose time is limited. */
interface LimitedHold {
  /** Called once. The hold is lost: its signal aborts, but its key stays. */
  exceeded(maxHoldMs: number): void;
  releaseAfter(graceMs: number): void;
  /** undefined once its end is published. */
  message(): DescribedHold | undefined;
}

/** undefined without limits, which is the usual case: such a hold has no timer. */
function limitsOf(hold: LimitedHold, options: CheckedLock, clock: Clock): HoldLimit | undefined {
  if (options.maxHoldMs === undefined && options.warnHoldMs === undefined) return undefined;
  return new HoldLimits(hold, options, clock);
}

/**
 * `maxHoldMs` and `warnHoldMs` of one hold, counted from its creation. The signal aborts first and the key is deleted after
 * a grace: if both happened at once, the next holder could start while the work is still stopping. Its timers alone do not
 * keep the process alive.
 */
class HoldLimits implements HoldLimit {
  readonly #since: number;
  #timer: Timer | undefined;
  #warning: Timer | undefined;
  #over = false;

  constructor(
    private readonly hold: LimitedHold,
    private readonly options: CheckedLock,
    private readonly clock: Clock,
  ) {
    this.#since = clock.monotonic();
    const { warnHoldMs } = options;
    if (options.maxHoldMs !== undefined) this.#awaitMaximum(options.maxHoldMs);
    if (warnHoldMs !== undefined) this.#warning = this.#after(warnHoldMs, () => this.#warn(warnHoldMs));
  }

  /** Milliseconds until the maximum, or Infinity without one. */
  remainingMs(): number {
    this.refresh();
    return Math.max(0, this.#leftMs);
  }

  refresh(): void {
    const { maxHoldMs, maxHoldGraceMs = 0 } = this.options;
    if (maxHoldMs === undefined || this.#over || this.#leftMs > 0) return;
    this.stop();
    this.hold.exceeded(maxHoldMs);
    this.hold.releaseAfter(maxHoldGraceMs);
  }

  stop(): void {
    this.#over = true;
    this.#timer?.cancel();
    this.#warning?.cancel();
  }

  get #leftMs(): number {
    return this.#since + (this.options.maxHoldMs ?? Infinity) - this.clock.monotonic();
  }

  #awaitMaximum(leftMs: number): void {
    // Past the limit, not on it: Node.js rounds down to whole milliseconds.
    this.#timer = this.#after(leftMs + 1, () => {
      this.refresh();
      if (!this.#over) this.#awaitMaximum(this.#leftMs);
    });
  }

  #warn(warnHoldMs: number): void {
    if (!holdLongChannel.hasSubscribers) return;
    const described = this.hold.message();
    const heldMs = this.clock.monotonic() - this.#since;
    if (described) holdLongChannel.publish(withJson({ ...described, heldMs, warnHoldMs }));
  }

  #after(delayMs: number, run: () => void): Timer {
    const timer = this.clock.after(delayMs, run);
    timer.unref?.();
    return timer;
  }
}

export type HoldEnd = LockLostError | LockReleasedError;

/** A hold in JSON. */
export interface HoldJson {
  readonly name: string;
  readonly key: string;
  readonly revision: string;
  readonly held: boolean;
  readonly remainingMs: number;
}

/** Their end was written: one line for all holds that end with one session. */
const warned = new WeakSet<Lease>();
const MAX_WARNING = 500;

/** Without a logger, a subscriber and a use of its `signal`, nothing else shows a loss before the release. */
function warnOfLoss(lease: Lease, { message }: Error): void {
  if (lease.over) {
    if (warned.has(lease)) return;
    warned.add(lease);
  }
  const text = `${printable(message, MAX_WARNING)}. Use lock.signal, or connect({ log: console }).`;
  process.emitWarning(text, { type: "LeaseholdWarning", code: "LOCK_LOST" });
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
  #since: number | undefined;
  protected limits: HoldLimit | undefined;
  /** Until the key of a hold that is lost is deleted. */
  #grace: Timer | undefined;
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
  abstract get wanted(): boolean;
  abstract remainingMs(): number;
  /** Returns the function that ends it. */
  abstract listenForWaiters(listener: WantedListener): () => void;
  /** Names the hold in error messages. */
  protected abstract get label(): string;
  /** The reason of its signal, if it has ended. */
  protected abstract get end(): HoldEnd | undefined;
  /** After a deletion of its key: resolves when it is known why, or after `patienceMs`. Never rejects. */
  abstract get explained(): Promise<void> | undefined;
  protected abstract releaseOnce(): Promise<void>;
  /** Whether somebody has read `signal`, which reports the end. */
  protected abstract get observed(): boolean;

  /** A caller gets the hold: its end is published. The end of a hold that no caller got is not published. */
  started(about: LockAbout): void {
    this.#about = this.#reported = about;
    const { clock } = this.#lease.services;
    this.#since = clock.monotonic();
    const { end } = this;
    if (end instanceof LockLostError) this.#endedBefore(end);
    else this.limits = limitsOf(this, about.options, clock);
  }

  /** A deletion is reported when it is explained: until then, the caller may read the `signal`. */
  #endedBefore(loss: LockLostError): void {
    const report = (): void => this.ended(loss.loss, loss, 0);
    if (this.explained) void this.explained.then(report);
    else report();
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
    return { kind, name, label: options.label, leaseId, ...this.facts, heldMs: this.heldMs };
  }

  /** The hold has lasted longer than its `maxHoldMs`: it is lost, and its limits release it after the grace. */
  abstract exceeded(maxHoldMs: number): void;

  /** The hold has ended. Publishes that, or warns of a loss that nothing else reports, unless it was published before. */
  ended(reason: HoldEndReason, error: Error | undefined, heldMs = this.heldMs): void {
    const described = this.message();
    this.#about = undefined;
    if (!described) return;
    if (!holdEndChannel.hasSubscribers) {
      if (error && reason !== "closed" && !this.observed) this.#warnUnlessObserved(error);
      return;
    }
    // In Node.js 20, a spread that is followed by further properties takes 30 times as long.
    const message = withJson(Object.assign(described, { heldMs, reason, error }));
    // Any call may find a loss; a release is that of its caller.
    if (reason === "released") holdEndChannel.publish(message);
    else tellOutside(() => holdEndChannel.publish(message));
  }

  /** After the microtasks: a hold that was granted in this turn may be lost before its caller, who awaits it, can read its signal. */
  #warnUnlessObserved(loss: Error): void {
    nextTick(() => {
      if (!this.observed) warnOfLoss(this.#lease, loss);
    });
  }

  assertHeld(atLeastMs = 0): void {
    checkAtLeast(atLeastMs);
    const left = this.remainingMs();
    const { end } = this;
    if (end) throw end;
    if (!this.held || left < atLeastMs) throw new LockExpiringError(this.label, left);
  }

  signalWith(other: AbortSignal): AbortSignal {
    if (!isAbortSignal(other)) throw typeError("signal", "an AbortSignal", other);
    const { signal } = this;
    if (signal.aborted || other.aborted || signal === other) return signal.aborted ? signal : other;
    this.#with ??= new WeakMap();
    const { aborts } = this.#lease.services;
    const both = this.#with.get(other) ?? firstAbort(aborts, [signal, other]).signal;
    this.#with.set(other, both);
    return both;
  }

  onWanted(listener: (waiter: Contender) => void): () => void {
    checkFunction("listener", listener);
    return this.listenForWaiters(listenerOf(listener));
  }

  waiters(): AsyncIterableIterator<Contender> {
    return new Waiters((listener) => this.listenForWaiters(listener));
  }

  /** A lost hold whose key is there is released after that time, unless a listener of its signal has done so, or its caller does before. */
  releaseAfter(graceMs: number): void {
    if (this.#released.began) return;
    // Counted from here: work that was suspended, or that is notified after a slow listener, has the whole grace.
    this.#grace = this.#lease.services.clock.after(graceMs, () => void this.release().catch(() => undefined));
    this.#grace.unref?.();
  }

  /** The hold has ended otherwise, or its key is being deleted. */
  protected stopLimits(): void {
    this.limits?.stop();
    this.#grace?.cancel();
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

  /** The name of the class, as users know it, for `console.log`. */
  protected get title(): string {
    return "Hold";
  }

  /** What identifies it, for `console.log`. */
  protected get shown(): Readonly<Record<string, unknown>> {
    const { key, revision, fence } = this.facts;
    return { name: this.label, key, ...(fence === undefined ? { revision } : { fence }) };
  }

  protected get heldMs(): number {
    return this.#since === undefined ? 0 : this.#lease.services.clock.monotonic() - this.#since;
  }

  /** Only the answer of etcd shows whether the lock was still held. The time until that answer does not count. */
  async #releaseAndPublish(): Promise<void> {
    const heldMs = this.heldMs;
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
