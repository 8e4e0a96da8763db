import { expect, test } from "vitest";
import { Backoff } from "../../../src/etcd/retry.js";
import { FakeClock } from "../../support/fakes/fake-clock.js";

const pauses = (backoff: Backoff, count: number) => Array.from({ length: count }, () => backoff.nextMs());

test.each([
  ["the least", 0, [10, 20, 40, 80, 160, 320, 500, 500]],
  ["the middle", 0.5, [15, 30, 60, 120, 240, 480, 750, 750]],
  ["nearly the most", 0.999, [20, 40, 80, 160, 320, 640, 1000, 1000]],
])("pauses double up to a second, half of each is random: %s", (_what, random, expected) => {
  const clock = new FakeClock();
  clock.nextRandom = random;

  expect(pauses(new Backoff(clock), 8).map(Math.round)).toEqual(expected);
});

test("pauses are short again after a reset", () => {
  const backoff = new Backoff(new FakeClock());
  pauses(backoff, 8);

  backoff.reset();

  expect(pauses(backoff, 2)).toEqual([10, 20]);
});
