import { describe, expect, it } from "vitest";
import { WeakMap as KeyedInside } from "../../sim/kernel/weak-map.js";

describe("the WeakMap of a bundle of simulations", () => {
  it("keeps a value for each key until the value is deleted", () => {
    const [map, other] = [new KeyedInside<object, string>(), new KeyedInside<object, string>()];
    const [a, b] = [{}, {}];
    map.set(a, "first").set(a, "second");
    other.set(a, "other");

    expect([map.get(a), map.has(a), other.get(a)]).toEqual(["second", true, "other"]);
    expect([map.get(b), map.has(b)]).toEqual([undefined, false]);
    expect([map.delete(a), map.delete(a), map.has(a)]).toEqual([true, false, false]);
    expect(other.has(a)).toBe(true);
  });

  it("has no entry for a spread copy of a key, and adds no enumerable property to the key", () => {
    const map = new KeyedInside<object, string>();
    const key = { a: 1 };
    map.set(key, "value");

    expect(map.has({ ...key })).toBe(false);
    expect(JSON.stringify(key)).toBe('{"a":1}');
  });

  it("accepts frozen keys", () => {
    const map = new KeyedInside<object, string>();
    const key = Object.freeze(["a"]);
    map.set(key, "first").set(key, "second");

    expect([map.get(key), map.has(key), map.delete(key), map.has(key)]).toEqual([
      "second",
      true,
      true,
      false,
    ]);
  });
});
