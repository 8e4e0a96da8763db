/** A table of what has begun and not ended. If an end is never reported, its entry leaves when the table is full. */
export class BoundedMap<K, V> {
  readonly #entries = new Map<K, V>();

  constructor(private readonly most: number) {}

  get size(): number {
    return this.#entries.size;
  }

  get(key: K): V | undefined {
    return this.#entries.get(key);
  }

  entries(): IterableIterator<[K, V]> {
    return this.#entries.entries();
  }

  /** @returns the oldest value, if it had to leave */
  set(key: K, value: V): V | undefined {
    this.#entries.set(key, value);
    if (this.#entries.size <= this.most) return undefined;
    for (const oldest of this.#entries.keys()) return this.take(oldest);
    return undefined;
  }

  /** Removes an entry. @returns its value */
  take(key: K): V | undefined {
    const value = this.#entries.get(key);
    this.#entries.delete(key);
    return value;
  }

  /** Removes all entries. @returns their values */
  takeAll(): V[] {
    const values = [...this.#entries.values()];
    this.#entries.clear();
    return values;
  }
}
