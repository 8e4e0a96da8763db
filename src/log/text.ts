import { printable } from "../printable.js";

/** A name, an owner or the like on one line of a log, in quotation marks. */
export const quoted = (text: string): string => `"${printable(text)}"`;

/** As one reads it: `250 ms`, `1.5 s`, `41 s`, `4 min`, `3 h`. */
export function duration(ms: number): string {
  if (ms < 1000) return `${Math.round(ms)} ms`;
  if (ms < 10_000) return `${Number((ms / 1000).toFixed(1))} s`;
  if (ms < 120_000) return `${Math.round(ms / 1000)} s`;
  return ms < 7_200_000 ? `${Math.round(ms / 60_000)} min` : `${Math.round(ms / 3_600_000)} h`;
}

export const session = (leaseId: bigint): string => `session ${leaseId.toString(16)}`;

/** The message of what was thrown, which may be anything. */
export function reason(error: unknown): string {
  return printable(error instanceof Error ? error.message : String(error), 500);
}

/** The last failure of each member. */
export function failures(members: ReadonlyMap<string, Error>): string {
  return [...members].map(([host, error]) => `${printable(host)}: ${reason(error)}`).join("; ");
}

/** A few of many names, with their number. */
export function listed(names: readonly string[], count: number): string {
  const rest = count > names.length ? ` and ${count - names.length} more` : "";
  return `${names.map(quoted).join(", ")}${rest}`;
}
