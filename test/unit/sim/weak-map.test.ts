import { describe, expect, it } from "vitest";
import { WeakMap as KeyedInside } from "../../sim/kernel/weak-map.js";

describe("what a bundle of simulations has in place of WeakMap", () => {
  it("keeps a value for each key, until it is deleted", () => {
    const [map, other] = [new KeyedInside<object, string>(), new KeyedInside<object, string>()];
    const [a, b] = [{}, {}];
    map.set(a, "first").set(a, "second");
    other.set(a, "other");

    expect([map.get(a), map.has(a), other.get(a)]).toEqual(["second", true, "other"]);
    expect([map.get(b), map.has(b)]).toEqual([undefined, false]);
    expect([map.delete(a), map.delete(a), map.has(a)]).toEqual([true, false, false]);
    expect(other.has(a)).toBe(true);
  });

  it("has no value for a copy of a key, and does not show in it", () => {
    const map = new KeyedInside<object, string>();
    const key = { a: 1 };
    map.set(key, "value");

    expect(map.has({ ...key })).toBe(false);
    expect(JSON.stringify(key)).toBe('{"a":1}');
  });
});
