import { expect, test, vi } from "vitest";
import {
  httpStatusOf,
  isLeaseholdError,
  LeaseholdError,
  LockReleasedError,
  LockTimeoutError,
} from "../../src/index.js";

const timeout: unknown = new LockTimeoutError("jobs", 100, undefined, 3);

test("an error of leasehold is one; with a code, only if it has that code", () => {
  expect(isLeaseholdError(timeout)).toBe(true);
  expect(isLeaseholdError(timeout, "LOCK_TIMEOUT")).toBe(true);
  expect(isLeaseholdError(timeout, "LOCK_LOST")).toBe(false);
});

test("a code narrows the type to its class", () => {
  expect(isLeaseholdError(timeout, "LOCK_TIMEOUT") && timeout.ahead).toBe(3);
});

test("an error of another copy of the library is one, though instanceof is false", async () => {
  vi.resetModules();
  const other = await import("../../src/index.js");
  const error = new other.LockReleasedError("jobs");

  expect(error).not.toBeInstanceOf(LockReleasedError);
  expect(error).not.toBeInstanceOf(LeaseholdError);
  expect(isLeaseholdError(error, "LOCK_RELEASED")).toBe(true);
  expect(other.isLeaseholdError(timeout, "LOCK_TIMEOUT")).toBe(true);
});

test("the JSON of an error of another copy has its fields where it is a cause", async () => {
  vi.resetModules();
  const other = await import("../../src/index.js");
  const error = new other.LockLostError("jobs", "jobs/1", "revoked", timeout as Error);

  expect(error.toJSON()["cause"]).toMatchObject({ code: "LOCK_TIMEOUT", ahead: 3 });
});

test.each([
  ["undefined", undefined],
  ["null", null],
  ["a string", "LOCK_TIMEOUT"],
  ["another error", new Error("x")],
  ["an object with a code", { name: "LockTimeoutError", code: "LOCK_TIMEOUT" }],
  ["its JSON", JSON.parse(JSON.stringify(timeout)) as unknown],
  ["its structured clone", structuredClone(timeout)],
])("%s is none", (_, value) => {
  expect(isLeaseholdError(value)).toBe(false);
  expect(isLeaseholdError(value, "LOCK_TIMEOUT")).toBe(false);
});

test.each([["LOCK_TIMEUOT"], ["toString"], [7], [null]])("the unknown code %o is a RangeError", (code) => {
  expect(() => isLeaseholdError(timeout, code as "LOCK_TIMEOUT")).toThrow(RangeError);
  expect(() => isLeaseholdError(undefined, code as "LOCK_TIMEOUT")).toThrow(
    /^Expected code to be one of SESSION_LOST, .*PACKAGE_MISSING, got /,
  );
});

test("the HTTP status of an error of leasehold, of any copy, and of none other", async () => {
  vi.resetModules();
  const other = await import("../../src/index.js");

  expect(httpStatusOf(timeout)).toBe(429);
  expect(httpStatusOf(new other.LockTimeoutError("jobs", 100, undefined, 3))).toBe(429);
  expect(httpStatusOf(new other.SessionClosedError(7n))).toBe(503);
  expect(httpStatusOf(new other.LockReleasedError("jobs"))).toBe(500);
  for (const none of [new Error("x"), AbortSignal.abort().reason as unknown, undefined, "LOCK_TIMEOUT"])
    expect(httpStatusOf(none)).toBeUndefined();
});
