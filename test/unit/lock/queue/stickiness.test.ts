// Which names a session treats as sticky: those that it uses again, but not for a while after another session has asked for one.
import { beforeEach, describe, expect, test } from "vitest";
import { Timers } from "../../../../src/base/util/timers.js";
import { Stickiness } from "../../../../src/lock/queue/tenure.js";
import { FakeClock } from "../../../support/fakes/fake-clock.js";

const MAX_NAMES = 10_000;
/** In ms, after one demand, two, and so on. */
const PAUSES = [200, 400, 800, 1600, 3200, 6400, 10_000, 10_000, 10_000];

let clock: FakeClock;
let names: Stickiness;
beforeEach(() => {
  clock = new FakeClock();
  names = new Stickiness(new Timers(clock));
});

/** Another session asks: the name is plain for exactly this time. */
function expectPause(ms: number): void {
  names.contended("jobs");
  expect(names.begins("jobs")).toBe(false);
  clock.advance(ms - 1);
  expect(names.begins("jobs")).toBe(false);
  clock.advance(1);
  expect(names.begins("jobs")).toBe(true);
}

describe("a name", () => {
  test("is plain the first time, and sticky from the second one on", () => {
    expect([names.begins("jobs"), names.begins("jobs"), names.begins("jobs")]).toEqual([false, true, true]);
    expect([names.begins("other"), names.begins("jobs/other")]).toEqual([false, false]);
  });

  test("that others ask for is plain for 0.2 s, twice as long after each further time, and for 10 s at most", () => {
    names.begins("jobs");

    for (const ms of PAUSES) expectPause(ms);
    expect(names.begins("other")).toBe(false);
    expect(names.begins("other")).toBe(true);
  });

  test("is plain again for 0.2 s if nobody has asked for 10 s since the last pause, and not if somebody has", () => {
    names.begins("jobs");
    expectPause(200);
    expectPause(400);
    clock.advance(10_000);
    expectPause(800);
    clock.advance(10_001);

    expectPause(200);
  });

  test("stays sticky for a lock with `local`, whoever asks, from the second time on", () => {
    expect(names.begins("jobs", true)).toBe(false);
    names.contended("jobs");

    expect([names.begins("jobs", true), names.begins("jobs")]).toEqual([true, false]);
  });

  test("is plain from the latest demand on, also if that comes in a pause", () => {
    names.begins("jobs");
    names.contended("jobs");
    clock.advance(100);

    expectPause(400);
  });
});

describe("a try asks for a key that another session may keep", () => {
  /** In ms, after it has asked once, twice, and so on: somebody may have the key, or the question was missed. */
  const UNTIL_NEXT = [1000, 2000, 4000, 8000, 16_000, 32_000, 60_000, 60_000];

  test("at once, and again after 1 s, twice as long after each further time, and after 60 s at most", () => {
    expect(names.mayAsk("jobs", 7n)).toBe(true);

    for (const ms of UNTIL_NEXT) {
      expect(names.mayAsk("jobs", 7n)).toBe(false);
      clock.advance(ms - 1);
      expect(names.mayAsk("jobs", 7n)).toBe(false);
      clock.advance(1);
      expect(names.mayAsk("jobs", 7n)).toBe(true);
    }
  });

  test("at once if it is another key, and that one again after 1 s", () => {
    names.mayAsk("jobs", 7n);
    clock.advance(1000);
    names.mayAsk("jobs", 7n);

    expect([names.mayAsk("jobs", 8n), names.mayAsk("jobs", 8n)]).toEqual([true, false]);
    clock.advance(1000);
    expect(names.mayAsk("jobs", 8n)).toBe(true);
  });

  test("whatever others ask of its own session", () => {
    names.begins("jobs");
    names.mayAsk("jobs", 7n);
    names.contended("jobs");

    expect([names.mayAsk("jobs", 7n), names.begins("jobs")]).toEqual([false, false]);
    clock.advance(1000);
    expect([names.mayAsk("jobs", 7n), names.begins("jobs")]).toEqual([true, true]);
  });
});

describe("of the names, the latest 10,000 are remembered:", () => {
  /** Those that the session remembers, asked in the order in which they would be forgotten: a name that is not, is from then on. */
  const remembered = (all: readonly string[]) => all.filter((name) => names.begins(name)).length;
  const many = (count: number) => Array.from({ length: count }, (_, n) => `jobs/${n}`);

  test("as many as that are sticky the second time", () => {
    const all = many(MAX_NAMES);
    for (const name of all) names.begins(name);

    expect(remembered(all)).toBe(MAX_NAMES);
  });

  test("the first of one more is plain again", () => {
    const [first, ...others] = many(MAX_NAMES + 1);
    for (const name of [first!, ...others]) names.begins(name);

    expect(remembered(others)).toBe(MAX_NAMES);
    expect([names.begins(first!), names.begins(first!)]).toEqual([false, true]);
  });

  test("one that was asked for later than it was locked first is remembered for longer", () => {
    const [first, second, ...others] = many(MAX_NAMES + 1);
    for (const name of [first!, second!]) names.begins(name);
    names.contended(first!);
    for (const name of others) names.begins(name);
    clock.advance(200);

    expect([names.begins(first!), names.begins(second!)]).toEqual([true, false]);
  });

  test("so are those that others ask for after they were forgotten, whose keys have stayed", () => {
    const all = many(2 * MAX_NAMES);
    for (const name of all) names.contended(name);
    clock.advance(200);

    expect(remembered(all.toReversed())).toBe(MAX_NAMES);
  });
});
