export interface Random {
  /** 0 <= x < 1 */
  readonly next: () => number;
  /** A whole number, both ends included. */
  readonly between: (low: number, high: number) => number;
  readonly pick: <T>(items: readonly T[]) => T;
  readonly chance: (probability: number) => boolean;
}

/** A small seeded generator (mulberry32): the same seed gives the same numbers on every machine. */
export function seeded(seed: string): Random {
  let state = 2166136261;
  for (let n = 0; n < seed.length; n++) state = Math.imul(state ^ seed.charCodeAt(n), 16777619);
  const next = () => {
    state = (state + 0x6d2b79f5) | 0;
    let x = Math.imul(state ^ (state >>> 15), 1 | state);
    x = (x + Math.imul(x ^ (x >>> 7), 61 | x)) ^ x;
    return ((x ^ (x >>> 14)) >>> 0) / 2 ** 32;
  };
  return {
    next,
    between: (low, high) => Math.floor(low + next() * (high - low + 1)),
    pick: <T>(items: readonly T[]) => items[Math.floor(next() * items.length)] as T,
    chance: (probability) => next() < probability,
  };
}
