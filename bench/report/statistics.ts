const sorted = (values: readonly number[]) => [...values].sort((a, b) => a - b);

/** `NaN` for an empty list, or if one of the values is `NaN`. */
export function median(values: readonly number[]): number {
  if (values.some(Number.isNaN)) return NaN;
  const all = sorted(values);
  const middle = Math.floor(all.length / 2);
  if (all.length % 2 === 1) return all[middle] as number;
  return ((all[middle - 1] ?? NaN) + (all[middle] ?? NaN)) / 2;
}

/** The smallest value that at least `percent` percent of all values do not exceed. `NaN` for an empty list. */
export function percentile(values: readonly number[], percent: number): number {
  const all = sorted(values);
  return all[Math.max(0, Math.ceil((percent / 100) * all.length) - 1)] ?? NaN;
}

/** The median of each figure over the rounds. */
export function medians(rounds: readonly Readonly<Record<string, number>>[]): Record<string, number> {
  const names = [...new Set(rounds.flatMap((round) => Object.keys(round)))];
  return Object.fromEntries(names.map((name) => [name, median(rounds.map((round) => round[name] ?? NaN))]));
}
