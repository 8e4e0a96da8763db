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

  /** A copy of the key made by a spread does not have it. */
  set(key: K, value: V): this {
    Object.defineProperty(key, this.#property, { value, configurable: true, enumerable: false });
    return this;
  }

  delete(key: K): boolean {
    return this.has(key) && Reflect.deleteProperty(key, this.#property);
  }
}

export { KeyedInside as WeakMap };
