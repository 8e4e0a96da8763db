import { describe, expect, test } from "vitest";
import { RetryLines } from "../../../../src/tools/cli/run/settings.js";

const SECOND = 1000;
/** The seconds at which a line is due, if a campaign fails every second. */
const linesIn = (retries: RetryLines, seconds: number, from = 0) =>
  Array.from({ length: seconds }, (_, n) => from + n).filter((n) =>
    retries.isDue("ETCD_UNAVAILABLE", n * SECOND),
  );

describe("the lines of leasehold run and lead about an outage of etcd", () => {
  test("come at once, and then after 1 s, 2 s, 4 s and so on, up to a minute", () => {
    expect(linesIn(new RetryLines(), 250)).toEqual([0, 1, 3, 7, 15, 31, 63, 123, 183, 243]);
  });

  test("begin again after a term, for another reason, and after two minutes without a failure", () => {
    const retries = new RetryLines();
    linesIn(retries, 100);

    expect(retries.isDue("ETCD_UNAVAILABLE", 100 * SECOND)).toBe(false);
    retries.reset();
    expect(linesIn(retries, 5, 100)).toEqual([100, 101, 103]);
    expect(retries.isDue("SESSION_LOST", 105 * SECOND)).toBe(true);
    expect(retries.isDue("SESSION_LOST", 105.5 * SECOND)).toBe(false);
    linesIn(retries, 60, 106);
    expect(linesIn(retries, 4, 286)).toEqual([286, 287, 289]);
  });
});
