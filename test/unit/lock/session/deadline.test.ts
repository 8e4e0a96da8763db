import { describe, expect, test } from "vitest";
import { inJeopardy, nextCheckMs, remainingMs, standingOf } from "../../../../src/lock/session/lease.js";

const TTL_MS = 10_000;
const SENT = { monotonic: 50_000, suspend: 900_000 };
const renewal = { sent: SENT, ttlMs: TTL_MS };
/** Readings of the two clocks after these times. */
const later = (monotonic: number, suspend = monotonic) => ({
  monotonic: SENT.monotonic + monotonic,
  suspend: SENT.suspend + suspend,
});

describe("the deadline of a lease", () => {
  test("comes 0.9 of the TTL after the accepted renewal was sent", () => {
    expect(remainingMs(renewal, SENT)).toBe(9000);
    expect(remainingMs(renewal, later(4000))).toBe(5000);
    expect(standingOf(renewal, later(8999))).toBe("held");
    expect(standingOf(renewal, later(9000))).toBe("over");
    expect(remainingMs(renewal, later(9001))).toBe(0);
  });

  test("is over, whatever the other clock says, when the monotonic clock has passed it", () => {
    expect(standingOf(renewal, later(9000, 0))).toBe("over");
    expect(standingOf(renewal, later(9000, -3_600_000))).toBe("over");
  });

  test("is not in doubt when the clock that counts suspend is ahead by its own steps of 10 ms", () => {
    expect(standingOf(renewal, later(8990, 9005))).toBe("held");
    expect(remainingMs(renewal, later(8990, 9005))).toBe(10);
    expect(standingOf(renewal, later(8970, 9005))).toBe("doubtful");
  });

  test("is in doubt, not over, when only the clock that counts suspend has passed it", () => {
    expect(standingOf(renewal, later(1000, 8999))).toBe("held");
    expect(standingOf(renewal, later(1000, 9000))).toBe("doubtful");
    expect(standingOf(renewal, later(1000, 3_600_000))).toBe("doubtful");
    expect(remainingMs(renewal, later(1000, 3_600_000))).toBe(0);
  });

  test("is not moved by a clock that went back", () => {
    expect(standingOf(renewal, later(1000, -3_600_000))).toBe("held");
    expect(remainingMs(renewal, later(1000, -3_600_000))).toBe(8000);
    expect(remainingMs(renewal, later(-1000, -1000))).toBe(9000);
  });

  test("counts what is left by the clock that is further on", () => {
    expect(remainingMs(renewal, later(1000, 4000))).toBe(5000);
    expect(remainingMs(renewal, later(4000, 1000))).toBe(5000);
  });

  test("is in jeopardy when more than half of the TTL has passed on either clock", () => {
    expect(inJeopardy(renewal, later(5000))).toBe(false);
    expect(inJeopardy(renewal, later(5001))).toBe(true);
    expect(inJeopardy(renewal, later(0, 5001))).toBe(true);
    expect(inJeopardy(renewal, later(0, -9000))).toBe(false);
  });

  test.each([
    ["half of the TTL", 0],
    ["half of the TTL", 4999],
    ["the deadline", 5001],
    ["the deadline", 8999],
  ])("is looked at just after %s, seen at %i ms", (boundary, passed) => {
    const at = passed + nextCheckMs(renewal, later(passed));

    const due = boundary === "the deadline" ? 9000 : 5000;
    expect(at).toBeGreaterThan(due);
    expect(at).toBeLessThanOrEqual(due + 2);
  });
});
