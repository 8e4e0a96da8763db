import { setImmediate as tick } from "node:timers/promises";
import { describe, expect, test } from "vitest";
import {
  type QueuedRequest,
  RequestRegistry,
  type AcquireMode,
} from "../../../../src/recipes/web-locks/request.js";

let calls = 0;

/** A request that the test lets into the queue manually. */
class FakeRequest implements QueuedRequest {
  readonly order = calls++;
  entering = false;
  lined = 0;
  entered: () => void = () => {};

  constructor(readonly mode: AcquireMode = "wait") {}

  join(): Promise<void> {
    this.entering = true;
    return new Promise((resolve) => (this.entered = resolve));
  }

  mustWait(): void {
    this.lined++;
  }
}

const registry = new RequestRegistry();
const lineOf = (...requests: FakeRequest[]) => {
  const line = registry.line(`name ${calls}`);
  for (const request of requests) line.add(request);
  return line;
};
async function letIn(...requests: FakeRequest[]): Promise<void> {
  for (const request of requests) {
    await tick();
    expect(request.entering).toBe(true);
    request.entered();
  }
  await tick();
}

describe("the requests for one name", () => {
  test("enter the queue one after the other, in the order of the calls", async () => {
    const [first, second] = [new FakeRequest(), new FakeRequest()];
    lineOf(first, second);

    await tick();
    expect([first.entering, second.entering]).toEqual([true, false]);

    await letIn(first);
    expect(second.entering).toBe(true);
  });

  test("enter again before later calls when they have lost their places", async () => {
    const [first, second, third] = [new FakeRequest(), new FakeRequest(), new FakeRequest()];
    const line = lineOf(first, second);
    line.add(third);
    await tick();
    await letIn(first);
    first.entering = false;

    line.add(first);
    await letIn(second);

    expect([first.entering, third.entering]).toEqual([true, false]);
  });

  test("leave the line when they are given up", async () => {
    const [first, second, third] = [new FakeRequest(), new FakeRequest(), new FakeRequest()];
    const line = lineOf(first, second, third);

    line.remove(second);
    await letIn(first);

    expect([second.entering, third.entering]).toEqual([false, true]);
  });
});

describe("a request behind many that wait", () => {
  async function full() {
    const waiting = Array.from({ length: 50 }, () => new FakeRequest());
    const line = lineOf(...waiting);
    await letIn(...waiting);
    return { line, first: waiting[0]! };
  }

  test("is told that it waits, and enters when one of them does not wait any more", async () => {
    const { line, first } = await full();
    const late = new FakeRequest();

    line.add(late);
    await tick();
    expect([late.entering, late.lined > 0]).toEqual([false, true]);

    line.remove(first);
    await tick();
    expect(late.entering).toBe(true);
  });

  test("enters all the same when it steals", async () => {
    const { line } = await full();
    const [late, thief] = [new FakeRequest(), new FakeRequest("steal")];

    line.add(late);
    line.add(thief);
    await tick();

    expect([late.entering, thief.entering]).toEqual([false, true]);
  });
});

describe("while a request steals", () => {
  test("nobody behind it enters, and all of them are told so: they would rob it, or be robbed by it", async () => {
    const [thief, second, attempt] = [
      new FakeRequest("steal"),
      new FakeRequest("steal"),
      new FakeRequest("try"),
    ];
    const line = lineOf(thief, second, attempt);
    await letIn(thief);

    expect([second.entering, attempt.entering]).toEqual([false, false]);
    expect([second.lined > 0, attempt.lined > 0]).toEqual([true, true]);

    line.remove(attempt);
    line.remove(thief);
    await tick();
    expect(second.entering).toBe(true);
  });
});

describe("a line", () => {
  test("is the same for one name and cluster, as long as anybody is in it, and another for another cluster", async () => {
    const request = new FakeRequest();
    const line = registry.line("kept");
    line.add(request);

    expect(registry.line("kept")).toBe(line);
    expect(RequestRegistry.of({} as never).line("kept")).not.toBe(line);

    await letIn(request);
    line.remove(request);
    await tick();
    const next = registry.line("kept");
    expect(next).not.toBe(line);

    line.remove(request);
    expect(registry.line("kept")).toBe(next);
  });
});
