// Ticks that nobody was there to run: run late, in order, once, or told as missed.
import { Cron } from "croner";
import cron from "node-cron";
import { describe, expect, test, vi } from "vitest";
import { catchUp, type CatchUpOptions, once, type Tick } from "../../../src/index.js";
import { reasonOf, twoSessions } from "../../support/fixtures/two-sessions.js";

const two = twoSessions(4);
const HOUR = 3_600_000;
const T0 = Date.UTC(2026, 0, 1);
const hours = (...n: readonly number[]): number[] => n.map((each) => T0 + each * HOUR);

/** What one process does at a tick. */
const caughtUp = async (name: string, slots: Parameters<typeof catchUp>[2], options: CatchUpOptions) => {
  const ran: Tick[] = [];
  const result = await catchUp(two.cluster, name, slots, (tick) => void ran.push(tick), options);
  expect(ran.map(({ slot }) => slot)).toEqual(result.ran);
  return result;
};

describe("catchUp", () => {
  test("runs each tick that has no run, in order, with its time", async () => {
    await once(two.session, "all", T0 + HOUR, () => undefined);
    const ticks: Tick[] = [];
    const result = await catchUp(two.cluster, "all", hours(0, 1, 2, 3), (tick) => void ticks.push(tick), {
      missed: "all",
    });

    expect(result).toEqual({ ran: hours(0, 2, 3), missed: [] });
    expect(ticks.map(({ date }) => date.toISOString())).toEqual([
      "2026-01-01T00:00:00.000Z",
      "2026-01-01T02:00:00.000Z",
      "2026-01-01T03:00:00.000Z",
    ]);
    for (const { slot, lateMs } of ticks) expect(Math.abs(Date.now() - slot - lateMs)).toBeLessThan(60_000);
    expect(await caughtUp("all", hours(0, 1, 2, 3), { missed: "all" })).toEqual({ ran: [], missed: [] });
  });

  test('"last" runs the latest alone, and marks the others as missed: no later call runs or tells them', async () => {
    expect(await caughtUp("last", hours(0, 1, 2), { missed: "last" })).toEqual({
      ran: hours(2),
      missed: hours(0, 1),
    });
    expect(await caughtUp("last", hours(0, 1, 2), { missed: "all" })).toEqual({ ran: [], missed: [] });
    expect(await once(two.cluster, "last", T0, () => 1, { rerun: "if_failed" })).toMatchObject({
      reason: "missed",
    });
    const records = await once.history(two.cluster, "last");
    expect(records.map(({ slot, state }) => [slot, state])).toEqual([
      [T0 + 2 * HOUR, "done"],
      [T0, "missed"],
      [T0 + HOUR, "missed"],
    ]);
  });

  test("rejects with what the work threw, whatever the iterator throws at its end", async () => {
    const [work, end] = [new Error("of the work"), new Error("of the iterator's end")];
    let next = T0;
    const ticks = {
      [Symbol.iterator]: () => ({
        next: () => ({ done: false, value: next++ }),
        return: () => {
          throw end;
        },
      }),
    };
    const failing = catchUp(two.cluster, "ends", ticks, () => Promise.reject(work), { missed: "all" });

    expect(await reasonOf(failing)).toBe(work);
  });

  test('"last" runs none if the latest has run', async () => {
    await once(two.session, "latest", T0 + 2 * HOUR, () => undefined);

    expect(await caughtUp("latest", hours(0, 1, 2), { missed: "last" })).toEqual({
      ran: [],
      missed: hours(0, 1),
    });
  });

  test('"none" runs those alone that are due since a moment', async () => {
    const now = Date.now();
    const slots = [T0, now - 5_000, now - 1_000, now + HOUR];

    expect(await caughtUp("none", slots, { missed: "none" })).toEqual({
      ran: [now - 5_000, now - 1_000],
      missed: [T0],
    });
    expect(await caughtUp("none/2", slots, { missed: "none", graceMs: 0 })).toEqual({
      ran: [],
      missed: slots.slice(0, 3),
    });
  });

  test("shares the ticks out among ten processes that come back together: each runs once, and none overlap", async () => {
    const ran: number[] = [];
    let running = 0;
    const work = async ({ slot }: Tick): Promise<void> => {
      expect(++running).toBe(1);
      ran.push(slot);
      await new Promise(setImmediate);
      running--;
    };
    const slots = hours(...Array.from({ length: 30 }).keys());
    const results = await Promise.all(
      Array.from({ length: 10 }, (_, n) =>
        catchUp(n % 2 ? two.holder : two.session, "ten", slots, work, { missed: "all" }),
      ),
    );

    expect(ran).toEqual(slots);
    expect(results.flatMap((each) => each.ran).sort()).toEqual(slots);
  });

  test("tells each missed tick to one of ten processes", async () => {
    const slots = hours(...Array.from({ length: 200 }).keys());
    const results = await Promise.all(
      Array.from({ length: 10 }, () => caughtUp("told", slots, { missed: "last" })),
    );

    expect(results.flatMap((each) => each.ran)).toEqual(slots.slice(-1));
    expect(results.flatMap((each) => each.missed).sort()).toEqual(slots.slice(0, -1));
  });

  test("goes on from the youngest mark, if the ticks are a function of it", async () => {
    const asked: (Date | undefined)[] = [];
    const after = (last: Date | undefined) => {
      asked.push(last);
      const from = last?.getTime() ?? T0 - HOUR;
      return [1, 2].map((n) => from + n * HOUR);
    };

    await caughtUp("from", after, { missed: "all" });
    await caughtUp("from", after, { missed: "all" });
    expect(asked).toEqual([undefined, new Date(T0 + HOUR)]);
    expect((await once.history(two.cluster, "from", { limit: 3 })).map(({ slot }) => slot)).toEqual(
      hours(3, 2, 1),
    );
  });

  test("stops at a tick that fails, and goes on behind it the next time", async () => {
    const run = (fails: boolean) =>
      catchUp(
        two.cluster,
        "fails",
        hours(0, 1, 2),
        ({ slot }) => {
          if (fails && slot === T0 + HOUR) throw new Error("no disk");
        },
        { missed: "all" },
      );

    expect(await reasonOf(run(true))).toMatchObject({ message: "no disk" });
    expect(await run(false)).toEqual({ ran: hours(2), missed: [] });
    const [, failed] = (await once.history(two.cluster, "fails")).map(({ state, error }) => ({
      state,
      error,
    }));
    expect(failed).toMatchObject({ state: "failed", error: { message: "no disk" } });
  });

  test("tells what was missed at once, also if the work fails then", async () => {
    const missed: (readonly number[])[] = [];
    const fails = (): never => {
      throw new Error("no disk");
    };
    const options = {
      missed: "last",
      onMissed: (slots: readonly number[]) => void missed.push(slots),
    } as const;

    expect(
      await reasonOf(catchUp(two.cluster, "told at once", hours(0, 1, 2), fails, options)),
    ).toMatchObject({
      message: "no disk",
    });
    expect(missed).toEqual([hours(0, 1)]);
  });

  test.each([
    { missed: "some" },
    { missed: "last", graceMs: -1 },
    { missed: "last", keep: -1 },
    { missed: "last", keep: { ms: 1000 } },
    { missed: "last", rerun: "always" },
    { missed: "last", onMissed: 7 },
    {},
  ])("refuses bad options before it writes anything: %o", async (options) => {
    const call = catchUp(two.cluster, "refused", hours(0, 1), () => undefined, options as never);

    expect(await reasonOf(call)).toMatchObject({ message: expect.stringMatching(/^Expected/) as string });
    expect(await once.history(two.cluster, "refused")).toEqual([]);
  });

  test("never runs what has expired", async () => {
    for (const slot of hours(5, 6)) await once(two.cluster, "expired", slot, () => undefined, { keep: 1 });

    expect(await caughtUp("expired", hours(3, 4, 5, 6, 7), { missed: "all", keep: { slots: 1 } })).toEqual({
      ran: hours(7),
      missed: [],
    });
  });

  test.each([
    [hours(1, 0), RangeError, /slots to be ascending/],
    [[0.5], RangeError, /whole number/],
    [[new Date(NaN)], RangeError, /whole number/],
    [7 as never, TypeError, /slots to be an iterable/],
    [Array.from({ length: 10_001 }).keys(), RangeError, /at most 10000 that are due/],
  ])("refuses bad ticks: %o", async (slots, type, message) => {
    const error = await reasonOf(catchUp(two.cluster, "bad", slots, () => undefined, { missed: "last" }));

    expect(error).toBeInstanceOf(type);
    expect(error).toMatchObject({ message: expect.stringMatching(message) as string });
  });
});

describe("the ticks of croner", () => {
  /** From one midnight of Berlin to the next. */
  const ticksOf = (pattern: string, from: string, to: string): Date[] => {
    const dates: Date[] = [];
    // What it gives comes after this time.
    const before = new Date(Date.parse(from) - 1000);
    for (const date of new Cron(pattern, { paused: true, timezone: "Europe/Berlin" }).enumerate(before)) {
      if (date >= new Date(to)) return dates;
      dates.push(date);
    }
    return dates;
  };

  test.each([
    [
      "the day without a 02:30, which croner runs at 03:00",
      "30 2 * * *",
      "2026-03-28T23:00:00Z",
      "2026-03-29T22:00:00Z",
      ["2026-03-29T01:00:00.000Z"],
    ],
    [
      "the day with two, one of which croner runs",
      "30 2 * * *",
      "2026-10-24T22:00:00Z",
      "2026-10-25T23:00:00Z",
      ["2026-10-25T00:30:00.000Z"],
    ],
  ])("are run once on %s", async (what, pattern, from, to, expected) => {
    const ticks = ticksOf(pattern, from, to);
    const { ran } = await caughtUp(`dst/${what}`, ticks, { missed: "all" });

    expect(ran.map((slot) => new Date(slot).toISOString())).toEqual(expected);
    expect(await caughtUp(`dst/${what}`, ticks, { missed: "all" })).toEqual({ ran: [], missed: [] });
  });

  test.each([
    [23, "2026-03-28T23:00:00Z", "2026-03-29T22:00:00Z"],
    [25, "2026-10-24T22:00:00Z", "2026-10-25T23:00:00Z"],
  ])(
    "of each hour are %i on a day on which the clocks are changed: each is another slot",
    async (count, from, to) => {
      const { ran } = await caughtUp(`dst/hours/${count}`, ticksOf("0 * * * *", from, to), { missed: "all" });

      expect(ran).toHaveLength(count);
      expect(ran.every((slot, n) => n === 0 || slot - ran[n - 1]! === HOUR)).toBe(true);
    },
  );
});

describe("the ticks of node-cron", () => {
  /** The next ones, as it would have said at that time. */
  const ticksOf = (pattern: string, from: string, count: number): Date[] => {
    vi.useFakeTimers({ toFake: ["Date"], now: new Date(from) });
    const task = cron.createTask(pattern, () => undefined, { timezone: "Europe/Berlin" });
    try {
      return task.getNextRuns(count);
    } finally {
      void task.destroy();
      vi.useRealTimers();
    }
  };

  test.each([
    [
      "the night without a 02:30, for which it has none",
      "2026-03-27T23:00:00Z",
      ["2026-03-28T01:30:00.000Z", "2026-03-30T00:30:00.000Z"],
    ],
    [
      "the night with two, of which it has one",
      "2026-10-23T22:00:00Z",
      ["2026-10-24T00:30:00.000Z", "2026-10-25T01:30:00.000Z"],
    ],
  ])("are run once in %s", async (what, from, expected) => {
    const ticks = ticksOf("30 2 * * *", from, 2);
    // Two replicas come back together.
    const name = `node-cron/${what}`;
    const results = await Promise.all([1, 2].map(() => caughtUp(name, ticks, { missed: "all" })));

    const ran = results.flatMap((each) => each.ran).sort();
    expect(ran.map((slot) => new Date(slot).toISOString())).toEqual(expected);
  });
});
