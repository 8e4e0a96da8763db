import type { Kernel } from "../kernel/kernel.js";

/** Longer waits for the next event are shortened to this, if quiet time is skipped. */
const QUIET_MS = 200;
/** Delays of the real machine up to this are made up for. */
const MOST_LATE_MS = 50;
/** So long the kernel runs before the server's own work gets a turn. */
const SLICE_MS = 10;
/** `setTimeout` is not exact: shorter waits are a turn of the event loop. */
const LEAST_WAIT_MS = 1;

/** The real time between two events, in which virtual time passes evenly. */
interface Gap {
  readonly from: number;
  readonly to: number;
  readonly realFrom: number;
  readonly realMs: number;
}

/**
 * Asked before each event. "check again": something was scheduled, perhaps before that event. "run": the event is not held.
 */
export type BeforeEvent = () => "check again" | "run" | undefined;

/**
 * Holds the kernel before each event until its time has come in real time, or while it is paused. The kernel runs the same events
 * as without it.
 */
export class Pacer {
  /** Virtual milliseconds in a real one. */
  speed = 0.005;
  skipsQuiet = true;
  /** The time of the event before which the kernel is held. */
  next = 0;
  #playing = false;
  #ended = false;
  #gap: Gap = { from: 0, to: 0, realFrom: 0, realMs: 0 };
  #sliceFrom = 0;
  /** While paused: events run until this returns true. */
  #seek: (() => boolean) | undefined;
  #wake: (() => void) | undefined;

  /** `kernel`: what it has run so far. */
  constructor(
    private readonly kernel: () => Pick<Kernel, "now" | "events">,
    private readonly beforeEvent: BeforeEvent,
  ) {}

  get playing(): boolean {
    return this.#playing;
  }

  /** The virtual time that is shown: between the last event and the next one. */
  get now(): number {
    const { from, to, realFrom, realMs } = this.#gap;
    const part = realMs > 0 ? Math.min(1, Math.max(0, (performance.now() - realFrom) / realMs)) : 1;
    return Math.max(this.kernel().now, from + (to - from) * part);
  }

  /** How fast `now` moves. */
  get rate(): number {
    const { from, to, realMs } = this.#gap;
    return this.#playing && realMs > 0 ? (to - from) / realMs : 0;
  }

  play(): void {
    this.#seek = undefined;
    this.#freeze();
    this.#playing = true;
    this.wake();
  }

  pause(): void {
    this.#freeze();
    this.#playing = false;
    this.#seek = undefined;
    this.wake();
  }

  /** Pauses as soon as `until()`, which is asked before each event. */
  seek(until: () => boolean): void {
    this.#freeze();
    this.#playing = false;
    this.#seek = until;
    this.wake();
  }

  /** The next event, and no more. */
  step(): void {
    const { events } = this.kernel();
    this.seek(() => this.kernel().events > events);
  }

  setSpeed(speed: number, skipsQuiet: boolean): void {
    this.#freeze();
    this.speed = speed;
    this.skipsQuiet = skipsQuiet;
    this.wake();
  }

  /** The kernel is held forever. */
  end(): void {
    this.#ended = true;
  }

  /** Checks again: an order has arrived. */
  wake(): void {
    this.#wake?.();
  }

  readonly hold = (time: number): Promise<void> | undefined => {
    if (this.#ended) return new Promise(() => {});
    this.next = time;
    const asked = this.beforeEvent();
    if (asked === "check again") return Promise.resolve();
    if (asked === "run") return undefined;
    if (!this.#playing) return this.#heldPaused(time);
    const waitMs = this.#waitMs(time);
    return waitMs > 0 ? this.#sleep(waitMs) : this.#yieldIfDue();
  };

  #heldPaused(time: number): Promise<void> | undefined {
    if (this.#seek === undefined || this.#seek()) {
      this.#seek = undefined;
      return this.#sleep();
    }
    this.#gap = { from: time, to: time, realFrom: 0, realMs: 0 };
    return this.#yieldIfDue();
  }

  #waitMs(time: number): number {
    const real = performance.now();
    if (this.#gap.to !== time) this.#gap = this.#newGap(time, real);
    return this.#gap.realFrom + this.#gap.realMs - real;
  }

  #newGap(to: number, real: number): Gap {
    const from = this.now;
    const realMs = Math.max(0, to - from) / this.speed;
    const due = this.#gap.realFrom + this.#gap.realMs;
    return {
      ...{ from, to },
      realFrom: Math.min(real, Math.max(due, real - MOST_LATE_MS)),
      realMs: this.skipsQuiet ? Math.min(realMs, QUIET_MS) : realMs,
    };
  }

  /** What is shown now stays, whatever the speed becomes. */
  #freeze(): void {
    const { now } = this;
    this.#gap = { from: now, to: now, realFrom: performance.now(), realMs: 0 };
  }

  #sleep(ms?: number): Promise<void> {
    return new Promise((resolve) => {
      const wake = (): void => {
        clearTimeout(timer);
        this.#wake = undefined;
        this.#sliceFrom = performance.now();
        resolve();
      };
      const timer = ms === undefined ? undefined : setTimeout(wake, Math.max(LEAST_WAIT_MS, ms));
      this.#wake = wake;
    });
  }

  #yieldIfDue(): Promise<void> | undefined {
    const real = performance.now();
    if (real - this.#sliceFrom < SLICE_MS) return undefined;
    this.#sliceFrom = real;
    return new Promise((resolve) => setImmediate(resolve));
  }
}
