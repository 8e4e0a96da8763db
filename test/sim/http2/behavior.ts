import type { Random } from "../../../src/testing/memory/random.js";

/** What the members, or proxies in front of them, do to unary calls that etcd has executed. Probabilities are for one call. */
export interface Behavior {
  /** Answers come up to so many milliseconds later, and so in another order. */
  reorderMs: number;
  /** The answer comes after its caller has given up. */
  late: number;
  /** GOAWAY comes in the place of the answer, and the connection ends: the call was executed. */
  goaway: number;
  /** The same, only for requests that delete and put nothing: a client that joins with another one learns from its answer. */
  goawayReleases: number;
  /** RST_STREAM with ENHANCE_YOUR_CALM comes in the place of the answer. */
  calm: number;
}

export const CORRECT: Readonly<Behavior> = { reorderMs: 0, late: 0, goaway: 0, goawayReleases: 0, calm: 0 };

/** Longer than the client's time limit for one attempt. */
const LATE_MS = [1100, 3000] as const;

export type Fate = { readonly afterMs: number } | "goaway" | "calm";

export function fateOf(behavior: Behavior, isRelease: boolean, random: Random): Fate {
  const { reorderMs, late, goaway, goawayReleases, calm } = behavior;
  if (random.chance(isRelease ? Math.max(goaway, goawayReleases) : goaway)) return "goaway";
  if (random.chance(calm)) return "calm";
  if (random.chance(late)) return { afterMs: random.between(...LATE_MS) };
  return { afterMs: random.next() * reorderMs };
}
