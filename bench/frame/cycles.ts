// Computes figures from what contenders recorded; pure functions.
import { median, percentile } from "../report/statistics.js";

/** Times are in nanoseconds. */
export interface Cycle {
  /** A number that is unique among contenders. */
  readonly contender: number;
  readonly asked: number;
  readonly granted: number;
  /** When release was called. */
  readonly released: number;
}

export interface Span {
  readonly from: number;
  readonly to: number;
}

const FIELDS = 4;
/** No process has more contenders. */
const MOST = 1e6;
const MS = 1e6;

/** Sorted by the time of the grant. */
export function cyclesOf(journals: readonly (readonly number[])[]): Cycle[] {
  const all = journals.flatMap((journal, process) =>
    Array.from({ length: journal.length / FIELDS }, (_, row) => {
      const [n = 0, asked = 0, granted = 0, released = 0] = journal.slice(row * FIELDS, (row + 1) * FIELDS);
      return { contender: process * MOST + n, asked, granted, released };
    }),
  );
  return all.sort((a, b) => a.granted - b.granted);
}

export const within = (cycles: readonly Cycle[], { from, to }: Span): Cycle[] =>
  cycles.filter(({ granted }) => granted >= from && granted < to);

/** Milliseconds from each release to the grant of the next hold of the only lock. Throws if two held at a time. */
export function handOvers(cycles: readonly Cycle[]): number[] {
  return cycles.slice(1).map(({ granted }, n) => {
    const latency = (granted - (cycles[n] as Cycle).released) / MS;
    if (latency < 0) throw new Error(`two held the lock at a time, for ${-latency} ms`);
    return latency;
  });
}

export const waitsMs = (cycles: readonly Cycle[]) =>
  cycles.map(({ asked, granted }) => (granted - asked) / MS);

/**
 * Milliseconds that each of `foreign` waited outside of the last section before its grant, which is of the contender of the same number
 * in `own`: an earlier section counts as a part of the wait.
 */
export function besideLastSectionMs(own: readonly Cycle[], foreign: readonly Cycle[]): number[] {
  return foreign.map(({ contender, asked, granted }) => {
    const last = own.findLast(
      (hold) => hold.contender % MOST === contender % MOST && hold.released <= granted,
    );
    const met = last ? Math.max(0, last.released - Math.max(last.granted, asked)) : 0;
    return (granted - asked - met) / MS;
  });
}

/** What a process that locks and releases as fast as it can has noted within the span. */
export function pairsOf(journal: readonly number[], { from, to }: Span) {
  const rows = Array.from({ length: journal.length / 3 }, (_, row) => {
    const [at = 0, pairs = 0, pairNs = 0] = journal.slice(3 * row, 3 * row + 3);
    return { at, pairs, pairNs };
  }).filter(({ at }) => at >= from && at < to);
  const [first, ...others] = rows;
  const count = others.reduce((sum, { pairs }) => sum + pairs, 0);
  const seconds = ((others.at(-1)?.at ?? NaN) - (first?.at ?? NaN)) / (1000 * MS);
  return { rate: count / seconds, p50: median(others.map(({ pairNs }) => pairNs / 1000)) };
}

export const perSecond = (count: number, { from, to }: Span) => count / ((to - from) / (1000 * MS));

/** For the hand-overs within a span. */
export function latencies(cycles: readonly Cycle[]): { readonly p50: number; readonly p99: number } {
  const all = handOvers(cycles);
  return { p50: median(all), p99: percentile(all, 99) };
}

/** The percentage of hand-overs that went to another contender: a contender that queues goes behind the others. */
export function percentToOthers(cycles: readonly Cycle[]): number {
  const others = cycles.filter(({ contender }, n) => n > 0 && contender !== cycles[n - 1]?.contender);
  return (100 * others.length) / (cycles.length - 1);
}

/** The longest time that one of `contenders` was without the lock, even if it never got it in the span. */
export function longestWaitMs(cycles: readonly Cycle[], span: Span, contenders: number): number {
  const lastReleases = new Map(cycles.map(({ contender, released }) => [contender, released]));
  const starved = lastReleases.size < contenders ? [span.from] : [];
  const stillWaiting = [...starved, ...lastReleases.values()].map((since) => (span.to - since) / MS);
  return Math.max(...stillWaiting, ...waitsMs(cycles));
}
