import { describe, expect, test } from "vitest";
import { Stalls } from "../../../../../src/lock/session/renewal.js";

/** Timers that are due at these times. */
function timers(due: { check: number; renewal: number }): Stalls {
  const stalls = new Stalls();
  stalls.scheduled("check", due.check);
  stalls.scheduled("renewal", due.renewal);
  return stalls;
}

describe("the time in which a process did not run its timers", () => {
  test("is nothing while timers are a few milliseconds late", () => {
    const stalls = timers({ check: 7000, renewal: 4000 });

    stalls.observe(4050);
    stalls.scheduled("renewal", 8000);
    stalls.observe(7050);

    expect(stalls.sumSince(0)).toBe(0);
  });

  test("begins when the earliest timer was due, and two late timers do not count twice", () => {
    const stalls = timers({ check: 7000, renewal: 4000 });

    stalls.observe(9000);
    stalls.scheduled("renewal", 13_000);
    stalls.observe(9001);

    expect(stalls.sumSince(0)).toBe(5001);
  });

  test("is seen before any timer has run, and counts once when they run", () => {
    const stalls = timers({ check: 7000, renewal: 4000 });

    // A blocked event loop that asks again and again.
    for (const now of [4500, 4510, 4520]) stalls.observe(now);
    expect(stalls.sumSince(0)).toBe(520);

    stalls.observe(6000);
    expect(stalls.sumSince(0)).toBe(2000);
  });

  test("is the sum of several stalls", () => {
    const stalls = timers({ check: 7000, renewal: 4000 });

    stalls.observe(4600);
    stalls.scheduled("renewal", 8600);
    stalls.observe(8000);
    stalls.scheduled("check", 20_000);
    stalls.observe(8600);

    expect(stalls.sumSince(0)).toBe(1600);
  });

  test("counts from a given time only", () => {
    const stalls = timers({ check: 7000, renewal: 4000 });
    stalls.observe(6000);
    stalls.scheduled("renewal", 10_000);

    expect(stalls.sumSince(5000)).toBe(1000);
    stalls.forgetUntil(6000);
    expect(stalls.sumSince(0)).toBe(0);
  });
});
