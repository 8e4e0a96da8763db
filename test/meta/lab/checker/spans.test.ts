import fc from "fast-check";
import { describe, expect, it } from "vitest";
import { faultsOf } from "../../../lab/checker/faults.js";
import { Steps } from "../../../lab/checker/steps.js";
import {
  covered,
  FOREVER,
  lastBegun,
  merged,
  touching,
  without,
  type Span,
} from "../../../lab/checker/spans.js";
import { Story } from "../../../lab/checker/story.js";

const LATEST = 60;
const moments = Array.from({ length: LATEST + 1 }, (_, t) => BigInt(t));
const span = fc
  .tuple(fc.bigInt(0n, 60n), fc.bigInt(0n, 60n))
  .map(([a, b]): Span => (a < b ? { from: a, to: b } : { from: b, to: a }));
const spans = fc.array(span, { maxLength: 12 });
const has = (list: readonly Span[], t: bigint) => list.some(({ from, to }) => from <= t && t <= to);

describe("stretches of time", () => {
  it("stay the same moments when they are merged, apart and in order", () => {
    fc.assert(
      fc.property(spans, (some) => {
        const found = merged(some);
        expect(moments.filter((t) => has(found, t))).toEqual(moments.filter((t) => has(some, t)));
        found.slice(1).forEach(({ from }, n) => expect(found[n]?.to).toBeLessThan(from));
      }),
    );
  });

  it("are found by whether they have a moment in common", () => {
    fc.assert(
      fc.property(spans, span, (some, { from, to }) => {
        const all = merged(some);
        const expected = all.filter((it) => it.from <= to && it.to >= from);
        expect(touching(all, { from, to })).toEqual(expected);
        expect(lastBegun(all, to)).toEqual(all.findLast((it) => it.from <= to));
      }),
    );
  });

  it("leave of another one what they do not cover, and cover the rest", () => {
    fc.assert(
      fc.property(spans, span, (some, whole) => {
        const holes = merged(some);
        const rest = without(whole, holes);
        const inside = (t: bigint) => holes.some(({ from, to }) => from < t && t < to);
        for (const t of moments) {
          if (has([whole], t) && !has(holes, t)) expect(has(rest, t)).toBe(true);
          if (inside(t) || !has([whole], t)) expect(has(rest, t)).toBe(false);
        }
        const left = rest.reduce((sum, { from, to }) => sum + to - from, 0n);
        expect(left + covered(holes, whole)).toBe(whole.to - whole.from);
      }),
    );
  });
});

describe("faults", () => {
  it("last until they are healed, each kind and target by itself", () => {
    const { history } = new Story()
      .stopped("w1", 1, 5)
      .hindered(2, 3)
      .stopped("w2", 4, 6)
      .stopped("w1", 7, 8)
      .run();
    const found = faultsOf(new Steps(history).nemeses).map(({ target, from, to }) => [
      target,
      Number(from) / 1e6,
      Number(to) / 1e6,
    ]);
    expect(found).toEqual([
      ["w1", 1, 5],
      ["m1", 2, 3],
      ["w2", 4, 6],
      ["w1", 7, 8],
    ]);
  });

  it("last for ever when nobody healed them", () => {
    expect(faultsOf(new Steps(new Story().stopped("w1", 1).run().history).nemeses)[0]?.to).toBe(FOREVER);
  });
});
