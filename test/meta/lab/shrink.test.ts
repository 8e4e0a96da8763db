import fc from "fast-check";
import { describe, expect, it } from "vitest";
import { shrink } from "../../lab/runner/shrink.js";

const numbers = (count: number) => Array.from({ length: count }, (_, n) => n);

describe("a failing list of faults", () => {
  it("is cut down to the one fault that matters", async () => {
    const culprit = fc.integer({ min: 0, max: 49 });
    await fc.assert(
      fc.asyncProperty(culprit, async (bad) => {
        const found = await shrink(numbers(50), (some) => Promise.resolve(some.includes(bad)), { runs: 30 });
        expect(found).toEqual([bad]);
      }),
    );
  });

  it("keeps two faults that only fail together", async () => {
    const both = (some: readonly number[]) => Promise.resolve(some.includes(3) && some.includes(44));
    const found = await shrink(numbers(50), both, { runs: 60 });
    expect(found).toContain(3);
    expect(found).toContain(44);
    expect(found.length).toBeLessThan(10);
  });

  it("is re-run no more often than allowed", async () => {
    let runs = 0;
    const never = () => Promise.resolve(runs++ < 0);
    expect(await shrink(numbers(50), never, { runs: 4 })).toHaveLength(50);
    expect(runs).toBe(4);
  });
});
