// Time and randomness come in from outside, as a `Clock`. Beside this file, only `testing/`, which runs in tests, and the
// page in the browser set timers of their own. A timer runs in the library's own async context.
import { uptime } from "node:os";
import { AbortFanOut } from "./abort.js";
import { clearImmediate, clearTimeout, inOwnContext, setImmediate, setTimeout } from "./own-context.js";

/** A moment on two clocks. Leases are checked on both: neither alone detects suspend *and* ignores clock steps. */
export interface Moment {
  /** Monotonic milliseconds; on Linux this clock stops while the machine is suspended. */
  readonly monotonic: number;
  /** Milliseconds that include suspend; on systems other than Linux the wall clock, which may step. */
  readonly suspend: number;
}

export interface Timer {
  cancel(): void;
  /** The timer alone does not keep the process alive. */
  unref?(): void;
}

/** Time and randomness, injected so that races can be tested. */
export interface Clock {
  now(): Moment;
  /** `now().monotonic` alone. */
  monotonic(): number;
  date(): Date;
  /** `run` is called outside the async context of the caller, which a timer may outlive or share with other callers. */
  after(delayMs: number, run: () => void): Timer;
  /** Calls `run` after the events that are already waiting to be read from sockets, in the context of `after`. */
  afterPendingEvents(run: () => void): Timer;
  /** Like `after`, for a pause in which busy processes do their work. Virtual time leaves it out, as nobody is busy there. */
  pace(delayMs: number, run: () => void): Timer;
  /** In [0, 1). */
  random(): number;
  /** 63 random bits, never 0. */
  randomId(): bigint;
}

/** The wall clock has steps of 1 ms, and two readings of it are compared. */
const WALL_STEP_MS = 2;
const REREAD_MS = 1000;

/**
 * Milliseconds that include suspend, on Linux. `os.uptime()` has them and never steps, but Node reads it from a file, which takes 50 times as
 * long as another clock. When a suspend ends, Linux moves the wall clock by the same time. So as long as the wall clock has not moved against
 * the monotonic one, nothing was suspended since the last reading of the file. A step of the wall clock costs a reading. One that undoes a
 * suspend to the millisecond, before anybody asks for the time, hides that suspend for a second at most.
 */
export class SuspendClock {
  #ahead = NaN;
  #readAt = -Infinity;
  #uptimeMs = 0;

  constructor(
    private readonly wall: () => number,
    private readonly uptimeMs: () => number,
    private readonly monotonic: () => number,
  ) {}

  /** `monotonic`: that clock, just read. */
  at(monotonic: number): number {
    const ahead = this.wall() - monotonic;
    const isSteady = Math.abs(ahead - this.#ahead) < WALL_STEP_MS && monotonic - this.#readAt < REREAD_MS;
    if (isSteady) return this.#uptimeMs + monotonic - this.#readAt;
    this.#uptimeMs = this.uptimeMs();
    this.#readAt = monotonic;
    // If the process stood still meanwhile, the time of the reading is unknown, so the next call reads again.
    this.#ahead = this.monotonic() - monotonic < WALL_STEP_MS ? ahead : NaN;
    return this.#uptimeMs;
  }
}

const monotonicMs = (): number => performance.now();
const linux = new SuspendClock(Date.now, () => uptime() * 1000, monotonicMs);
/** Elsewhere, `os.uptime()` may follow the wall clock: that one is used, openly. */
const suspendMs = process.platform === "linux" ? (at: number) => linux.at(at) : () => Date.now();

function now(): Moment {
  const monotonic = monotonicMs();
  return { monotonic, suspend: suspendMs(monotonic) };
}

/** Fetched in bulk: asking the system for so few bytes takes longer than everything else that a queue entry needs. */
const randomness = Buffer.alloc(1024);
let used = randomness.length;

function randomId(): bigint {
  if (used === randomness.length) {
    process.getBuiltinModule("node:crypto").randomFillSync(randomness);
    used = 0;
  }
  const id = randomness.readBigUInt64BE(used) & 0x7fff_ffff_ffff_ffffn;
  used += 8;
  return id === 0n ? 1n : id;
}

class SystemTimer implements Timer {
  constructor(private readonly timeout: NodeJS.Timeout) {}

  cancel(): void {
    clearTimeout(this.timeout);
  }

  unref(): void {
    this.timeout.unref();
  }
}

export const systemClock: Clock = {
  now,
  monotonic: monotonicMs,
  date: () => new Date(),
  after(delayMs, run) {
    // Node's timers fire immediately above this limit; callers that wait longer check again.
    return new SystemTimer(inOwnContext(() => setTimeout(run, Math.min(delayMs, 2_147_483_647))));
  },
  afterPendingEvents(run) {
    const immediate = inOwnContext(() => setImmediate(run));
    return { cancel: () => clearImmediate(immediate) };
  },
  pace: (delayMs, run) => systemClock.after(delayMs, run),
  random: Math.random,
  randomId,
};

const pauses = new AbortFanOut();

/** Resolves after `delayMs`, or immediately when a signal aborts. Never rejects: callers check their signals themselves. */
export function pause(
  clock: Clock,
  delayMs: number,
  ...signals: readonly (AbortSignal | undefined)[]
): Promise<void> {
  if (signals.some((signal) => signal?.aborted)) return Promise.resolve();
  return new Promise((resolve) => {
    const end = (): void => {
      timer.cancel();
      for (const stop of stops) stop();
      resolve();
    };
    const timer = clock.after(delayMs, end);
    const stops = signals.map((signal) => pauses.add(signal, end));
  });
}
