import type { Clock, Timer } from "../async/clock.js";
import { holdLongChannel } from "../diagnostics/channels.js";
import { withJson } from "../diagnostics/message-json.js";
import type { HoldLongMessage } from "../diagnostics/messages.js";
import type { CheckedLock } from "../options/lock.js";

/** A hold as its events describe it. */
export type DescribedHold = Omit<HoldLongMessage, "heldMs" | "warnHoldMs">;

/** The hold of one name or of several whose time is limited. */
export interface LimitedHold {
  /** Called once. The hold is lost: its signal aborts, but its key stays. */
  exceeded(maxHoldMs: number): void;
  /** Called after the grace. Deletes the key. */
  release(): Promise<void>;
  /** undefined once its end is published. */
  message(): DescribedHold | undefined;
}

/** undefined without limits, which is the usual case: such a hold has no timer. */
export function limitsOf(hold: LimitedHold, options: CheckedLock, clock: Clock): HoldLimits | undefined {
  if (options.maxHoldMs === undefined && options.warnHoldMs === undefined) return undefined;
  return new HoldLimits(hold, options, clock);
}

/**
 * `maxHoldMs` and `warnHoldMs` of one hold, counted from its creation. The signal aborts first and the key is deleted after
 * a grace: if both happened at once, the next holder could start while the work is still stopping. Its timers alone do not
 * keep the process alive.
 */
export class HoldLimits {
  readonly #since: number;
  /** For the maximum, and then for the grace. */
  #timer: Timer | undefined;
  #warning: Timer | undefined;
  #exceeded = false;
  #stopped = false;

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

  /** The hold was lost by its maximum, and by nothing else before. */
  get exceeded(): boolean {
    return this.#exceeded;
  }

  /** Milliseconds until the maximum, or Infinity without one. If the maximum has passed, this call applies it. */
  remainingMs(): number {
    this.refresh();
    return this.exceeded ? 0 : this.#leftMs;
  }

  /** Applies the maximum if it has passed, even if no timer has fired since, because the process was suspended. */
  refresh(): void {
    const { maxHoldMs, maxHoldGraceMs = 0 } = this.options;
    if (maxHoldMs === undefined || !this.#counting || this.#leftMs > 0) return;
    this.#cancel();
    this.#exceeded = true;
    this.hold.exceeded(maxHoldMs);
    // A listener of the signal may have released the hold.
    if (this.#stopped) return;
    // Counted from here, not from the maximum: work that was suspended, or that is notified after a slow listener, has the whole
    // grace.
    this.#timer = this.#after(maxHoldGraceMs, () => void this.hold.release().catch(() => undefined));
  }

  /** The hold has ended, or its key is being deleted. */
  stop(): void {
    this.#stopped = true;
    this.#cancel();
  }

  get #counting(): boolean {
    return !this.#exceeded && !this.#stopped;
  }

  get #leftMs(): number {
    return this.#since + (this.options.maxHoldMs ?? Infinity) - this.clock.monotonic();
  }

  #awaitMaximum(leftMs: number): void {
    // Past the limit, not on it: Node.js rounds down to whole milliseconds.
    this.#timer = this.#after(leftMs + 1, () => {
      this.refresh();
      if (this.#counting) this.#awaitMaximum(this.#leftMs);
    });
  }

  #warn(warnHoldMs: number): void {
    if (!holdLongChannel.hasSubscribers) return;
    const described = this.hold.message();
    const heldMs = this.clock.monotonic() - this.#since;
    if (described) holdLongChannel.publish(withJson({ ...described, heldMs, warnHoldMs }));
  }

  #cancel(): void {
    this.#timer?.cancel();
    this.#warning?.cancel();
  }

  #after(delayMs: number, run: () => void): Timer {
    const timer = this.clock.after(delayMs, run);
    timer.unref?.();
    return timer;
  }
}
