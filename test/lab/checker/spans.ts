/** A stretch of time, both ends included. */
export interface Span {
  readonly from: bigint;
  readonly to: bigint;
}

/** Later than anything in a run. */
export const FOREVER = 2n ** 62n;

export const order = (a: bigint, b: bigint) => (a < b ? -1 : a > b ? 1 : 0);
export const later = (a: bigint, b: bigint) => (a > b ? a : b);
export const earlier = (a: bigint, b: bigint) => (a < b ? a : b);
export const byStart = (a: Span, b: Span) => order(a.from, b.from);

/** The same time as ordered stretches that do not touch each other, which the functions below expect. */
export function merged(spans: readonly Span[]): readonly Span[] {
  const found: Span[] = [];
  for (const { from, to } of [...spans].sort(byStart)) {
    const last = found.at(-1);
    if (last === undefined || from > last.to) found.push({ from, to });
    else if (to > last.to) found[found.length - 1] = { from: last.from, to };
  }
  return found;
}

/** The last stretch that has started by then. */
export function lastBegun(spans: readonly Span[], at: bigint): Span | undefined {
  return spans[countBegun(spans, at) - 1];
}

/** Those that have a moment in common with `span`. */
export function touching(spans: readonly Span[], { from, to }: Span): readonly Span[] {
  const end = countBegun(spans, to);
  let start = countBegun(spans, from);
  if (start > 0 && (spans[start - 1]?.to ?? 0n) >= from) start--;
  return spans.slice(start, end);
}

/** How much of `span` they cover. */
export function covered(spans: readonly Span[], span: Span): bigint {
  return touching(spans, span).reduce(
    (sum, { from, to }) => sum + earlier(to, span.to) - later(from, span.from),
    0n,
  );
}

/** What is left of `span` after `holes` are removed. */
export function without(span: Span, holes: readonly Span[]): Span[] {
  const touched = touching(holes, span);
  const rest: Span[] = [];
  let { from } = span;
  for (const hole of touched) {
    if (from < hole.from) rest.push({ from, to: hole.from });
    from = hole.to;
  }
  if (from < span.to || touched.length === 0) rest.push({ from, to: span.to });
  return rest;
}

const countBegun = (spans: readonly Span[], at: bigint) => countUntil(spans, at, ({ from }) => from);

/** How many of the items, in order of their times, are no later than `at`. */
export function countUntil<T>(items: readonly T[], at: bigint, timeOf: (item: T) => bigint): number {
  let low = 0;
  let high = items.length;
  while (low < high) {
    const middle = (low + high) >> 1;
    if (timeOf(items[middle] as T) <= at) low = middle + 1;
    else high = middle;
  }
  return low;
}
