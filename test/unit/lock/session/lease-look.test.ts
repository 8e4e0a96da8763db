import { expect, test } from "vitest";
import { FakeCluster } from "../../../support/fakes/fake-connection.js";

const TTL_SECONDS = 12;
const TTL_MS = TTL_SECONDS * 1000;

/**
 * The states reported to a session whose timers fire `earlyMs` early, while each reading of the clock takes its time.
 */
function statesWhenTimersAre(earlyMs: number): string[] {
  const cluster = new FakeCluster();
  const { clock } = cluster;
  const after = clock.after.bind(clock);
  clock.after = (delayMs, run) => after(Math.max(0, delayMs - earlyMs), run);
  const now = clock.now.bind(clock);
  clock.now = () => {
    clock.freeze(0.05);
    return now();
  };
  clock.monotonic = () => clock.now().monotonic;

  const states: string[] = [];
  cluster.lease(TTL_SECONDS).onState = (state) => states.push(state);
  clock.advance(0.8 * TTL_MS);
  return states;
}

test("jeopardy is published however early a timer fires", () => {
  // Around the millisecond by which a check is late on purpose.
  const early = Array.from({ length: 100 }, (_, i) => 0.7 + i / 100);

  const untold = early.filter((earlyMs) => statesWhenTimersAre(earlyMs)[0] !== "jeopardy");

  expect(untold).toEqual([]);
});
