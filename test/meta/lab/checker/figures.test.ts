import { describe, expect, it } from "vitest";
import { judge } from "../../../lab/checker/judge.js";
import { lost, robbed } from "../../../lab/checker/losses.js";
import { perfectRun } from "../../../lab/checker/perfect.js";
import { goodStory, type Story } from "../../../lab/checker/story.js";

const figures = (story: Story) => judge(story.run()).figures;

describe("the figures of a run", () => {
  it("count operations by what came of them", () => {
    expect(figures(goodStory()).operations).toMatchObject({
      ...{ revisions: 6, "acquire invoke": 2, "acquire ok": 2, "release ok": 2, "end released": 2 },
      ...{ "read ok": 2, "write invoke": 2, "write ok": 2, claim: 4, leftovers: 2 },
    });
  });

  it("are those of the run as it was judged, though it goes on", () => {
    const run = goodStory().run();
    const history = [...run.history];
    const verdict = judge({ ...run, history });
    history.splice(0);
    expect(verdict.figures).toEqual(figures(goodStory()));
  });

  it("count faults when they begin, by kind", () => {
    const story = goodStory().stopped("w1", 50, 51).stopped("w2", 52, 53).hindered(54, 55).killed("w1", 58);
    const { faults, faultCount, faultKinds } = figures(story);
    expect(faults).toEqual({ "pause-worker": 2, "pause-member": 1, "kill-worker": 1 });
    expect([faultCount, faultKinds]).toEqual([4, 3]);
  });

  it("count a hand-over where a grant waited for another holder's place, not where it waited for a waiter's", () => {
    expect(figures(goodStory()).handOvers).toBe(1);
    const behindNobody = goodStory().ask(45, "w3", 1, 20).giveUp(46, "w3", 1).ask(46, "w4", 1, 21);
    behindNobody.del(47, 22, "lock/a/w3").grant(48, "w4", 1, 21).release(49, "w4", 1, 23);
    expect(figures(behindNobody).handOvers).toBe(1);
  });

  it("tell the longest time from a turn to its grant, and the longest that no fault touched", () => {
    const wakeUp = { ms: 0.5, who: "w2#1 (lock/a, fence 11)" };
    expect(figures(goodStory())).toMatchObject({ longestWakeUp: wakeUp, longestQuietWakeUp: wakeUp });
    const disturbed = figures(goodStory().hindered(12, 14));
    expect(disturbed).toMatchObject({ longestWakeUp: wakeUp, longestQuietWakeUp: undefined });
    expect(figures(goodStory().stopped("w1", 12, 14)).longestQuietWakeUp).toEqual(wakeUp);
  });

  it("sum up for how long holders had not been told while others held", () => {
    expect(figures(goodStory()).overlapMs).toBe(0);
    expect(figures(lost(800).stopped("w1", 200, 3000)).overlapMs).toBe(799.5);
    expect(figures(lost(20)).overlapMs).toBe(19.5);
  });

  it("sum up what was excused, by invariant and cause", () => {
    const { excused } = figures(robbed({ claimAt: 2500, toldAt: 2510 }));
    expect(excused).toEqual({
      "I1 taken by delete-key": { count: 1, ms: 1009, longestMs: 1009 },
      "I9 taken by delete-key": { count: 2, ms: 2009, longestMs: 1009.5 },
    });
  });

  it("are told to people in a few lines", () => {
    const lines = figures(lost(800).stopped("w1", 200, 3000)).lines();
    expect(lines).toEqual([
      expect.stringMatching(/^operations: revisions 4, acquire invoke 2/),
      "1 faults of 1 kinds: pause-worker 1",
      "1 hand-overs; longest wake-up 0.5 ms, w2#1 (lock/a, fence 11)",
      "longest wake-up that no fault touched 0.5 ms, w2#1 (lock/a, fence 11)",
      "0 revisions of several places at once, 0 at most",
      "claims overlapped for 799.5 ms",
      "excused, I1 its process was stopped: 1 times, 799.5 ms in all, 799.5 ms at most",
      "excused, I9 its process was stopped: 1 times, 800.0 ms in all, 800.0 ms at most",
    ]);
  });
});

describe("a long run", () => {
  const LINES = 60_000;

  it(`of ${LINES} lines is judged within the time of a test, faults, stalls and all`, () => {
    const moves = Array.from({ length: LINES / 2 }, (_, n) => ({
      ...{ process: (n * 7) % 11, lock: n % 5, choice: (n * 37) % 95, afterMs: n % 3 },
    }));
    const { run } = perfectRun(moves);
    const disturbed = goodStory();
    for (let n = 0; n < LINES / 100; n++) {
      const at = n * 400;
      disturbed
        .stopped(`w${n % 11}`, at, at + 5)
        .hindered(at + 10, at + 20)
        .stalled(at + 30, `w${n % 7}`, 26);
    }
    const faults = disturbed.run().history.filter(({ k }) => k === "nemesis" || k === "stall");
    const history = [...run.history, ...faults];
    expect(history.length).toBeGreaterThan(LINES);
    const { violations, figures: found } = judge({ ...run, history });
    expect(violations).toEqual({});
    expect(found.faultCount).toBe(LINES / 50);
  });
});
