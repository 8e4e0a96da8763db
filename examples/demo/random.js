// @ts-check
// A seeded source of choices, so that `--seed` repeats the same faults at the same points of the run.

/**
 * @typedef {object} Random
 * @property {(low: number, high: number) => number} between A whole number, both ends included.
 * @property {<T>(items: readonly T[]) => T[]} shuffled A shuffled copy.
 */

/**
 * @param {number} seed a whole number of 32 bits
 * @returns {Random}
 */
export function seeded(seed) {
  let state = seed >>> 0;
  const next = () => {
    // mulberry32: tiny, and good enough to select faults.
    state = (state + 0x6d2b79f5) >>> 0;
    let mixed = Math.imul(state ^ (state >>> 15), state | 1);
    mixed ^= mixed + Math.imul(mixed ^ (mixed >>> 7), mixed | 61);
    return ((mixed ^ (mixed >>> 14)) >>> 0) / 2 ** 32;
  };
  const between = (/** @type {number} */ low, /** @type {number} */ high) =>
    low + Math.floor(next() * (high - low + 1));
  return { between, shuffled: (items) => shuffle([...items], between) };
}

/**
 * @template T
 * @param {T[]} items
 * @param {Random["between"]} between
 */
function shuffle(items, between) {
  for (let last = items.length - 1; last > 0; last--) {
    const pick = between(0, last);
    [items[last], items[pick]] = [/** @type {T} */ (items[pick]), /** @type {T} */ (items[last])];
  }
  return items;
}
