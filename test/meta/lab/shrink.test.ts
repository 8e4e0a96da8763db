import { expect, it } from "vitest";
import { shrink } from "../../lab/runner/shrink.js";

const numbers = (count: number) => Array.from({ length: count }, (_, n) => n);

it.each([[[0]], [[17]], [[49]], [[3, 44]]])(
  "a failing list of 50 faults is cut down to those that matter: %j",
  async (culprits) => {
    const fails = (some: readonly number[]) => Promise.resolve(culprits.every((each) => some.includes(each)));
    const found = await shrink(numbers(50), fails, { runs: 60 });
    expect(found).toEqual(expect.arrayContaining(culprits));
    expect(found.length).toBeLessThan(culprits.length === 1 ? 2 : 10);
  },
);
