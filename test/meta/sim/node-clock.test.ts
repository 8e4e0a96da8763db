import { describe, expect, it } from "vitest";
import { Kernel } from "../../sim/kernel/kernel.js";
import { NodeClock, type NodeClockOptions } from "../../sim/node/node-clock.js";

function setUp(options: Partial<NodeClockOptions> = {}, seed = "clock") {
  const kernel = new Kernel(seed);
  const clock = new NodeClock({ scheduler: kernel, random: kernel.random, ...options });
  const ran: string[] = [];
  return { kernel, clock, ran, note: (what: string) => () => void ran.push(what) };
}

describe("NodeClock", () => {
  it("runs timers by its own drifting clock, at most 1 ms early, and in the order of their creation", async () => {
    const { kernel, clock, ran, note } = setUp({ drift: 0.01 });
    const start = clock.monotonic();
    let ranAt = 0;
    clock.after(1000, () => (ranAt = clock.monotonic()));
    clock.after(1000, note("second"));
    clock.after(1000.9, note("third"));
    await kernel.run(() => false, 5000);
    expect(ranAt - start).toBeGreaterThan(999);
    expect(ranAt - start).toBeLessThanOrEqual(1000 + 1e-6);
    expect(kernel.now).toBeLessThan(991);
    expect(ran).toEqual(["second", "third"]);
  });

  it("runs no cancelled timer, and counts the timers that keep the process alive", async () => {
    const { kernel, clock, ran, note } = setUp();
    clock.after(5, note("cancelled")).cancel();
    clock.after(5, note("unreferenced")).unref?.();
    clock.after(5, note("runs"));
    expect(clock.timers).toBe(1);
    await kernel.run(() => false, 100);
    expect(ran).toEqual(["unreferenced", "runs"]);
    expect(clock.timers).toBe(0);
  });

  it("steps its wall clock, and off Linux the clock that includes suspend", () => {
    for (const linux of [true, false]) {
      const { clock } = setUp({ linux });
      const before = { date: clock.date().getTime(), ...clock.now() };
      clock.stepWall(-60_000);
      expect(clock.date().getTime() - before.date).toBe(-60_000);
      expect(clock.now().suspend - before.suspend).toBe(linux ? 0 : -60_000);
      expect(clock.monotonic()).toBe(before.monotonic);
    }
  });

  it("runs nothing while it is paused, and then all that is due, what awaits the sockets after what they contain", async () => {
    const orders = new Set<string>();
    for (let seed = 0; seed < 20; seed++) {
      const { kernel, clock, ran, note } = setUp({}, `pause ${seed}`);
      clock.after(30, note("timer 30"));
      clock.after(20, () => {
        note("timer 20")();
        clock.afterPendingEvents(note("after the sockets"));
      });
      clock.after(25, note("cancelled")).cancel();
      clock.pause();
      kernel.at(50, () => clock.deliver(note("answer")));
      await kernel.elapse(100);
      expect(ran).toEqual([]);
      clock.resume();
      await kernel.elapse(1);
      expect([...ran].sort()).toEqual(["after the sockets", "answer", "timer 20", "timer 30"]);
      expect(ran.indexOf("timer 20")).toBeLessThan(ran.indexOf("timer 30"));
      expect(ran.indexOf("answer")).toBeLessThan(ran.indexOf("after the sockets"));
      orders.add(ran[0]!);
    }
    expect([...orders].sort()).toEqual(["answer", "timer 20"]);
  });

  it("counts suspend on one of its clocks only, and its timers go by the other", async () => {
    const { kernel, clock, ran, note } = setUp({ drift: 0 });
    const before = clock.now();
    clock.after(1000, note("timer"));
    await kernel.elapse(100);
    clock.suspend();
    await kernel.elapse(5000);
    clock.resume();
    expect(clock.monotonic() - before.monotonic).toBeCloseTo(100, 6);
    expect(clock.now().suspend - before.suspend).toBeGreaterThan(5080);
    await kernel.elapse(890);
    expect(ran).toEqual([]);
    await kernel.elapse(20);
    expect(ran).toEqual(["timer"]);
  });

  it("runs nothing after a kill, and sets no timer", async () => {
    const { kernel, clock, ran, note } = setUp();
    clock.after(10, note("timer"));
    clock.kill();
    clock.after(20, note("late timer"));
    clock.afterPendingEvents(note("immediate"));
    clock.deliver(note("answer"));
    expect(kernel.pending).toBe(0);
    await kernel.run(() => false, 100);
    expect([ran, clock.timers]).toEqual([[], 0]);
  });
});
