import { setTimeout as delay } from "node:timers/promises";
import { now } from "./journal.js";

/** The time of one process of a run: the machine's, or that of a simulated one. */
export interface LabTime {
  /** Monotonic nanoseconds. */
  now(): bigint;
  delay(ms: number): Promise<unknown>;
  /** Returns a function that cancels the timer. */
  after(ms: number, run: () => void): () => void;
  /** Calls `run` in the next turn of the event loop. */
  turn(run: () => void): void;
}

export const machineTime: LabTime = {
  now,
  delay: (ms) => delay(ms),
  after: (ms, run) => {
    const timer = setTimeout(run, ms);
    return () => clearTimeout(timer);
  },
  turn: (run) => void setImmediate(run),
};
