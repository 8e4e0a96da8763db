import { describe, expect, test } from "vitest";
import { checkConnect } from "../../../../src/base/options/connect.js";

const write = () => {};
const check = (log: unknown) => checkConnect({ hosts: "a:1", log }).log;

describe("the option log", () => {
  test.each([
    ["console", console],
    ["a function", write],
    ["a function with the methods of a logger", Object.assign(() => {}, { warn: write, error: write })],
    ["the two methods that are needed", { warn: write, error: write }],
    [
      "a logger with other properties",
      { warn: write, error: write, info: write, fatal: write, level: "info" },
    ],
  ])("takes %s", (_, log) => {
    expect(check(log)).toBe(log);
  });

  test("takes methods of a class, and is undefined by default", () => {
    class Logger {
      warn() {}
      error() {}
    }
    const log = new Logger();

    expect(check(log)).toBe(log);
    expect(check(undefined)).toBeUndefined();
  });

  const rule =
    "Expected log to be a function, or an object with the methods warn and error, and perhaps info and debug";
  test.each([
    [null, `${rule}, got null`],
    ["debug", `${rule}, got "debug"`],
    [{ warn: write }, "Expected log.error to be a function, got undefined"],
    [[], "Expected log.warn to be a function, got undefined"],
    [{ warn: write, error: write, info: 1 }, "Expected log.info to be a function, got 1"],
    [{ warn: write, error: write, debug: true }, "Expected log.debug to be a function, got true"],
  ])("rejects %o", (log, message) => {
    expect(() => check(log)).toThrow(new TypeError(message));
  });
});
