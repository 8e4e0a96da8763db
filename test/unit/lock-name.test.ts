import fc from "fast-check";
import { describe, expect, test } from "vitest";
import { connect, lockName, Mutex } from "../../src/index.js";
import { pathIn } from "../../src/observe/board-queues.js";
import { expectMisuse, outOfRange, thrown, wrongType } from "../support/fixtures/misuse.js";

const RUNS = { numRuns: Number(process.env["LEASEHOLD_FUZZ"] ?? 200) };

/** `lockName` with the text of a template that is not known before the test runs. */
function named(texts: readonly string[], values: readonly unknown[]): string {
  const strings = Object.assign([...texts], { raw: [...texts] });
  return lockName(strings, ...(values as string[]));
}

/** The values that gave the name, read from it. */
function valuesOf(texts: readonly string[], name: string): string[] {
  const values: string[] = [];
  let at = texts[0]!.length;
  for (const [n, text] of texts.slice(1).entries()) {
    const isLast = n === texts.length - 2;
    const end = isLast ? name.length - text.length : name.length;
    let value = "";
    while (at < end && (isLast || name[at] !== text[0])) {
      const [unit] = /^(%empty|(%E[D]%[AB].%..)|(%..)+|.)/.exec(name.slice(at)) as unknown as [string];
      at += unit.length;
      if (unit !== "%empty") value += decoded(unit);
    }
    at += text.length;
    values.push(value);
  }
  return values;
}

const decoded = (unit: string): string =>
  unit.replace(/%ED%([AB].)%(..)|((?:%(?!ED%[AB]).{2})+)/g, (_, high: string, low: string, rest: string) =>
    rest === undefined
      ? String.fromCharCode(0xd000 | ((parseInt(high, 16) & 0x3f) << 6) | (parseInt(low, 16) & 0x3f))
      : decodeURIComponent(rest),
  );

/** Any UTF-16, often of the characters that have a meaning in names and escapes. */
const anyText = fc.oneof(
  fc.string({ unit: "binary", maxLength: 30 }),
  fc.array(fc.integer({ min: 0, max: 0xffff }), { maxLength: 8 }).map((all) => String.fromCharCode(...all)),
  fc
    .array(fc.constantFrom(..."/%.-5Ame\u0000\n\ud800\udc00é", "read", "write", "%empty", "..", "%2F"), {
      maxLength: 8,
    })
    .map((all) => all.join("")),
);
/** The text between two values: any that names may contain and that has no "%". */
const separator = fc.constantFrom(
  "/",
  "-",
  ".",
  "5",
  "A",
  "e",
  "_x",
  "é",
  "\u{1f4a5}",
  "\ud83d\udca5/",
  "a/b",
  " ",
);
const template = fc
  .array(separator, { maxLength: 3 })
  .map((between) => ["orders/", ...between, ""] as readonly string[]);
const call = template.chain((texts) =>
  fc.tuple(
    fc.constant(texts),
    fc.array(anyText, { minLength: texts.length - 1, maxLength: texts.length - 1 }),
  ),
);

describe("lockName", () => {
  test.each([
    [lockName`orders`, "orders"],
    [lockName`orders/${"17"}`, "orders/17"],
    [lockName`orders/${17}`, "orders/17"],
    [lockName`orders/${17n}`, "orders/17"],
    [lockName`orders/${-1.5}`, "orders/-1.5"],
    [lockName`${"a/b"}/${"c"}`, "a%2Fb/c"],
    [lockName`users/${"müller@example.com"}/mail`, "users/m%C3%BCller%40example.com/mail"],
    [lockName`orders/${"100%"}`, "orders/100%25"],
    [lockName`orders/${"a\0\n"}`, "orders/a%00%0A"],
    [lockName`orders/${""}`, "orders/%empty"],
    [lockName`orders/${"%empty"}`, "orders/%25empty"],
    [lockName`orders/${".."}`, "orders/.."],
    [lockName`orders/${"read"}/${"write"}`, "orders/%72ead/%77rite"],
    [lockName`orders/${"\ud800"}`, "orders/%ED%A0%80"],
    [lockName`${"eu-west"}-${"1-a"}`, "eu%2Dwest-1-a"],
    [lockName`${"1525"}5${"%"}`, "1%352%355%25"],
  ])("gives %s", (name, expected) => expect(name).toBe(expected));

  test("gives different names for different values, whatever they are", () => {
    fc.assert(
      fc.property(call, ([texts, values]) => {
        expect(valuesOf(texts, named(texts, values))).toEqual(values);
      }),
      RUNS,
    );
  });

  test("gives names that every lock takes, and in which no value adds a slash", async () => {
    await using cluster = connect({ hosts: "127.0.0.1:1" });
    fc.assert(
      fc.property(call, ([texts, values]) => {
        const name = named(texts, values);

        expect(new Mutex(cluster, name).name).toBe(name);
        expect(name.split("/")).toHaveLength(texts.join("").split("/").length);
        expect(pathIn(Buffer.from(`${name}/6a1f`), "")).toBe(name);
      }),
      RUNS,
    );
  });

  test.each([
    ["undefined", wrongType("value 2", "a string, a number or a bigint", undefined)],
    ["null", wrongType("value 2", "a string, a number or a bigint", null)],
    ["an object", wrongType("value 2", "a string, a number or a bigint", {}, "an object (Object)")],
    ["a String object", wrongType("value 2", "a string", Object("x"), "an object (String)")],
    ["an array", wrongType("value 2", "a string", ["x"], "an array")],
    ["a symbol", wrongType("value 2", "a string", Symbol("x"), "a symbol")],
    ["a boolean", wrongType("value 2", "a string", true, "true")],
    ["NaN", outOfRange("value 2", "a finite number", NaN)],
    ["Infinity", outOfRange("value 2", "a finite number", -Infinity)],
  ])("refuses %s as a value, and says which one", (_, each) => {
    expectMisuse(
      thrown(() => named(["a/", "/", ""], ["x", each.value])),
      each,
    );
  });

  test("refuses a call as a function", () => {
    const asFunction = lockName as unknown as (...all: unknown[]) => string;
    for (const args of [[], ["orders/17"], [["orders/"], 17], [{ raw: ["x"] }, 17]])
      expect(() => asFunction(...args)).toThrow(/lockName to be called as a template tag, as in lockName`/);
  });

  test("refuses templates whose values could not be told apart", () => {
    expect(() => lockName`${"a"}${"b"}`).toThrow("a separator between value 1 and value 2");
    expect(() => lockName`50%/${"a"}`).toThrow(/text 1 of lockName to be free of "%"/);
  });

  test("refuses a malformed escape sequence in the template", () => {
    expect(() => lockName`\u/${"a"}`).toThrow(/text 1 of lockName to be free of malformed escape sequences/);
  });

  test("refuses a result that is no name", () => {
    expect(() => lockName`orders/${"x".repeat(1017)}`).not.toThrow();
    for (const make of [
      () => lockName`orders/${"x".repeat(1018)}`,
      () => lockName`orders/${"é".repeat(300_000)}`,
      () => lockName``,
      () => lockName`/orders/${"x"}`,
      () => lockName`orders//${"x"}`,
      () => lockName`orders/${"x"}/`,
    ])
      expect(make).toThrow(/^Expected the result of lockName to be /);
  });
});
