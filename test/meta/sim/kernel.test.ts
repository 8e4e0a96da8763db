import { describe, expect, it } from "vitest";
import { drainByCheckpoint } from "../../sim/kernel/drain.js";
import { Kernel } from "../../sim/kernel/kernel.js";
import { Random } from "../../../src/testing/memory/random.js";
import { reference } from "../../sim/kernel/reference.js";

const never = () => false;

describe("Kernel", () => {
  it("runs events by time, and those of equal times in the order of their creation", async () => {
    const kernel = new Kernel(1);
    const ran: string[] = [];
    kernel.at(5, () => ran.push("5 first"));
    kernel.at(1, () => ran.push("1"));
    kernel.at(5, () => ran.push("5 second"));
    kernel.at(3, () => kernel.after(2, () => ran.push("5 third")));
    await kernel.run(never, 100);
    expect(ran).toEqual(["1", "5 first", "5 second", "5 third"]);
  });

  it("drains all microtasks and process.nextTick callbacks after an event, before the next one of the same time", async () => {
    const kernel = new Kernel(3);
    const ran: string[] = [];
    const deep = async () => {
      for (let n = 0; n < 50; n++) await Promise.resolve();
      await new Promise<void>((resolve) => process.nextTick(resolve));
      for (let n = 0; n < 50; n++) await Promise.resolve();
      ran.push("deep");
    };
    kernel.at(1, () => void deep());
    kernel.at(1, () => ran.push("next"));
    await kernel.run(never, 100);
    expect(ran).toEqual(["deep", "next"]);
  });

  it("stops when its condition holds, when no event is left, and at the limit, where its time ends", async () => {
    const kernel = new Kernel(4);
    let ran = 0;
    for (const time of [10, 20, 30]) kernel.at(time, () => ran++);
    expect(await kernel.run(() => ran === 1, 100)).toBe(true);
    expect(kernel.now).toBe(10);
    expect(await kernel.run(never, 12)).toBe(false);
    expect([ran, kernel.now]).toEqual([2, 22]);
    await kernel.elapse(3);
    expect([ran, kernel.now]).toEqual([2, 25]);
    expect(await kernel.run(never, 100)).toBe(false);
    expect([ran, kernel.now]).toEqual([3, 30]);
  });

  it("rejects with what an event throws, and can run again", async () => {
    const kernel = new Kernel(5);
    kernel.at(1, () => {
      throw new Error("thrown by an event");
    });
    await expect(kernel.run(never, 10)).rejects.toThrow("thrown by an event");
    await expect(kernel.run(never, 10)).resolves.toBe(false);
  });

  it("has the same hash for the same seed, with each way to drain microtasks, and another for another seed", async () => {
    const hash = await reference("a seed");
    expect(await reference("a seed")).toBe(hash);
    expect(await reference("a seed", drainByCheckpoint())).toBe(hash);
    expect(await reference("b seed")).not.toBe(hash);
    // The same on Node.js 20, 22 and 26: see the README.
    expect(hash).toBe("c00ce7299b219188");
  });
});

describe("a loop at one virtual moment", () => {
  it("ends the run with an error that contains the time", async () => {
    const kernel = new Kernel(1);
    const again = (): void => void kernel.after(0, again);
    kernel.at(5, again);
    await expect(kernel.run(() => false, 10)).rejects.toThrow("virtual time stands still at 5 ms");
  });
});

describe("Random", () => {
  it("depends on seed and label alone, not on earlier draws or forks", () => {
    const first = new Random("seed");
    const second = new Random("seed");
    first.next();
    first.fork("other").next();
    expect(first.fork("label").id()).toBe(second.fork("label").id());
    expect(first.fork("label").id()).not.toBe(first.fork("label 2").id());
  });
});
