import { describe, expect, it } from "vitest";
import {
  cyclesOf,
  handOvers,
  latencies,
  longestWaitMs,
  percentToOthers,
  within,
} from "../../../bench/frame/cycles.js";
import { sharesOf } from "../../../bench/frame/measure.js";
import { rotated } from "../../../bench/frame/rounds.js";
import { parseOptions } from "../../../bench/options.js";
import { PEER_NAMES } from "../../../bench/peers/peers.js";
import type { Target } from "../../../bench/questions/question.js";
import { QUESTIONS } from "../../../bench/questions/questions.js";
import { plotOf, operationsWith, resultsPage } from "../../../bench/report/pages.js";
import { verdictOf, type Report, type ResultRow } from "../../../bench/report/report.js";
import { median, medians, percentile } from "../../../bench/report/statistics.js";
import { figure, verdictText } from "../../../bench/report/text.js";
import { between, markdownTable } from "../../support/fixtures/markdown.js";
import { readPage } from "../../support/fixtures/pages.js";

const MS = 1e6;
/** Contender, requested, granted, release called: milliseconds, as a process records them. */
const journal = (...cycles: readonly [number, number, number, number][]) =>
  cycles.flatMap(([contender, ...times]) => [contender, ...times.map((ms) => ms * MS)]);

describe("a median", () => {
  it("is the middle one, or lies between the two in the middle", () => {
    expect(median([3, 1, 2])).toBe(2);
    expect(median([4, 1, 2, 3])).toBe(2.5);
  });

  it("is no number of nothing, and of what was not all measured", () => {
    expect(median([])).toBeNaN();
    expect(median([1, NaN, 3])).toBeNaN();
  });

  it("is taken of each figure over the rounds", () => {
    expect(
      medians([
        { rate: 1, p99: 9 },
        { rate: 3, p99: 7 },
        { rate: 2, p99: 8 },
      ]),
    ).toEqual({ rate: 2, p99: 8 });
  });
});

describe("a percentile", () => {
  it("is a value that was measured, and so many percent are not above it", () => {
    const hundred = Array.from({ length: 100 }, (_, n) => 100 - n);
    expect(percentile(hundred, 99)).toBe(99);
    expect(percentile([5, 1], 99)).toBe(5);
    expect(percentile([7], 1)).toBe(7);
  });
});

describe("what contenders noted", () => {
  it("is put in the order of the grants, over all processes", () => {
    const cycles = cyclesOf([journal([0, 0, 5, 6]), journal([0, 1, 2, 3], [1, 3, 8, 9])]);
    expect(cycles.map(({ granted }) => granted / MS)).toEqual([2, 5, 8]);
    expect(new Set(cycles.map(({ contender }) => contender)).size).toBe(3);
  });

  it("gives the time from each release to the next grant", () => {
    const cycles = cyclesOf([journal([0, 0, 1, 2], [0, 4, 7, 9]), journal([0, 0, 4, 5])]);
    expect(handOvers(cycles)).toEqual([2, 2]);
    expect(latencies(cycles)).toEqual({ p50: 2, p99: 2 });
  });

  it("is refused if two held the lock at a time", () => {
    const cycles = cyclesOf([journal([0, 0, 1, 5]), journal([0, 0, 4, 6])]);
    expect(() => handOvers(cycles)).toThrow(/two held the lock at a time, for 1 ms/);
  });

  it("counts for the span in which the lock was granted", () => {
    const cycles = cyclesOf([journal([0, 0, 1, 2], [0, 2, 3, 4], [0, 4, 5, 6])]);
    expect(within(cycles, { from: 3 * MS, to: 5 * MS })).toHaveLength(1);
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
});

describe("a run", () => {
  it("spreads contenders evenly over processes", () => {
    expect(sharesOf(1000, 10)).toEqual(Array.from({ length: 10 }, () => 100));
    expect(sharesOf(3, 2).toSorted()).toEqual([1, 2]);
  });

  it("lets each peer begin as often as the others", () => {
    expect([0, 1, 2, 3].map((round) => rotated(["a", "b", "c"], round)[0])).toEqual(["a", "b", "c", "a"]);
  });
});

const target: Target = {
  ...{ title: "rate, over Go's", case: "2", peer: "leasehold", figure: "rate", over: { peer: "go" } },
  ...{ bound: { atLeast: 15 }, shown: "hand-overs/s" },
};
const row = (peer: "leasehold" | "go", rate: number, which = "2"): ResultRow => ({
  ...{ case: which, contenders: 2, peer, medians: { rate, p50: 1000 / rate, p99: 2000 / rate }, rounds: [] },
});
const verdict = (ours: number, theirs: number) =>
  verdictOf(target, [row("leasehold", ours), row("go", theirs)]) ?? expect.fail("no verdict");

describe("a target", () => {
  it("is met or missed by the ratio of the medians, and tells by how much", () => {
    expect(verdictText(verdict(300, 20))).toBe("met: 15 (>= 15): rate, over Go's");
    expect(verdictText(verdict(240, 20))).toBe("MISSED by 20 %: 12 (>= 15): rate, over Go's");
    const atMost = verdictOf({ ...target, bound: { atMost: 10 } }, [row("leasehold", 240), row("go", 20)]);
    expect(atMost && verdictText(atMost)).toBe("MISSED by 20 %: 12 (<= 10): rate, over Go's");
  });

  it("can compare two cases of one peer", () => {
    const cases = { ...target, over: { case: "100" } };
    expect(verdictOf(cases, [row("leasehold", 50), row("leasehold", 100, "100")])?.value).toBe(0.5);
  });

  it("is not judged where one of its figures is missing", () => {
    expect(verdictOf(target, [row("leasehold", 300)])).toBeUndefined();
  });

  it("names a case, peers and figures that its question asks for", () => {
    for (const { targets, columns, cases } of QUESTIONS) {
      const all = cases({ quick: false, rounds: 5 });
      for (const { over, ...which } of targets)
        for (const one of [which, { ...which, ...over }]) {
          expect(all.find(({ name }) => name === one.case)?.peers, one.title).toContain(one.peer);
          expect(
            columns.map((column) => column.figure),
            one.title,
          ).toContain(one.figure);
        }
    }
  });
});

const report: Report = {
  ...{ quick: false, seconds: 600, loadAtStart: 0.1, loadAtEnd: 2, versions: { go: "v3.7.3" } },
  notRun: { redlock: "no redis-server" },
  machine: {
    ...{ cpu: "some", cores: 2, memoryGiB: 4, system: "Linux", node: "20.0.0", data: "disk", fsyncMs: 0.5 },
  },
  questions: [
    {
      ...{
        name: "hand-over",
        title: "Hand-over",
        members: 1,
        servers: ["etcd 3.4.23"],
        failed: [{ peer: "go", why: "it broke" }],
      },
      columns: [{ figure: "rate", title: "hand-overs/s" }],
      rows: [row("leasehold", 300), row("go", 20)],
      verdicts: [verdict(300, 20)],
    },
  ],
};

describe("a report", () => {
  const page = resultsPage(report);

  it("shows each peer's figures, and what could not be measured", () => {
    expect(page).toMatch(/\| 2 +\| leasehold +\| 300 +\|/);
    expect(page).toMatch(/\| +\| Go concurrency.Mutex +\| 20 +\|/);
    expect(page).toContain("not run: redlock: no redis-server");
    expect(page).toContain("could not be measured: it broke");
    expect(page).toContain("targets: 1 of 1 met");
  });

  it("warns of a quick run and of a busy machine", () => {
    expect(page).not.toMatch(/mean nothing|busy/);
    expect(resultsPage({ ...report, quick: true })).toContain("These figures mean nothing");
    expect(resultsPage({ ...report, loadAtStart: 3 })).toContain("The machine was busy");
  });

  it("shows three digits that count", () => {
    expect([12345.6, 123.45, 1.2345, 0.012345, 0].map(figure)).toEqual([
      "12,346",
      "123",
      "1.23",
      "0.0123",
      "0",
    ]);
    expect(figure(NaN)).toBe("–");
  });
});

describe("the plot", () => {
  it("has a line and a point for each peer that was measured, and nothing of the others", () => {
    const svg = plotOf(report);
    expect(svg.match(/<polyline/g)).toHaveLength(3 * 2 + 2);
    expect(svg).toContain("leasehold");
    expect(svg).not.toMatch(/redlock|NaN|Infinity/);
  });

  it("leaves out what was not measured", () => {
    const [question] = report.questions;
    const rows = [row("leasehold", 300), { ...row("go", 20), medians: { rate: NaN, p50: 0 } }];
    const svg = plotOf({ ...report, questions: question ? [{ ...question, rows }] : [] });
    expect(svg).not.toMatch(/NaN|Infinity/);
  });
});

describe("the table in docs/operations.md", () => {
  it("goes between its marks, which are there, and nowhere else", () => {
    const page = readPage("docs/operations.md");
    const written = operationsWith(page, report);
    expect(written).toContain(
      "| hand-overs/s | 300       | 20 (Go concurrency.Mutex) | 15    | >= 15: met |",
    );
    expect(operationsWith(written, report)).toBe(written);
    const outside = (text: string) => text.replace(/<!-- bench -->[^]*<!-- \/bench -->/, "");
    expect(outside(written)).toBe(outside(page));
  });

  it("is refused where the marks are missing or there twice", () => {
    expect(() => between("no marks", "bench", [])).toThrow(RangeError);
    const marks = "<!-- bench --><!-- /bench -->";
    expect(() => between(marks + marks, "bench", [])).toThrow(RangeError);
  });

  it("has columns of equal width", () => {
    expect(
      markdownTable([
        ["a", "long head"],
        ["longer", "b"],
      ]),
    ).toEqual(["| a      | long head |", "| ------ | --------- |", "| longer | b         |"]);
  });
});

describe("the options of the bench", () => {
  const parse = (...args: string[]) => parseOptions(args, ["alone", "crowd"]);

  it("are all questions in five rounds, unless told otherwise", () => {
    expect(parse()).toMatchObject({ only: ["alone", "crowd"], rounds: 5, quick: false });
    expect(parse("--only", "crowd", "--quick")).toMatchObject({ only: ["crowd"], rounds: 1 });
    expect(parse("--quick", "--rounds", "2")).toMatchObject({ rounds: 2 });
  });

  it("are refused when they name no question, or no number of rounds", () => {
    expect(() => parse("--only", "speed")).toThrow(/got speed/);
    expect(() => parse("--rounds", "0")).toThrow(RangeError);
  });

  it("write nothing that means nothing", () => {
    for (const part of [["--quick"], ["--only", "alone"], ["--case", "2"]])
      expect(() => parse("--write", ...part)).toThrow(/--write/);
  });
});

describe("the peers", () => {
  it("are asked by at least one question each", () => {
    const asked = QUESTIONS.flatMap(({ cases }) =>
      cases({ quick: false, rounds: 5 }).flatMap(({ peers, others = [] }) => [...peers, ...others]),
    );
    expect(new Set(asked)).toEqual(new Set(PEER_NAMES));
  });
});
