/** A map by two keys. Joining both keys into a string for each lookup takes longer than the rest of a rule. */
export class PairMap<A, B, T> {
  readonly #maps = new Map<A, Map<B, T>>();

  get(a: A, b: B): T | undefined {
    return this.#maps.get(a)?.get(b);
  }

  set(a: A, b: B, thing: T): void {
    const map = this.#maps.get(a);
    if (map === undefined) this.#maps.set(a, new Map([[b, thing]]));
    else map.set(b, thing);
  }

  /** By the first key, then by the second one, each in the order in which they were set first. */
  *values(): Generator<T, void> {
    for (const map of this.#maps.values()) yield* map.values();
  }
}

/** Groups the items by two keys. Each group keeps their order. */
export function groupedByPair<A, B, T>(
  items: Iterable<T>,
  keyOf: (item: T) => A,
  otherKeyOf: (item: T) => B,
): PairMap<A, B, T[]> {
  const groups = new PairMap<A, B, T[]>();
  for (const item of items) {
    const a = keyOf(item);
    const b = otherKeyOf(item);
    const group = groups.get(a, b);
    if (group === undefined) groups.set(a, b, [item]);
    else group.push(item);
  }
  return groups;
}
