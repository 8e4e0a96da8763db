import { Rejected } from "./rejected.js";

/** What a check has covered so far. */
export interface TraceStats {
  steps: number;
  /** The largest number of states that explained a trace at once. */
  largest: number;
  /** How often the trace has a step, for tests that it is checked at all. */
  readonly counts: Record<string, number>;
}

export interface Checked extends Readonly<TraceStats> {
  /** The step that the model does not have, and what it would allow instead. */
  readonly rejected: string | undefined;
}

export function count({ counts }: TraceStats, step: string): void {
  counts[step] = (counts[step] ?? 0) + 1;
}

/** Runs a check up to the first step that it rejects. */
export function checked(stats: TraceStats, check: () => void): Checked {
  try {
    check();
  } catch (error) {
    if (!(error instanceof Rejected)) throw error;
    return { ...stats, rejected: error.message };
  }
  return { ...stats, rejected: undefined };
}
