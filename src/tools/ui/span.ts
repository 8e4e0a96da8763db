/** The spans of time that a picture may show, in seconds. */
const SPANS = [30, 60, 120, 300, 600, 1800, 3600, 7200, 21_600, 86_400];

/** The least of them that has a time so many milliseconds ago, or the longest. */
export const spanFor = (agoMs: number): number =>
  1000 * (SPANS.find((span) => span * 1000 >= agoMs) ?? SPANS.at(-1) ?? 0);
