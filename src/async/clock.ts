import { randomFillSync } from "node:crypto";
import { uptime } from "node:os";
import { AbortFanOut } from "./abort-fan-out.js";

/** A moment on both clocks. A lease is judged on both: neither alone sees a suspended machine *and* ignores a stepped one. */
export interface Moment {
  /** Monotonic milliseconds; on Linux they stand still while the machine is suspended. */
  readonly monotonic: number;
  /** Milliseconds that go on during suspend; elsewhere than on Linux the wall clock, which may step. */
  readonly suspend: number;
}

export interface Timer {
  cancel(): void;
}

/** Time and randomness, handed in from outside so that races can be tested. */
export interface Clock {
  now(): Moment;
  /** The first of the two alone: Node reads the other one from a file, at ten times the cost. */
  monotonic(): number;
  date(): Date;
  after(delayMs: number, run: () => void): Timer;
  /** Runs after the events that are already waiting to be read from sockets. */
  afterPendingEvents(run: () => void): Timer;
  /** In [0, 1). */
  random(): number;
  /** 63 random bits, never 0. */
  randomId(): bigint;
}

// os.uptime() counts suspend and knows no steps on Linux; elsewhere it may follow the wall clock, so take that one openly.
const suspendMs: () => number = process.platform === "linux" ? () => uptime() * 1000 : () => Date.now();

/** Fetched in bulk: asking the system for so few takes longer than all the rest of a place. */
const randomness = Buffer.alloc(1024);
let used = randomness.length;

function randomId(): bigint {
  if (used === randomness.length) {
    randomFillSync(randomness);
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
}

export const systemClock: Clock = {
  now: () => ({ monotonic: performance.now(), suspend: suspendMs() }),
  monotonic: () => performance.now(),
  date: () => new Date(),
  after(delayMs, run) {
    // Node's timers fire at once beyond this; who waits that long looks again.
    return new SystemTimer(setTimeout(run, Math.min(delayMs, 2_147_483_647)));
  },
  afterPendingEvents(run) {
    const immediate = setImmediate(run);
    return { cancel: () => clearImmediate(immediate) };
  },
  random: Math.random,
  randomId,
};

const pauses = new AbortFanOut();

/** Resolves after `delayMs`, or at once when `signal` aborts. Never rejects: the caller looks at its signal anyway. */
export function pause(clock: Clock, delayMs: number, signal?: AbortSignal): Promise<void> {
  if (signal?.aborted) return Promise.resolve();
  return new Promise((resolve) => {
    const end = (): void => {
      timer.cancel();
      stop();
      resolve();
    };
    const timer = clock.after(delayMs, end);
    const stop = pauses.add(signal, end);
  });
}
