import { expect, test } from "vitest";
import { DueTicks } from "../../../../src/recipes/once/due-ticks.js";

test("the ticks that come due one after the other may be more than those that may be due together", () => {
  let now = 0;
  const due = new DueTicks(Array(10_101).keys(), () => now);
  const taken: number[] = [];
  for (; now < 10_100; now += 100) taken.push(...due.next(200));

  expect(taken).toHaveLength(10_001);
  expect(due.next(200)).toEqual([...Array(10_101).keys()].slice(10_001));
  expect(due.next(200)).toEqual([]);
});

test("ticks that are due together are limited, however they are taken", () => {
  const due = new DueTicks(Array(20_000).keys(), () => 10_000);
  const all = () => {
    while (due.next(64).length > 0);
  };

  expect(all).toThrow(/at most 10000 that are due/);
});
