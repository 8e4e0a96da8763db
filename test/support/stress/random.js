/**
 * A small seeded generator: the same seed gives the same schedule on every machine.
 * @param {string} seed
 */
export function seeded(seed) {
  let state = 2166136261;
  for (const char of seed) state = Math.imul(state ^ char.charCodeAt(0), 16777619);
  /** 0 <= x < 1 (mulberry32) */
  const next = () => {
    state = (state + 0x6d2b79f5) | 0;
    let x = Math.imul(state ^ (state >>> 15), 1 | state);
    x = (x + Math.imul(x ^ (x >>> 7), 61 | x)) ^ x;
    return ((x ^ (x >>> 14)) >>> 0) / 2 ** 32;
  };
  return {
    next,
    /** @param {number} low @param {number} high */
    between: (low, high) => Math.floor(low + next() * (high - low + 1)),
    /** @template T @param {readonly T[]} items @returns {T} */
    pick: (items) => /** @type {T} */ (items[Math.floor(next() * items.length)]),
    /** @param {number} probability */
    chance: (probability) => next() < probability,
  };
}

/** @typedef {ReturnType<typeof seeded>} Random */
