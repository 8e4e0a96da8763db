import type { Random } from "../kernel/random.js";

/** What the members, or proxies in front of them, do to unary calls that etcd has executed. Probabilities are for one call. */
export interface Behavior {
  /** Answers come up to so many milliseconds later, and so in another order. */
  reorderMs: number;
  /** The answer comes after its caller has given up. */
  late: number;
  /** GOAWAY comes in the place of the answer, and the connection ends: the call was executed. */
  goaway: number;
  /** RST_STREAM with ENHANCE_YOUR_CALM comes in the place of the answer. */
  calm: number;
}

export const CORRECT: Readonly<Behavior> = { reorderMs: 0, late: 0, goaway: 0, calm: 0 };

/** Longer than the client's time limit for one attempt. */
const LATE_MS = [1100, 3000] as const;

export type Fate = { readonly afterMs: number } | "goaway" | "calm";

export function fateOf({ reorderMs, late, goaway, calm }: Behavior, random: Random): Fate {
  if (random.chance(goaway)) return "goaway";
  if (random.chance(calm)) return "calm";
  if (random.chance(late)) return { afterMs: random.between(...LATE_MS) };
  return { afterMs: random.next() * reorderMs };
}
