import { writeFileSync } from "node:fs";
import { describe, expect, test } from "vitest";
import { newFailures, repeatable } from "../../../scripts/unsteady.js";

const file = (name: string) => ({ file: name, tests: ["a test"] });
const some = ["locks/endings", "session/adopt", "auth/auth"].map((name) =>
  file(`test/integration/${name}.test.ts`),
);

describe("CI repeats failed files", () => {
  test("if they are few", () => {
    expect(repeatable(some)).toBe(true);
    expect(repeatable([...some, file("test/integration/auth/tokens.test.ts")])).toBe(false);
    expect(repeatable([])).toBe(false);
    expect(repeatable(undefined)).toBe(false);
  });

  test.each([
    "test/unit/session/lease.test.ts",
    "test/integration/locks/mutex-random.test.ts",
    "test/integration/tools/chaos.test.ts",
    "test/integration/session/fuzz-options.test.ts",
  ])("but not %s", (name) => {
    expect(repeatable([file(name)])).toBe(false);
  });
});

describe("what a run of the tests reports", () => {
  const written = (text: string) => {
    const failures = newFailures();
    writeFileSync(failures.path, text);
    return failures.read();
  };

  test("is the list of failed files", () => {
    expect(written(JSON.stringify({ failed: some, unhandled: 0 }))).toEqual(some);
  });

  test.each([
    ["an error outside every test", JSON.stringify({ failed: some, unhandled: 1 })],
    ["half a file", '{"failed":['],
  ])("is not known after %s", (_, text) => {
    expect(written(text)).toBeUndefined();
  });

  test("is not known if it has ended before it could report", () => {
    expect(newFailures().read()).toBeUndefined();
  });
});
