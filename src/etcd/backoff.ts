import { ExponentialBackoff } from "cockatiel";

/** One pause of a row that grows. A type of our own: the declarations of this package name no dependency. */
interface Backoff {
  readonly duration: number;
  next(nothing: undefined): Backoff;
}

/** Milliseconds between attempts, with decorrelated jitter; shared by calls and streams. */
export const backoff: { next(): Backoff } = new ExponentialBackoff({ initialDelay: 20, maxDelay: 1000 });
