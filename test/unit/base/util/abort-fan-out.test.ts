import { getEventListeners } from "node:events";
import { describe, expect, test } from "vitest";
import { AbortFanOut } from "../../../../src/base/util/abort.js";
import { settleWithin } from "../../../../src/base/util/settle.js";
import { FakeClock, settle } from "../../../support/fakes/fake-clock.js";

const listeners = (signal: AbortSignal) => getEventListeners(signal, "abort").length;

describe("a caller's signal", () => {
  test("carries one listener however many calls wait with it, and none when all have ended", () => {
    const aborts = new AbortFanOut();
    const { signal } = new AbortController();

    const stops = Array.from({ length: 1000 }, () => aborts.add(signal, () => {}));
    expect(listeners(signal)).toBe(1);
    stops.slice(1).forEach((stop) => stop());
    expect(listeners(signal)).toBe(1);
    stops[0]!();

    expect(listeners(signal)).toBe(0);
  });

  test("carries one listener however many clusters use it, and none when all have ended", () => {
    const { signal } = new AbortController();

    const stops = Array.from({ length: 11 }, () => new AbortFanOut().add(signal, () => {}));
    expect(listeners(signal)).toBe(1);
    for (const stop of stops) stop();

    expect(listeners(signal)).toBe(0);
  });

  test("is heard in all clusters, but not by who has stopped listening meanwhile, or begins", () => {
    const caller = new AbortController();
    const heard: string[] = [];
    const [first, second, third] = [new AbortFanOut(), new AbortFanOut(), new AbortFanOut()];

    first.add(caller.signal, () => {
      heard.push("first");
      stop();
      new AbortFanOut().add(caller.signal, () => heard.push("late"));
    });
    const stop = second.add(caller.signal, () => heard.push("second"));
    third.add(caller.signal, () => heard.push("third"));
    caller.abort();

    expect(heard).toEqual(["first", "third"]);
  });

  test("is heard by each call that still waits, once", () => {
    const aborts = new AbortFanOut();
    const caller = new AbortController();
    const heard: string[] = [];

    aborts.add(caller.signal, () => heard.push("a"));
    aborts.add(caller.signal, () => heard.push("b"))();
    aborts.add(caller.signal, () => heard.push("c"));
    caller.abort();

    expect(heard).toEqual(["a", "c"]);
    expect(listeners(caller.signal)).toBe(0);
  });

  test("is listened to again by a later call, which an earlier one's end does not disturb", () => {
    const aborts = new AbortFanOut();
    const caller = new AbortController();
    const heard: string[] = [];

    const stop = aborts.add(caller.signal, () => heard.push("a"));
    stop();
    aborts.add(caller.signal, () => heard.push("b"));
    stop();
    caller.abort();

    expect(heard).toEqual(["b"]);
  });

  test("keeps its listener if it was used last, and loses it when another one was", () => {
    const aborts = new AbortFanOut("last");
    const [first, second] = [new AbortController(), new AbortController()];
    const heard: string[] = [];

    for (let n = 0; n < 3; n++) aborts.add(first.signal, () => heard.push("over"))();
    expect(listeners(first.signal)).toBe(1);
    const stop = aborts.add(second.signal, () => heard.push("over"));
    expect([listeners(first.signal), listeners(second.signal)]).toEqual([1, 1]);
    stop();
    expect([listeners(first.signal), listeners(second.signal)]).toEqual([0, 1]);

    aborts.add(first.signal, () => heard.push("first"));
    aborts.add(second.signal, () => heard.push("second"));
    first.abort();
    second.abort();
    expect(heard).toEqual(["first", "second"]);
    expect([listeners(first.signal), listeners(second.signal)]).toEqual([0, 0]);
  });

  test("loses its kept listener when the connection is left, also if its call ends later or has ended by an abort", () => {
    const aborts = new AbortFanOut("last");
    const [used, inUse, aborted] = [new AbortController(), new AbortController(), new AbortController()];
    aborts.add(used.signal, () => {})();
    const stop = aborts.add(inUse.signal, () => {});
    const stopAborted = aborts.add(aborted.signal, () => {});
    aborted.abort();
    stopAborted();

    aborts.release();
    expect([listeners(used.signal), listeners(inUse.signal)]).toEqual([0, 1]);
    stop();
    expect([listeners(used.signal), listeners(inUse.signal), listeners(aborted.signal)]).toEqual([0, 0, 0]);
  });

  test("that was used last may be in use again when another one ends", () => {
    const aborts = new AbortFanOut("last");
    const [first, second] = [new AbortController(), new AbortController()];
    const heard: string[] = [];

    aborts.add(first.signal, () => heard.push("over"))();
    aborts.add(first.signal, () => heard.push("first"));
    aborts.add(second.signal, () => heard.push("over"))();
    first.abort();

    expect(heard).toEqual(["first"]);
  });
});

describe("a wait", () => {
  function waiting<T>(options: { signal?: AbortSignal; timeoutMs?: number }) {
    const clock = new FakeClock();
    const { promise, resolve, reject } = deferred<T>();
    const told: string[] = [];
    const outcome = settleWithin(
      promise,
      { signal: options.signal, timeoutMs: options.timeoutMs },
      { clock, aborts: new AbortFanOut() },
      {
        onTimeout: () => new Error("too late"),
        onGiveUp: () => told.push("gave up"),
        onUnwanted: (value) => told.push(`unwanted ${String(value)}`),
      },
    );
    outcome.catch(() => undefined);
    return { clock, outcome, resolve, reject, told };
  }

  function deferred<T>() {
    let resolve!: (value: T) => void;
    let reject!: (error: Error) => void;
    const promise = new Promise<T>((yes, no) => ((resolve = yes), (reject = no)));
    return { promise, resolve, reject };
  }

  test("ends with the value, and leaves neither timer nor listener", async () => {
    const { signal } = new AbortController();
    const { clock, outcome, resolve, told } = waiting({ signal, timeoutMs: 100 });

    resolve("lock");

    await expect(outcome).resolves.toBe("lock");
    expect([clock.timers, listeners(signal), told]).toEqual([0, 0, []]);
  });

  test("ends with the failure of what it waits for", async () => {
    const { outcome, reject, told } = waiting({ timeoutMs: 100 });
    const failure = new Error("no");

    reject(failure);

    await expect(outcome).rejects.toBe(failure);
    expect(told).toEqual([]);
  });

  test("ends with the caller's own reason, and undoes a value that comes later", async () => {
    const caller = new AbortController();
    const { clock, outcome, resolve, told } = waiting({ signal: caller.signal, timeoutMs: 100 });

    caller.abort("any reason");
    await expect(outcome).rejects.toBe("any reason");
    resolve("lock");
    await settle();

    expect(told).toEqual(["gave up", "unwanted lock"]);
    expect(clock.timers).toBe(0);
  });

  test("ends with its timeout, and undoes a value that comes later", async () => {
    const { clock, outcome, resolve, told } = waiting({ timeoutMs: 100 });

    clock.advance(99);
    expect(told).toEqual([]);
    clock.advance(1);
    await expect(outcome).rejects.toThrow("too late");
    resolve("lock");
    await settle();

    expect(told).toEqual(["gave up", "unwanted lock"]);
  });

  test("is over before it began when the signal is aborted already, though the value is there", async () => {
    const { outcome, resolve, told } = waiting({ signal: AbortSignal.abort("early") });

    resolve("lock");

    await expect(outcome).rejects.toBe("early");
    expect(told).toEqual(["gave up", "unwanted lock"]);
  });
});
