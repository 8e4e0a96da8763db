import { describe, expect, it } from "vitest";
import {
  besideLastSectionMs,
  cyclesOf,
  handOvers,
  latencies,
  longestWaitMs,
  pairsOf,
  percentToOthers,
  within,
} from "../../../bench/frame/cycles.js";
import { PEER_NAMES } from "../../../bench/peers/peers.js";
import type { Target } from "../../../bench/questions/question.js";
import { QUESTIONS } from "../../../bench/questions/questions.js";
import { verdictOf, type ResultRow } from "../../../bench/report/report.js";
import { median, percentile } from "../../../bench/report/statistics.js";
import { between } from "../../support/fixtures/markdown.js";
import { readPage } from "../../support/fixtures/pages.js";

const MS = 1e6;
/** Contender, requested, granted, release called: milliseconds, as a process records them. */
const journal = (...cycles: readonly [number, number, number, number][]) =>
  cycles.flatMap(([contender, ...times]) => [contender, ...times.map((ms) => ms * MS)]);

it("a median lies in the middle, and is no number of what was not all measured", () => {
  expect([median([3, 1, 2]), median([4, 1, 2, 3])]).toEqual([2, 2.5]);
  expect([median([]), median([1, NaN, 3])]).toEqual([NaN, NaN]);
});

it("a percentile is a value that was measured, and so many percent are not above it", () => {
  const hundred = Array.from({ length: 100 }, (_, n) => 100 - n);
  expect([percentile(hundred, 99), percentile([5, 1], 99), percentile([7], 1)]).toEqual([99, 5, 7]);
});

describe("what contenders noted", () => {
  it("gives the time from each release to the next grant, over all processes, by the order of the grants", () => {
    const cycles = cyclesOf([journal([0, 0, 1, 2], [0, 4, 7, 9]), journal([0, 0, 4, 5])]);
    expect(handOvers(cycles)).toEqual([2, 2]);
    expect(latencies(cycles)).toEqual({ p50: 2, p99: 2 });
    expect(within(cycles, { from: 3 * MS, to: 5 * MS })).toHaveLength(1);
  });

  it("is refused if two held the lock at a time", () => {
    const cycles = cyclesOf([journal([0, 0, 1, 5]), journal([0, 0, 4, 6])]);
    expect(() => handOvers(cycles)).toThrow(/two held the lock at a time/);
  });

  it("tells how many hand-overs went to somebody else", () => {
    const turns = cyclesOf([journal([0, 0, 1, 2], [0, 2, 3, 4]), journal([0, 0, 5, 6], [0, 6, 7, 8])]);
    expect(percentToOthers(turns)).toBeCloseTo(100 / 3);
  });

  it("counts the wait of who never got the lock, and of who still waits", () => {
    const span = { from: 0, to: 100 * MS };
    const cycles = cyclesOf([journal([0, 0, 10, 60]), journal([0, 0, 70, 90])]);
    expect(longestWaitMs(cycles, span, 2)).toBe(70);
    expect(longestWaitMs(cycles.slice(0, 1), span, 1)).toBe(40);
    expect(longestWaitMs(cycles, span, 3)).toBe(100);
  });

  it("leaves the last section out of a wait, by the name that both want", () => {
    const own = cyclesOf([journal([0, 0, 0, 20], [0, 20, 20, 40], [0, 44, 44, 60], [1, 0, 0, 99])]);
    const foreign = cyclesOf([journal([0, 18, 43, 44], [1, 100, 104, 105])]);
    expect(besideLastSectionMs(own, foreign)).toEqual([5, 4]);
  });

  it("counts pairs between the first and the last look within the span", () => {
    const noted = [50, 9, 7000, 100, 10, 9000, 150, 20, 1000, 200, 40, 3000, 250, 9, 7000];
    const journalOf = noted.map((value, n) => (n % 3 === 0 ? value * MS : value));
    expect(pairsOf(journalOf, { from: 100 * MS, to: 250 * MS })).toEqual({ rate: 600, p50: 2 });
  });
});

describe("a target", () => {
  const target: Target = {
    ...{ title: "rate, over Go's", case: "2", peer: "leasehold", figure: "rate", over: { peer: "go" } },
    ...{ bound: { atLeast: 15 }, shown: "hand-overs/s" },
  };
  const row = (peer: "leasehold" | "go", rate: number): ResultRow => ({
    ...{ case: "2", contenders: 2, peer, medians: { rate }, rounds: [] },
  });

  it("is met or missed by the ratio of the medians, and not judged where one of them is missing", () => {
    const rows = (rate: number) => [row("leasehold", rate), row("go", 20)];
    expect(verdictOf(target, rows(300))).toMatchObject({ value: 15, met: true });
    expect(verdictOf(target, rows(240))).toMatchObject({ value: 12, met: false });
    expect(verdictOf({ ...target, bound: { atMost: 10 } }, rows(240))).toMatchObject({ met: false });
    expect(verdictOf(target, [row("leasehold", 300)])).toBeUndefined();
  });

  it("names a case, peers and figures that its question asks for", () => {
    for (const { targets, columns, cases } of QUESTIONS) {
      const all = cases({ quick: false, rounds: 5 });
      for (const { over, ...which } of targets)
        for (const one of [which, { ...which, ...over }]) {
          expect(all.find(({ name }) => name === one.case)?.peers, one.title).toContain(one.peer);
          const figures = columns.map(({ figure }) => figure);
          expect(figures, one.title).toContain(one.figure);
        }
    }
  });
});

it("each peer is asked by at least one question", () => {
  const asked = QUESTIONS.flatMap(({ cases }) =>
    cases({ quick: false, rounds: 5 }).flatMap(({ peers, others = [] }) => [...peers, ...others]),
  );
  expect(new Set(asked)).toEqual(new Set(PEER_NAMES));
});

it("the table in docs/operations.md has its marks, once, and compares with Go's mutex", () => {
  const shown = QUESTIONS.flatMap(({ targets }) => targets.filter((target) => target.shown !== undefined));

  expect(new Set(shown.map(({ over }) => over?.peer))).toEqual(new Set(["go"]));
  expect(() => between(readPage("docs/operations.md"), "bench", [])).not.toThrow();
});
