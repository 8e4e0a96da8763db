import { usageError } from "../command-line/exit.js";

/** What `--limit` of a command may be. */
export interface Limits {
  readonly command: string;
  readonly fallback: number;
  readonly max: number;
}

/** The value of `--limit`. */
export function parseLimit(text: string | undefined, { command, fallback, max }: Limits): number {
  if (text === undefined) return fallback;
  const limit = /^\d{1,15}$/.test(text) ? Number(text) : NaN;
  if (limit >= 1 && limit <= max) return limit;
  const rule = max === Infinity ? "a whole number from 1" : `a whole number from 1 to ${max}`;
  throw usageError(`--limit must be ${rule}, got ${JSON.stringify(text)}`, command);
}
