import { beforeEach, expect, test } from "vitest";
import { SuspendClock } from "../../../../src/base/util/clock.js";

/** A machine whose clocks go on, are suspended, and are set. */
class Machine {
  monotonic = 5000;
  #suspended = 0;
  #steps = 1_700_000_000_000;
  readings = 0;
  /** So long the process stands still within the next reading of the file, before it. */
  standsStillMs = 0;
  readonly clock = new SuspendClock(
    () => Math.floor(this.monotonic + this.#suspended + this.#steps),
    () => {
      this.readings++;
      this.monotonic += this.standsStillMs;
      this.standsStillMs = 0;
      // Node reads it from a text with two decimals.
      return Math.floor(this.uptime / 10) * 10;
    },
    () => this.monotonic,
  );

  get uptime(): number {
    return this.monotonic + this.#suspended;
  }

  suspend(ms: number): void {
    this.#suspended += ms;
  }

  setWallClock(byMs: number): void {
    this.#steps += byMs;
  }

  /** How far it is behind: the resolution of the reading. */
  get behind(): number {
    return this.uptime - this.clock.at(this.monotonic);
  }
}

const RESOLUTION_MS = 10;
/** The wall clock shows no less. */
const UNNOTICED_MS = 2;

let machine: Machine;
beforeEach(() => {
  machine = new Machine();
  machine.clock.at(machine.monotonic);
});

const expectRight = () => {
  expect(machine.behind).toBeGreaterThanOrEqual(-1e-6);
  expect(machine.behind).toBeLessThan(RESOLUTION_MS + UNNOTICED_MS);
};

test("it shows each suspend at once, however often it was read before", () => {
  for (const ms of [3, 20, 1000, 86_400_000, 3]) {
    machine.monotonic += 0.4;
    expectRight();
    machine.suspend(ms);
    expectRight();
  }
});

test("suspends of which each is too short to be seen add up", () => {
  for (let n = 0; n < 1000; n++) {
    machine.suspend(1.3);
    expectRight();
    machine.monotonic += 0.01;
  }
});

test("a step of the wall clock does not change it, and costs one reading", () => {
  for (const ms of [-3_600_000, 3_600_000, 5]) {
    const { readings } = machine;
    machine.setWallClock(ms);
    expectRight();
    expectRight();
    expect(machine.readings).toBe(readings + 1);
  }
});

test("a process that stands still within a reading does not run ahead of it afterwards", () => {
  machine.monotonic += 1000;
  machine.standsStillMs = 700;
  machine.clock.at(machine.monotonic);
  machine.monotonic += 10;
  expectRight();
  machine.monotonic += 200;
  machine.suspend(600);
  expectRight();
});

test("a step of the wall clock that undoes a suspend hides it for a second at most", () => {
  machine.suspend(60_000);
  machine.setWallClock(-60_000);
  machine.monotonic += 1000;
  expectRight();
});

test("while nothing happens, it reads the file once a second", () => {
  const { readings } = machine;
  for (let ms = 0; ms < 10_000; ms++) {
    machine.monotonic += 0.999;
    expectRight();
  }
  expect(machine.readings - readings).toBeLessThanOrEqual(10);
});
