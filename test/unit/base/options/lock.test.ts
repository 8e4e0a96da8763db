import { describe, expect, test } from "vitest";
import {
  connect,
  Election,
  lockAll,
  Mutex,
  RwLock,
  Semaphore,
  type LockOptions,
} from "../../../../src/index.js";
import { checkLock } from "../../../../src/base/options/lock.js";

// Port 1: these tests connect to nothing.
const cluster = connect({ hosts: "127.0.0.1:1" });
const given = (options: unknown) => options as LockOptions;

describe("the options of a lock", () => {
  test("are kept as they are", () => {
    const options = { label: "orders/:user", maxHoldMs: 60_000, maxHoldGraceMs: 0, warnHoldMs: 1 };

    expect(checkLock("Mutex", options)).toEqual(options);
    expect(checkLock("Mutex", undefined)).toEqual({});
  });

  test.each([
    [{ maxHoldMs: 500 }, 50],
    [{ maxHoldMs: 60_000 }, 1000],
    [{ maxHoldMs: 60_000, maxHoldGraceMs: 7 }, 7],
  ])("%j: a grace of %i ms", (options, graceMs) => {
    expect(checkLock("Mutex", options).maxHoldGraceMs).toBe(graceMs);
  });

  test.each([
    ["label", "", RangeError, "label"],
    ["label", "x".repeat(101), RangeError, "1 to 100 printable ASCII"],
    ["label", "a\nb", RangeError, "printable ASCII"],
    ["label", 1, TypeError, "label"],
    ["maxHoldMs", 0, RangeError, "maxHoldMs"],
    ["maxHoldMs", 2 ** 31, RangeError, "maxHoldMs"],
    ["maxHoldMs", NaN, RangeError, "maxHoldMs"],
    ["maxHoldGraceMs", 5, TypeError, "maxHoldGraceMs needs maxHoldMs"],
    ["warnHoldMs", "1", TypeError, "warnHoldMs"],
    ["maxHold", 1, TypeError, "did you mean maxHoldMs?"],
  ])("%s: %j is rejected by every lock", (option, value, misuse, text) => {
    const bad = given({ [option]: value });

    for (const make of [
      () => new Mutex(cluster, "a", bad),
      () => new RwLock(cluster, "a", bad),
      () => new Semaphore(cluster, "a", 2, bad),
    ]) {
      expect(make).toThrow(misuse);
      expect(make).toThrow(text);
    }
  });

  test.each([-1, "1", 2 ** 31])("a grace of %j is rejected", (maxHoldGraceMs) => {
    expect(() => checkLock("Mutex", { maxHoldMs: 9, maxHoldGraceMs })).toThrow(
      "milliseconds from 0 to 2147483647",
    );
  });

  test("lockAll takes the same ones", async () => {
    const bad = (options: unknown) => lockAll(cluster, ["a"], given(options));

    await expect(bad({ maxHoldMs: 0 })).rejects.toThrow("maxHoldMs");
    await expect(bad({ maxHold: 1 })).rejects.toThrow("did you mean maxHoldMs?");
    await expect(bad({ timeoutMs: 0, maxHoldMs: 1 })).rejects.toThrow("timeoutMs");
  });

  test("an election takes a label only", () => {
    expect(new Election(cluster, "a", { label: "jobs" }).name).toBe("a");
    expect(() => new Election(cluster, "a", given({ maxHoldMs: 5 }))).toThrow("Unknown option maxHoldMs");
  });
});
