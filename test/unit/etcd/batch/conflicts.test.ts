import fc from "fast-check";
import { expect, test } from "vitest";
import { ConflictSet } from "../../../../src/etcd/batch.js";

/** Names conflict as their queues' ranges do: they are equal, or one lies under the other. */
const conflicts = (a: string, b: string): boolean =>
  a === b || a.startsWith(`${b}/`) || b.startsWith(`${a}/`);

const name = fc.array(fc.constantFrom("a", "b", "ab", "a-", "é"), { minLength: 1, maxLength: 4 });
const names = fc.uniqueArray(
  name.map((parts) => parts.join("/")),
  { minLength: 1, maxLength: 3 },
);
const step = fc.record({ is: fc.constantFrom("add", "ask"), names });

test("names conflict with those that are there exactly when one is the other, or lies under it", () => {
  const asked = { conflicting: 0, free: 0 };
  const sameAsNaive = fc.property(fc.array(step, { maxLength: 12 }), (steps) => {
    const roots = new ConflictSet();
    const naive: (readonly string[])[] = [];
    for (const { is, names } of steps) {
      if (is === "add") {
        roots.add(names);
        naive.push(names);
        continue;
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
