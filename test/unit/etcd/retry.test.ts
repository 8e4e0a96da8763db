import { describe, expect, test, vi } from "vitest";
import { Backoff, retry, retryAfter } from "../../../src/etcd/retry.js";
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

describe("retry", () => {
  const PASSING = new Error("may pass");
  const LASTING = new Error("will not pass");
  const failed = (error: unknown) => {
    if (error !== PASSING) throw error;
  };

  test("draws no random number and starts no timer for an attempt that succeeds at once", async () => {
    const clock = new FakeClock();
    const random = vi.spyOn(clock, "random");
    const after = vi.spyOn(clock, "after");

    expect(await retry(() => Promise.resolve(7), { clock, failed })).toBe(7);
    expect([random.mock.calls, after.mock.calls]).toEqual([[], []]);
  });

  test("repeats after transient failures, with growing pauses, and rejects with a lasting one", async () => {
    const clock = new FakeClock();
    const attempts: number[] = [];
    const attempt = () => {
      attempts.push(clock.monotonic());
      return Promise.reject(attempts.length < 4 ? PASSING : LASTING);
    };
    const paused: number[] = [];
    const pausing = (_: unknown, ms: number) => void paused.push(ms);

    const outcome = retry(attempt, { clock, failed, pausing });
    outcome.catch(() => undefined);
    await clock.pass(1000);

    await expect(outcome).rejects.toBe(LASTING);
    expect(paused).toEqual([10, 20, 40]);
    const [first = NaN] = attempts;
    expect(attempts.map((at) => at - first)).toEqual([0, 10, 30, 70]);
  });

  test("pauses first after a failure that its caller has seen", async () => {
    const clock = new FakeClock();
    const attempt = vi.fn(() => Promise.resolve(7));

    const outcome = retryAfter(PASSING, attempt, { clock, failed });
    expect(attempt).not.toHaveBeenCalled();
    await clock.pass(10);

    expect(await outcome).toBe(7);
    await expect(retryAfter(LASTING, attempt, { clock, failed })).rejects.toBe(LASTING);
  });

  test("ends in the middle of a pause with the reason of its signal", async () => {
    const clock = new FakeClock();
    const abort = new AbortController();
    const attempt = vi.fn(() => Promise.reject(PASSING));
    const resuming = vi.fn();

    const outcome = retry(attempt, { clock, failed, resuming, signal: abort.signal });
    outcome.catch(() => undefined);
    await clock.pass(1);
    abort.abort(LASTING);

    await expect(outcome).rejects.toBe(LASTING);
    expect(attempt).toHaveBeenCalledOnce();
  });

  test("makes no attempt that is not needed after a pause", async () => {
    const clock = new FakeClock();
    const attempt = vi.fn(() => Promise.reject(PASSING));
    const resuming = () => {
      throw LASTING;
    };

    const outcome = retry(attempt, { clock, failed, resuming });
    outcome.catch(() => undefined);
    await clock.pass(10);

    await expect(outcome).rejects.toBe(LASTING);
    expect(attempt).toHaveBeenCalledOnce();
  });
});
