import { describe, expect, test } from "vitest";
import { type Timed, Timers } from "../../../../src/base/util/timers.js";
import { FakeClock } from "../../../support/fakes/fake-clock.js";
import { seeded } from "../../../lab/runner/random.js";

class Note implements Timed {
  dueAt = 0;

  constructor(
    readonly name: number,
    private readonly log: number[],
  ) {}

  due(): void {
    this.log.push(this.name);
  }
}

describe("timers", () => {
  test("run in the order of their times, and those of one time in the order in which they were set", () => {
    const clock = new FakeClock();
    const timers = new Timers(clock);
    const ran: string[] = [];
    for (const [delayMs, name] of [
      [30, "c"],
      [10, "a"],
      [30, "d"],
      [20, "b"],
      [30, "e"],
    ] as const)
      timers.add(delayMs, () => ran.push(name));

    clock.advance(29);
    expect(ran).toEqual(["a", "b"]);
    clock.advance(1);
    expect(ran).toEqual(["a", "b", "c", "d", "e"]);
  });

  test("do not run after all are dropped, even if they are due at the same time", () => {
    const clock = new FakeClock();
    const timers = new Timers(clock);
    const ran: string[] = [];
    timers.add(10, () => {
      ran.push("first");
      timers.close();
    });
    timers.add(10, () => ran.push("second"));

    clock.advance(20);
    expect(ran).toEqual(["first"]);
  });

  test("run in that order also after the process was stopped for longer than all of them", () => {
    const clock = new FakeClock();
    const timers = new Timers(clock);
    const ran: number[] = [];
    for (const delayMs of [30, 10, 40, 20]) timers.add(delayMs, () => ran.push(delayMs));

    clock.freeze(1000);
    clock.advance(0);

    expect(ran).toEqual([10, 20, 30, 40]);
  });

  test("run as a sorted list would, whatever is set, moved and deleted between", () => {
    const clock = new FakeClock();
    const random = seeded("timers").next;
    const timers = new Timers(clock);
    const ran: number[] = [];
    const notes = Array.from({ length: 300 }, (_, name) => new Note(name, ran));
    const expected = new Map<number, number>();
    for (let n = 0; n < 5000; n++) {
      const note = notes[Math.floor(random() * notes.length)]!;
      expected.delete(note.name);
      if (random() < 0.3) {
        timers.delete(note);
      } else {
        const delayMs = Math.floor(random() * 1000);
        timers.set(note, delayMs);
        expected.set(note.name, clock.monotonic() + delayMs);
      }
      if (random() < 0.9) continue;

      clock.advance(20);
      const due = [...expected].filter(([, at]) => at <= clock.monotonic());
      expect(ran.splice(0)).toEqual(due.sort(([, a], [, b]) => a - b).map(([name]) => name));
      for (const [name] of due) expected.delete(name);
    }
  });

  test("wait up to one grain longer, never shorter, and those of one grain share a run", () => {
    const clock = new FakeClock();
    const timers = new Timers(clock);
    const ranAt: number[] = [];
    const start = clock.monotonic();
    for (const delayMs of [100, 101, 150, 200])
      timers.add(delayMs, () => ranAt.push(clock.monotonic() - start), 100);

    clock.advance(1000);

    expect(ranAt).toEqual([100, 200, 200, 200]);
  });

  test("are thousands under one timer of the clock, which runs some of them in each turn", () => {
    const clock = new FakeClock();
    const after = clock.after.bind(clock);
    let ran = 0;
    let most = 0;
    clock.after = (delayMs, run) =>
      after(delayMs, () => {
        const before = ran;
        run();
        most = Math.max(most, ran - before);
      });
    const timers = new Timers(clock);
    for (let n = 0; n < 20_000; n++) timers.add(1000, () => ran++, 500);
    expect(clock.timers).toBe(1);

    clock.advance(999);
    expect(ran).toBe(0);
    clock.advance(1);
    expect(ran).toBe(20_000);
    expect(most).toBeLessThan(1000);
  });

  test("may set and cancel others, and themselves, while they run", () => {
    const clock = new FakeClock();
    const timers = new Timers(clock);
    const ran: string[] = [];
    timers.add(10, () => {
      last.cancel();
      timers.add(0, () => ran.push("now"));
      timers.add(5, () => ran.push("later"));
    });
    const last = timers.add(10, () => ran.push("cancelled"));

    clock.advance(10);
    expect(ran).toEqual(["now"]);
    clock.advance(5);
    expect(ran).toEqual(["now", "later"]);
    expect(clock.timers).toBe(0);
  });

  test("run after one of them has thrown", () => {
    const clock = new FakeClock();
    const timers = new Timers(clock);
    const ran: string[] = [];
    timers.add(10, () => {
      throw new Error("its user's");
    });
    timers.add(10, () => ran.push("other"));

    expect(() => clock.advance(10)).toThrow("its user's");
    clock.advance(1);

    expect(ran).toEqual(["other"]);
  });

  test("of calls keep no process alive; those of a session do, until the last one is deleted", () => {
    for (const keepsAlive of [false, true]) {
      const clock = new FakeClock();
      const after = clock.after.bind(clock);
      let unreferenced = 0;
      clock.after = (delayMs, run) => ({
        ...after(delayMs, run),
        unref: () => void unreferenced++,
      });
      const timers = new Timers(clock, keepsAlive);

      const [first, second] = [timers.add(10, () => {}), timers.add(20, () => {})];
      expect(unreferenced).toBe(keepsAlive ? 0 : 1);

      first.cancel();
      expect(clock.timers).toBe(1);
      second.cancel();
      expect(clock.timers).toBe(keepsAlive ? 0 : 1);
    }
  });
});
