/**
 * Takes the place of `WeakMap` in a bundle that runs many simulated worlds: each entry is a property of its key. A minor collection of
 * V8 treats the values of a `WeakMap` as in use. Those of the client refer to their keys, and so to a whole world, which would stay
 * until the next major collection.
 */
class KeyedInside<K extends object, V> {
  readonly #property = Symbol("value");

  get(key: K): V | undefined {
    return (key as Record<symbol, V | undefined>)[this.#property];
  }

  has(key: K): boolean {
    return this.get(key) !== undefined;
  }

  set(key: K, value: V): this {
    (key as Record<symbol, V | undefined>)[this.#property] = value;
    return this;
  }

  delete(key: K): boolean {
    const had = this.has(key);
    (key as Record<symbol, V | undefined>)[this.#property] = undefined;
    return had;
  }
}

export { KeyedInside as WeakMap };
