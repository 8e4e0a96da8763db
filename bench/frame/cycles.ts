// What contenders noted, as figures: pure.
import { median, percentile } from "../report/statistics.js";

/** Times are nanoseconds. */
export interface Cycle {
  readonly asked: number;
  readonly granted: number;
  /** Release called. */
  readonly released: number;
}

export interface Span {
  readonly from: number;
  readonly to: number;
}

const FIELDS = 3;
const MS = 1e6;

/** By the time of the grant. */
export function cyclesOf(journals: readonly (readonly number[])[]): Cycle[] {
  const all = journals.flatMap((journal) =>
    Array.from({ length: journal.length / FIELDS }, (_, n) => {
      const [asked = 0, granted = 0, released = 0] = journal.slice(n * FIELDS, (n + 1) * FIELDS);
      return { asked, granted, released };
    }),
  );
  return all.sort((a, b) => a.granted - b.granted);
}

export const within = (cycles: readonly Cycle[], { from, to }: Span): Cycle[] =>
  cycles.filter(({ granted }) => granted >= from && granted < to);

/** Milliseconds from each release to the grant of the next hold of the one lock. Throws if two held at a time. */
export function handOvers(cycles: readonly Cycle[]): number[] {
  return cycles.slice(1).map(({ granted }, n) => {
    const latency = (granted - (cycles[n] as Cycle).released) / MS;
    if (latency < 0) throw new Error(`two held the lock at a time, for ${-latency} ms`);
    return latency;
  });
}

export const waitsMs = (cycles: readonly Cycle[]) =>
  cycles.map(({ asked, granted }) => (granted - asked) / MS);

export const perSecond = (count: number, { from, to }: Span) => count / ((to - from) / (1000 * MS));

/** Of the hand-overs within a span. */
export function latencies(cycles: readonly Cycle[]): { readonly p50: number; readonly p99: number } {
  const all = handOvers(cycles);
  return { p50: median(all), p99: percentile(all, 99) };
}
