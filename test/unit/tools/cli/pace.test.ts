import { describe, expect, test } from "vitest";
import { paceOf } from "../../../../src/tools/cli/run/settings.js";

describe("the pace of a command under a lease", () => {
  test.each([
    [{}, { ttlSeconds: 15, graceMs: 3000, marginMs: 750, checkMs: 500 }],
    [{ ttl: "2s" }, { ttlSeconds: 2, graceMs: 400, marginMs: 100, checkMs: 100 }],
    [
      { ttl: "1m", grace: "21s" },
      { ttlSeconds: 60, graceMs: 21_000, marginMs: 3000, checkMs: 500 },
    ],
    [{ grace: "0" }, { ttlSeconds: 15, graceMs: 0, marginMs: 750, checkMs: 500 }],
  ])("of %j is %j", (flags, pace) => {
    expect(paceOf(flags)).toEqual(pace);
  });

  test("leaves time for a second attempt to renew, before SIGTERM, whatever the TTL is", () => {
    for (let ttl = 2; ttl <= 86_400; ttl = Math.ceil(ttl * 1.3)) {
      const longest = Math.floor(ttl * 350);
      const { graceMs, marginMs } = paceOf({ ttl: `${ttl}s`, grace: `${longest}ms` });
      expect(ttl * 900 - graceMs - marginMs).toBeGreaterThanOrEqual(ttl * 500);
      expect(() => paceOf({ ttl: `${ttl}s`, grace: `${longest + 1}ms` })).toThrow(
        "a longer one needs a longer --ttl",
      );
    }
  });
});
