import fc from "fast-check";
import { expect, test } from "vitest";
import { Roots } from "../../src/etcd/roots.js";

/** As the queues' ranges say it: equal, or one lies under the other. */
const conflicts = (a: string, b: string): boolean =>
  a === b || a.startsWith(`${b}/`) || b.startsWith(`${a}/`);

const name = fc.array(fc.constantFrom("a", "b", "ab", "a-", "é"), { minLength: 1, maxLength: 4 });
const names = fc.uniqueArray(
  name.map((parts) => parts.join("/")),
  { minLength: 1, maxLength: 3 },
);
const step = fc.record({ is: fc.constantFrom("add", "remove", "ask"), names, which: fc.nat() });

test("names conflict with those that are there exactly when one is the other, or lies under it", () => {
  const asked = { conflicting: 0, free: 0 };
  const sameAsNaive = fc.property(fc.array(step, { maxLength: 60 }), (steps) => {
    const roots = new Roots();
    const naive: (readonly string[])[] = [];
    for (const { is, names, which } of steps) {
      if (is === "add") {
        roots.add(names);
        naive.push(names);
      } else if (is === "remove" && naive.length > 0) {
        const [gone] = naive.splice(which % naive.length, 1);
        roots.remove(gone!);
      }
      const expected = naive.flat().some((there) => names.some((asking) => conflicts(there, asking)));
      asked[expected ? "conflicting" : "free"]++;
      expect(roots.conflict(names)).toBe(expected);
    }
  });

  fc.assert(sameAsNaive, { numRuns: 500 });

  expect(asked.conflicting).toBeGreaterThan(100);
  expect(asked.free).toBeGreaterThan(100);
});

test("a name that was added twice is there until it has been removed twice", () => {
  const roots = new Roots();
  roots.add(["a/b", "c"]);
  roots.add(["a/b"]);

  roots.remove(["a/b", "c"]);
  expect([roots.conflict(["a"]), roots.conflict(["c"])]).toEqual([true, false]);

  roots.remove(["a/b"]);
  expect(roots.conflict(["a"])).toBe(false);
});
