import { usageError } from "./exit.js";

const UNITS: Readonly<Record<string, number>> = { ms: 1, s: 1000, m: 60_000, h: 3_600_000 };
/** The longest timer of Node.js. */
const MAX_MS = 2_147_483_647;

/** `30s`, `500ms`, `1.5m`, `2h`, or `0`, in milliseconds. A number without a unit is an error, because it is ambiguous. */
export function parseDuration(flag: string, text: string): number {
  const [, digits, unit] = /^(\d+(?:\.\d+)?)(ms|s|m|h)$/.exec(text === "0" ? "0s" : text) ?? [];
  const ms = Math.round(Number(digits) * (UNITS[unit ?? ""] ?? NaN));
  if (!(ms <= MAX_MS))
    throw usageError(`--${flag} must be a duration such as 30s, 500ms or 2m, got ${JSON.stringify(text)}`);
  return ms;
}

/** `41 s`, `3 min`, `2.5 h`: two digits at most say enough. */
export function formatDuration(ms: number): string {
  if (ms < 1000) return `${Math.max(0, Math.round(ms))} ms`;
  if (ms < 120_000) return `${Math.round(ms / 1000)} s`;
  if (ms < 7_200_000) return `${Math.round(ms / 60_000)} min`;
  if (ms < 172_800_000) return `${Math.round(ms / 3_600_000)} h`;
  return `${Math.round(ms / 86_400_000)} d`;
}
