/** Items in order. To insert or remove one moves those behind it, which takes microseconds for tens of thousands. */
export class SortedList<T> {
  readonly #items: T[];

  constructor(
    private readonly compare: (a: T, b: T) => number,
    items: Iterable<T> = [],
  ) {
    this.#items = [...items].sort(compare);
  }

  get items(): readonly T[] {
    return this.#items;
  }

  /** The item that is equal to this one in the order. */
  find(item: T): T | undefined {
    const there = this.#items[this.position(item)];
    return there !== undefined && this.compare(there, item) === 0 ? there : undefined;
  }

  /** Replaces an equal item. */
  set(item: T): void {
    const at = this.position(item);
    this.#items.splice(at, this.find(item) === undefined ? 0 : 1, item);
  }

  remove(item: T): void {
    if (this.find(item) !== undefined) this.#items.splice(this.position(item), 1);
  }

  /** Index of the first item that is not before this one. */
  position(item: T): number {
    let [low, high] = [0, this.#items.length];
    while (low < high) {
      const middle = (low + high) >>> 1;
      if (this.compare(this.#items[middle] as T, item) < 0) low = middle + 1;
      else high = middle;
    }
    return low;
  }
}
