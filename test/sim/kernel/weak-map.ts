/**
 * Replaces `WeakMap` in a bundle that runs many simulated worlds: each entry is a property of its key. A minor collection of V8 treats
 * the values of a `WeakMap` as in use. Those of the client refer to their keys, and so to a whole world, which would stay until the
 * next major collection. A key that has an entry must not be frozen afterwards: its entry could not change any more.
 */
class KeyedInside<K extends object, V> {
  readonly #property = Symbol("value");
  /** The entries of frozen keys. */
  readonly #outside = new globalThis.WeakMap<K, V>();

  get(key: K | null | undefined): V | undefined {
    if (key === null || key === undefined) return undefined;
    return Object.hasOwn(key, this.#property)
      ? (key as Record<symbol, V>)[this.#property]
      : this.#outside.get(key);
  }

  has(key: K | null | undefined): boolean {
    return (
      key !== null && key !== undefined && (Object.hasOwn(key, this.#property) || this.#outside.has(key))
    );
  }

  /** The property is not enumerable: a spread copy of the key has no entry. */
  set(key: K, value: V): this {
    // A definition takes much longer than an assignment.
    if (Object.hasOwn(key, this.#property)) (key as Record<symbol, V>)[this.#property] = value;
    else if (!Object.isExtensible(key)) this.#outside.set(key, value);
    else Object.defineProperty(key, this.#property, { value, writable: true, configurable: true });
    return this;
  }

  delete(key: K): boolean {
    return Object.hasOwn(key, this.#property)
      ? Reflect.deleteProperty(key, this.#property)
      : this.#outside.delete(key);
  }
}

export { KeyedInside as WeakMap };
