import fc from "fast-check";
import { describe, expect, it } from "vitest";
import { judge } from "../../../lab/checker/judge.js";
import { MISTAKES } from "../../../lab/checker/mistakes.js";
import { perfectRun, type Move } from "../../../lab/checker/perfect.js";

const move: fc.Arbitrary<Move> = fc.record({
  process: fc.nat(3),
  lock: fc.nat(1),
  choice: fc.nat(99),
  afterMs: fc.nat(30),
});
const moves = fc.array(move, { minLength: 30, maxLength: 120 });

describe("a run of a service that makes no mistake", () => {
  it("breaks no invariant, whatever its users do", () => {
    fc.assert(
      fc.property(moves, (some) => {
        expect(judge(perfectRun(some).run).violations).toEqual({});
      }),
    );
  });

  it("needs no excuse when nobody takes a place by hand", () => {
    const harmless = moves.map((some) => some.map((it) => ({ ...it, choice: it.choice % 95 })));
    fc.assert(
      fc.property(harmless, (some) => {
        expect(judge(perfectRun(some).run).soft).toEqual([]);
      }),
    );
  });

  it("has as many hand-overs as the service made", () => {
    fc.assert(
      fc.property(moves, (some) => {
        const { run, handOvers } = perfectRun(some);
        expect(judge(run).figures.handOvers).toBe(handOvers);
      }),
    );
  });
});

describe("a single mistake in a good run is noticed:", () => {
  for (const [what, [label, mistake]] of Object.entries(MISTAKES))
    it(what, () => {
      fc.assert(
        fc.property(moves, fc.nat(999), (some, nth) => {
          const bad = mistake(perfectRun(some).run, nth);
          fc.pre(bad !== undefined);
          expect(Object.keys(judge(bad).violations)).toContain(label);
        }),
      );
    });
});
