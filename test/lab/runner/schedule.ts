import { seeded, type Random } from "./random.js";
import type { FaultKind } from "./ground.js";
import type { Effect } from "./history.js";

/** One fault of a schedule. */
export interface Planned {
  /** Its number, which a replay uses to select faults. */
  readonly n: number;
  /** After the start of the run. */
  readonly atMs: number;
  readonly lastsMs: number;
  readonly fault: string;
}

export interface PlanOptions {
  readonly seed: string;
  readonly seconds: number;
  readonly ttlMs: number;
  readonly kinds: readonly FaultKind<never>[];
  /** Milliseconds between the end of one fault and the start of the next of the same series. */
  readonly gapMs: readonly [number, number];
  /** Milliseconds that every fault with a duration lasts; default: determined by its kind. */
  readonly lastsMs?: readonly [number, number] | undefined;
  /** The share of the run at its start without faults. Default: a tenth, in which hand-overs show their ordinary speed. */
  readonly quiet?: number | undefined;
}

/** If places were taken all the time, no holder would be left for the other faults to hit. */
const PATIENCE: Record<string, number> = { places: 4 };

/** The default of `quiet`. */
const QUIET = 0.1;

/**
 * Plans which faults are injected and when: the same for the same seed and setting. There is one series per kind of
 * victim, so that a member may be down while a worker is paused; within a series, faults do not overlap.
 */
export function plan(options: PlanOptions): Planned[] {
  const all = [...new Set(Object.values(SERIES))].flatMap((name) => series(options, name));
  return all
    .sort((a, b) => a.atMs - b.atMs)
    .map(({ atMs, lastsMs, fault }, n) => ({ n, atMs, lastsMs, fault }));
}

/** Faults of the same series never overlap. */
export const SERIES: Record<Effect, string> = {
  "stops-worker": "workers",
  "kills-worker": "workers",
  "moves-clock": "workers",
  hinders: "etcd",
  "takes-place": "places",
};

function series({ seed, seconds, ttlMs, kinds, gapMs, lastsMs, quiet = QUIET }: PlanOptions, name: string) {
  const mine = kinds.filter(({ effect }) => SERIES[effect] === name);
  const gap = () => random.between(...gapMs) * (PATIENCE[name] ?? 1);
  const bag = mine.flatMap((kind) => Array<(typeof mine)[number]>(kind.weight ?? 1).fill(kind));
  const random = seeded(`${seed} ${name}`);
  const found: Omit<Planned, "n">[] = [];
  if (bag.length === 0) return found;
  let atMs = seconds * 1000 * quiet + gap();
  while (atMs < seconds * 1000) {
    const kind = random.pick(bag);
    const own = (kind.lasts ?? anyLength)(random, ttlMs);
    // A fault that is instantaneous stays so.
    const lasts = lastsMs && own > 0 ? random.between(...lastsMs) : own;
    found.push({ atMs, lastsMs: lasts, fault: kind.name });
    atMs += lasts + gap();
  }
  return found;
}

/** Shorter than half of a TTL, it must cost nothing; longer than a whole one, it may cost the session. */
export function anyLength(random: Random, ttlMs: number): number {
  return random.chance(0.6) ? brief(random, ttlMs) : random.between(ttlMs, 1.6 * ttlMs);
}
/** Occasionally so long that a member without a leader reports it, and that another leader is elected. */
export const pastElections = (random: Random, ttlMs: number) =>
  random.chance(0.5) ? anyLength(random, ttlMs) : random.between(4000, 9000);
/** Often so long that a client that waits for the end of the fault would be detected. */
export const pastFailOver = (random: Random, ttlMs: number) =>
  random.chance(0.5) ? anyLength(random, ttlMs) : random.between(2 * ttlMs, 4 * ttlMs);
export const brief = (random: Random, ttlMs: number) => random.between(50, ttlMs / 2);
export const moment = () => 0;
