import { ExponentialBackoff } from "cockatiel";

/** One pause in a growing sequence. Declared here so that this package's type declarations name no dependency. */
interface Backoff {
  readonly duration: number;
  next(nothing: undefined): Backoff;
}

/** Milliseconds between attempts, with decorrelated jitter; shared by calls and streams. */
export const backoff: { next(): Backoff } = new ExponentialBackoff({ initialDelay: 20, maxDelay: 1000 });
