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
  /** `now().monotonic` alone: Node reads the other clock from a file, at ten times the cost. */
  monotonic(): number;
  date(): Date;
  /** `run` is called outside the async context of the caller, which a timer may outlive or share with other callers. */
  after(delayMs: number, run: () => void): Timer;
  /** Calls `run` after the events that are already waiting to be read from sockets, in the context of `after`. */
  afterPendingEvents(run: () => void): Timer;
  /** In [0, 1). */
  random(): number;
  /** 63 random bits, never 0. */
  randomId(): bigint;
}

// On Linux os.uptime() includes suspend and never steps; elsewhere it may follow the wall clock, so use that one explicitly.
const suspendMs: () => number = process.platform === "linux" ? () => uptime() * 1000 : () => Date.now();

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
  now: () => ({ monotonic: performance.now(), suspend: suspendMs() }),
  monotonic: () => performance.now(),
  date: () => new Date(),
  after(delayMs, run) {
    // Node's timers fire immediately above this limit; callers that wait longer check again.
    return new SystemTimer(inOwnContext(() => setTimeout(run, Math.min(delayMs, 2_147_483_647))));
  },
  afterPendingEvents(run) {
    const immediate = inOwnContext(() => setImmediate(run));
    return { cancel: () => clearImmediate(immediate) };
  },
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
