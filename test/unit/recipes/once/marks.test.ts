import { describe, expect, test } from "vitest";
import {
  errorOf,
  keptOf,
  type Mark,
  MAX_MARK,
  MAX_RESULT,
  parseMark,
  putMark,
  runOf,
} from "../../../../src/recipes/once/marks.js";
import { MarkSpace, TextPlan } from "../../../../src/recipes/once/slots.js";
import { FakeCluster } from "../../../support/fakes/fake-connection.js";

const valueOf = (mark: object): { readonly value: string } => {
  const put = putMark({ key: "a" }, mark as Mark, 0n);
  return { value: put.kind === "put" ? put.value : "" };
};

describe("a mark", () => {
  test("with the longest of all that it may have is read again, and has at most 96 KiB", () => {
    const mark: Mark = {
      state: "failed",
      owner: "☃".repeat(85),
      since: new Date(0).toISOString(),
      ended: new Date(0).toISOString(),
      id: "z".repeat(13),
      key: "k".repeat(2048),
      fence: String(2n ** 63n),
      fingerprint: "f".repeat(43),
      result: keptOf(new Uint8Array(MAX_RESULT), "a"),
      error: errorOf(
        Object.assign(new Error('"'.repeat(5000)), { code: "c".repeat(5000), name: "n".repeat(5000) }),
      ),
    };
    const { value } = valueOf(mark);

    expect(Buffer.byteLength(value)).toBeLessThanOrEqual(MAX_MARK);
    expect(parseMark({ value })).toEqual(mark);
  });

  test.each([
    ["is none", "no JSON"],
    ["is longer than any of ours", JSON.stringify({ state: "done", owner: "a".repeat(MAX_MARK) })],
    ["is no object", "7"],
  ])("of another program that %s has no fields", (_, value) => {
    expect(parseMark({ value })).toBeUndefined();
  });

  test("of another program has only the fields that have the form of ours", () => {
    const mark = parseMark(
      valueOf({ state: "odd", owner: 7, since: "x", error: { message: 8, code: "\u001b[31m" }, result: [1] }),
    );

    expect(mark).toEqual({ since: "x", error: { name: "", code: "\\u001b[31m", message: "" }, result: {} });
    expect(runOf(mark)).toMatchObject({
      owner: undefined,
      since: undefined,
      ended: undefined,
      failed: false,
    });
  });
});

describe("a result", () => {
  const nested = (depth: number): unknown => {
    let value: unknown = ["[{[{"];
    for (let n = 1; n < depth; n++) value = n % 2 ? [value] : { "]": value };
    return value;
  };

  test("of 1000 arrays and objects in each other is kept, and one of more is not", () => {
    const kept = keptOf(nested(1000), "a");
    const { value } = valueOf({ state: "done", result: kept });

    expect(parseMark({ value })?.result).toEqual(kept);
    for (const depth of [1001, 3000, 30_000])
      expect(() => keptOf(nested(depth), "a")).toThrow(expect.objectContaining({ code: "RESULT_NOT_KEPT" }));
  });

  test("that another program has nested deeper makes the mark one of unknown form", () => {
    const [open, close] = ["[", "]"].map((each) => each.repeat(30_000));

    expect(parseMark({ value: `{"state":"done","result":{"json":${open}${close}}}` })).toBeUndefined();
  });
});

describe("the keys of a name", () => {
  const { services } = new FakeCluster().lease();
  const space = MarkSpace.of(services, "a/b");

  test("tell numbers from texts, and name what they are of", () => {
    const texts = ["a/b", "%2F", "☃", "-1", "0000000000000007"];
    const keys = [space.mark(7), ...texts.map((text) => space.text(encodeURIComponent(text)))];
    const others = [
      space.floor(7),
      space.shared("run"),
      { key: "/leasehold/once/a/b/c//=x" },
      { key: space.text("%E0").key },
    ];

    expect(keys.map(({ key }) => space.slotOf(key))).toEqual([7, ...texts]);
    expect(others.map(({ key }) => space.slotOf(key))).toEqual(others.map(() => undefined));
    const { key, end } = space.all();
    expect(keys.every((each) => each.key >= key && each.key < end)).toBe(true);
    expect(others.slice(0, 3).some((each) => each.key >= key && each.key < end)).toBe(false);
  });

  test("of a text are those of a lock of its own", () => {
    const options = {
      rerun: "never",
      ifRunning: "skip",
      skips: false,
      keepsResult: true,
      fingerprint: undefined,
    } as const;
    const plan = new TextPlan("a", "x/y z", { services, options, keepMs: 1000 });

    expect([plan.lock, plan.at.key, plan.what]).toEqual([
      "a/x%2Fy%20z",
      "/leasehold/once/a//=x%2Fy%20z",
      'slot "x/y z" of "a"',
    ]);
  });
});
