// Time decides about a term, and not which timer runs first.
import { describe, expect, test } from "vitest";
import {
  checkHealth,
  type CheckedHealth,
  HealthWatch,
  untilHealthy,
} from "../../../../src/recipes/election/health.js";
import { FakeClock, settle } from "../../../support/fakes/fake-clock.js";

const WITHIN_MS = 8000;
/** What a gap counts in which the loop stood still. */
const GAP_MS = WITHIN_MS / 8;
const LONG_MS = 100 * WITHIN_MS;

/** A check that is answered by hand. */
class Check {
  calls = 0;
  answer: (is: boolean) => void = () => {};
  readonly healthy = () => {
    this.calls++;
    return new Promise<boolean>((resolve) => (this.answer = resolve));
  };
}

function watched(options: Partial<CheckedHealth> = {}) {
  const clock = new FakeClock();
  const check = new Check();
  const failures: string[] = [];
  const given = {
    withinMs: WITHIN_MS,
    ...("healthy" in options ? {} : { healthy: check.healthy }),
    ...options,
  };
  const watch = new HealthWatch(checkHealth(given) as CheckedHealth, clock, {
    failed: ({ message }) => failures.push(message),
  });
  return { clock, check, watch, failures };
}
type Watched = ReturnType<typeof watched>;

/** What may run first after the process stood still. */
const LOOKS: Readonly<Record<string, (it: Watched) => void>> = {
  "a timer": ({ clock }) => clock.advance(1),
  "a heartbeat": ({ watch }) => watch.beat(),
  "a reading of the hold": ({ watch }) => watch.refresh(),
};
const ORDERS = Object.keys(LOOKS).flatMap((first) =>
  Object.keys(LOOKS).map((second) => [first, second] as const),
);
const inTurn = (it: Watched, names: readonly string[]) => names.forEach((name) => LOOKS[name]?.(it));

describe("with heartbeats alone", () => {
  test.each(ORDERS)("the limit that passed in a stall ends the term: first %s, then %s", (...order) => {
    const it = watched({ healthy: undefined });
    it.clock.freeze(WITHIN_MS);
    inTurn(it, order);

    expect(it.failures).toEqual([`no heartbeat has come for ${WITHIN_MS} ms`]);
    expect(it.clock.timers).toBe(0);
  });

  test.each(ORDERS)("a stall that ends before the limit ends no term: first %s, then %s", (...order) => {
    const it = watched({ healthy: undefined });
    it.clock.freeze(WITHIN_MS - 2);
    inTurn(it, order);

    expect(it.failures).toEqual([]);
  });

  test("the limit counts from the last heartbeat", () => {
    const it = watched({ healthy: undefined });
    for (let n = 0; n < 10; n++) {
      it.clock.advance(WITHIN_MS - 2);
      it.watch.beat();
    }
    expect(it.failures).toEqual([]);
    it.clock.advance(WITHIN_MS + 2);

    expect(it.failures).toHaveLength(1);
  });
});

describe("with healthy, time counts in which the loop ran", () => {
  test.each(ORDERS)("a check that a stall prevented is made at once: first %s, then %s", async (...order) => {
    const it = watched();
    it.clock.freeze(LONG_MS);
    inTurn(it, order);
    await it.clock.pass(1);
    expect(it.check.calls).toBe(1);
    it.check.answer(true);
    await settle();

    expect(it.failures).toEqual([]);
  });

  test.each(ORDERS)(
    "an answer that arrived in a stall is read first: first %s, then %s",
    async (...order) => {
      const it = watched();
      it.clock.advance(WITHIN_MS - GAP_MS);
      expect(it.check.calls).toBe(1);
      it.clock.freeze(LONG_MS);
      // Microtasks run between the events and what waits for their end.
      const after = it.clock.afterPendingEvents.bind(it.clock);
      it.clock.afterPendingEvents = (run) => after(() => void settle().then(run));
      inTurn(
        it,
        order.filter((name) => name !== "a timer"),
      );
      it.clock.pendingEvents = () => it.check.answer(true);
      await it.clock.pass(10);

      expect(it.failures).toEqual([]);
    },
  );

  test("a check that does not answer while the loop runs has hung", () => {
    const it = watched();
    it.clock.advance(WITHIN_MS - 1);
    expect(it.failures).toEqual([]);
    it.clock.advance(5);

    expect(it.failures).toEqual([`healthy has not passed for ${WITHIN_MS} ms`]);
    expect(it.check.calls).toBe(1);
  });

  test("a stall ends no term in which a check is under way, and only delays its end", () => {
    const it = watched();
    it.clock.advance(WITHIN_MS / 2);
    it.clock.freeze(LONG_MS);
    it.clock.advance(WITHIN_MS / 2 - GAP_MS - 5);
    expect(it.failures).toEqual([]);
    it.clock.advance(GAP_MS);

    expect(it.failures).toHaveLength(1);
  });

  test("a loop that stands still again and again does not hide a check that hangs", () => {
    const it = watched();
    it.clock.advance(WITHIN_MS / 4 + 2);
    expect(it.check.calls).toBe(1);
    for (let n = 0; n < 8; n++) {
      it.clock.freeze(LONG_MS);
      it.clock.advance(1);
    }
    expect(it.failures).toHaveLength(1);
  });

  test("a check that is made late has as long as one that is made in time", async () => {
    const it = watched({ everyMs: WITHIN_MS - GAP_MS });
    it.clock.advance(WITHIN_MS - GAP_MS - 5);
    it.clock.freeze(LONG_MS);
    await it.clock.pass(GAP_MS - 5);
    expect([it.check.calls, it.failures]).toEqual([1, []]);
    await it.clock.pass(10);

    expect(it.failures).toHaveLength(1);
  });

  test("an answer of false ends the term, also after a stall", async () => {
    const it = watched();
    it.clock.freeze(LONG_MS);
    await it.clock.pass(1);
    it.check.answer(false);
    await settle();

    expect(it.failures).toEqual(["healthy has returned false"]);
  });

  test("a heartbeat counts as a check that has passed", () => {
    const it = watched();
    it.clock.advance(WITHIN_MS - 10);
    it.watch.beat();
    it.clock.advance(WITHIN_MS - 10);

    expect(it.failures).toEqual([]);
  });

  test("it is called every everyMs after its last answer", async () => {
    const it = watched({ everyMs: 1000 });
    for (let n = 0; n < 5; n++) {
      await it.clock.pass(1001);
      expect(it.check.calls).toBe(n + 1);
      it.check.answer(true);
      await settle();
    }
  });
});

test("before a campaign, a check that hangs is made again after withinMs, and told", async () => {
  const clock = new FakeClock();
  const check = new Check();
  const stop = new AbortController();
  const told: string[] = [];
  const health = checkHealth({ healthy: check.healthy, withinMs: WITHIN_MS }) as CheckedHealth;
  const failed = ({ message }: Error, delayMs: number) => told.push(`${message}, ${delayMs}`);
  let passed = false;
  void untilHealthy(health, { clock, stop: stop.signal, nextMs: () => 500, failed }).then(
    () => (passed = true),
  );
  await clock.pass(WITHIN_MS + 5);
  expect([check.calls, told]).toEqual([1, [`healthy has not passed for ${WITHIN_MS} ms, 500`]]);
  await clock.pass(505);
  expect(check.calls).toBe(2);
  check.answer(true);
  await settle();

  expect(passed).toBe(true);
  expect(clock.timers).toBe(0);
});
