import { describe, expect, test } from "vitest";
import { parse } from "../../../../src/tools/cli/arguments.js";
import { command, formatDuration, parseDuration } from "../../../../src/tools/cli/command.js";
import { GrowingTable, width } from "../../../../src/tools/cli/io.js";

const run = command({
  ...{ name: "run", args: "NAME -- COMMAND", summary: "", help: [] },
  positionals: [1, 1],
  takesCommand: true,
  flags: { wait: { value: "DURATION", text: "" }, try: { text: "" } },
  run: () => Promise.resolve(0),
});

describe("the words of a command line", () => {
  test("end at --, behind which nothing is a flag", () => {
    expect(parse(run, ["a", "--wait", "3s", "--", "sh", "--try", "--"])).toEqual({
      flags: { wait: "3s" },
      positionals: ["a"],
      command: ["sh", "--try", "--"],
    });
  });

  test.each([
    [["a", "--wiat", "3s", "--", "sh"], "Unknown option '--wiat'"],
    [["a", "--wait", "--", "sh"], "--wait"],
    [["a", "b", "--", "sh"], "usage: leasehold run NAME -- COMMAND"],
    [["a"], "usage: leasehold run NAME -- COMMAND"],
    [["a", "--"], "usage: leasehold run NAME -- COMMAND"],
  ])("%j are refused", (words, message) => {
    expect(() => parse(run, words)).toThrow(message);
  });

  test("need nothing else beside --help", () => {
    expect(parse(run, ["--help"]).flags).toEqual({ help: true });
  });
});

describe("a duration", () => {
  test.each([
    ["500ms", 500],
    ["30s", 30_000],
    ["1.5m", 90_000],
    ["2h", 7_200_000],
    ["1d", 86_400_000],
    ["0", 0],
  ])("%s", (text, ms) => {
    expect(parseDuration("wait", text)).toBe(ms);
  });

  test.each(["30", "", "-1s", "1w", "1e3s", "600h", "25d", "NaNs"])("%j is refused", (text) => {
    expect(() => parseDuration("wait", text)).toThrow("--wait must be a duration such as 30s");
  });

  test.each([
    [0, "0 ms"],
    [999, "999 ms"],
    [41_000, "41 s"],
    [180_000, "3 min"],
    [7_200_000, "2 h"],
    [172_800_000, "2 d"],
  ])("of %d ms is shown as %s", (ms, text) => expect(formatDuration(ms)).toBe(text));
});

describe("a table", () => {
  test("has its columns below each other, and no control characters", () => {
    expect(
      new GrowingTable(["NAME", "N"]).add([
        ["a\u001b[31m", "1"],
        ["日本", "2"],
      ]),
    ).toBe(`NAME${" ".repeat(9)}N\na\\u001b[31m  1\n日本${" ".repeat(9)}2\n`);
  });

  test("counts the columns that a terminal uses", () => {
    expect(["a", "日", "e\u0301", "🙂"].map(width)).toEqual([1, 2, 1, 2]);
  });
});
