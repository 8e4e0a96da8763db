import { describe, expect, it } from "vitest";
import { complaints, excuses } from "../../../lab/checker/complaints.js";
import { held, lost, robbed } from "../../../lab/checker/losses.js";
import { goodStory, Story } from "../../../lab/checker/story.js";
import type { Setting } from "../../../lab/runner/history.js";

const I1 = (story: Story, setting?: Partial<Setting>) => told("I1", story, setting);
const I9 = (story: Story, setting?: Partial<Setting>) => told("I9", story, setting);
const told = (label: "I1" | "I9", story: Story, setting?: Partial<Setting>) => ({
  hard: complaints(label, story, setting),
  soft: excuses(label, story, setting),
});

describe("I1, no two claims overlap", () => {
  it("sees two processes that claim at the same time, and for how long", () => {
    expect(I1(goodStory().claim(30, "w1", 1, 10)).hard).toEqual([
      "w1#1 (lock/a, fence 10) and w2#1 (lock/a, fence 11) both claimed to hold, for 8.0 ms from 22.0 ms on",
    ]);
  });

  it("sees a single claim inside another process's time", () => {
    expect(I1(goodStory().ask(15, "w3", 1, 30).grant(16, "w3", 1, 30)).hard).toHaveLength(1);
  });

  it("allows claims that touch a lock of another name", () => {
    const other = { lock: "lock/b" };
    expect(I1(goodStory().ask(15, "w3", 1, 30, other).grant(16, "w3", 1, 30, other)).hard).toEqual([]);
  });

  it("does not take a holder for two, however its claims lie to its stops", () => {
    const alone = () => new Story().ask(0, "w1", 1, 10).grant(1, "w1", 1, 10).stopped("w1", 5, 10);
    for (const t of [5, 7, 10])
      expect(I1(alone().claim(t, "w1", 1, 10).claim(20, "w1", 1, 10)).hard).toEqual([]);
  });

  it("does not count the time after a claim that said no", () => {
    expect(I1(held().claim(10, "w1", 1, 10, false).grant(11, "w2", 1, 11)).hard).toEqual([]);
  });

  it("does not count the time of a stop between two claims, but a claim after it", () => {
    const stopped = (claimAt: number) =>
      held().stopped("w1", 5, 100).grant(10, "w2", 1, 11).claim(90, "w2", 1, 11).claim(claimAt, "w1", 1, 10);
    expect(I1(stopped(101)).hard).toEqual([]);
    expect(I1(stopped(101).claim(110, "w2", 1, 11)).hard).toHaveLength(1);
  });

  it("does not count the time of a stall, but a claim that was made in it", () => {
    const stalled = (story: Story) =>
      story.stalled(100, "w1", 95).grant(10, "w2", 1, 11).claim(90, "w2", 1, 11);
    expect(I1(stalled(held()).claim(101, "w1", 1, 10)).hard).toEqual([]);
    expect(I1(stalled(held()).claim(50, "w1", 1, 10)).hard).toHaveLength(1);
  });

  it("sees a holder that was told only after the next one was granted, though it claimed nothing meanwhile", () => {
    expect(I1(lost(20)).hard).toEqual([
      "w1#1 (lock/a, fence 10) had not been told of its end when w2#1 (lock/a, fence 11) held, for 19.5 ms from 2301.0 ms on",
    ]);
    expect(I1(lost(0)).hard).toEqual([]);
  });

  it("excuses, and tells, a holder that was stopped when it would have been told", () => {
    const { hard, soft } = I1(lost(800).stopped("w1", 200, 3000));
    expect(hard).toEqual([]);
    expect(soft).toEqual([
      "I1: w1#1 (lock/a, fence 10) had not been told of its end when w2#1 (lock/a, fence 11) held, for 799.5 ms from 2301.0 ms on (its process was stopped)",
    ]);
  });

  it("excuses it no longer than half a second after it went on", () => {
    expect(I1(lost(1190).stopped("w1", 200, 3000)).hard).toEqual([]);
    expect(I1(lost(1210).stopped("w1", 200, 3000)).hard).toHaveLength(1);
  });

  it("does not excuse it by a stop of another process, or by one that was long over", () => {
    expect(I1(lost(800).stopped("w2", 200, 3000)).hard).toHaveLength(1);
    expect(I1(lost(800).stopped("w1", 200, 1700)).hard).toHaveLength(1);
  });

  it("excuses a holder whose place was deleted by hand, until it must have noticed", () => {
    // One second until it watches its key, a sixth of a TTL for a renewal, and half a second to record it.
    const { hard, soft } = I1(robbed({ claimAt: 3300, toldAt: 3310 }));
    expect(hard).toEqual([]);
    expect(soft).toHaveLength(1);
    expect(I1(robbed({ claimAt: 3340, toldAt: 3341 })).hard).toEqual([
      "w1#1 (lock/a, fence 10) and w2#1 (lock/a, fence 11) both claimed to hold, for 1839.0 ms from 1501.0 ms on (taken by delete-key, excused until 3333.8 ms)",
    ]);
  });

  it("does not excuse by a deletion of another lock's key", () => {
    const story = held().ask(2, "w1", 2, 9, { lock: "lock/b" }).del(1500, 12, "lock/a/w1");
    story
      .taken(1500, 13, "lock/b/w1")
      .grant(1501, "w2", 1, 11)
      .claim(1510, "w1", 1, 10)
      .claim(6000, "w2", 1, 11);
    expect(I1(story).hard).toHaveLength(1);
  });

  it("does not excuse a grant to somebody whose turn it was not", () => {
    const story = held().ask(4, "w3", 1, 13).taken(1500, 14, "lock/a/w1").grant(1501, "w3", 1, 13);
    expect(I1(story.claim(1510, "w1", 1, 10).claim(1520, "w3", 1, 13)).hard).toHaveLength(1);
  });

  it("does not excuse an overlap that came before the deletion", () => {
    const story = held().grant(5, "w2", 1, 11).claim(50, "w1", 1, 10).claim(60, "w2", 1, 11);
    expect(I1(story.taken(70, 12, "lock/a/w1").end(71, "w1", 1, "deleted")).hard).toHaveLength(1);
  });
});

describe("I9, a loss is told in time", () => {
  it("waits one TTL longer for a holder whose machine was suspended, though it may claim nothing", () => {
    // Until 3,000 ms; the TTL is two seconds.
    expect(I9(lost(3190).suspended("w1", 200, 3000)).hard).toEqual([]);
    expect(I9(lost(3210).suspended("w1", 200, 3000)).hard).toHaveLength(1);
    expect(I9(lost(3190).stopped("w1", 200, 3000)).hard).toHaveLength(1);
    expect(I9(lost(3190).suspended("w2", 200, 3000)).hard).toHaveLength(1);
    const claiming = lost(3190).claim(3100, "w1", 1, 10).suspended("w1", 200, 3000);
    expect(I9(claiming).hard).toEqual([expect.stringContaining("claimed to hold")]);
  });

  it("sees a claim that is younger than the deletion", () => {
    const story = held().del(5, 12, "lock/a/w1").end(5, "w1", 1, "expired").claim(9, "w1", 1, 10);
    expect(I9(story).hard).toEqual([
      "w1#1 (lock/a, fence 10) claimed to hold 3.5 ms after etcd deleted its place at 5.5 ms",
    ]);
  });

  it("sees a grant that is younger than the deletion", () => {
    const story = goodStory().ask(41, "w3", 1, 16).del(42, 17, "lock/a/w3").grant(43, "w3", 1, 16);
    expect(I9(story.end(43, "w3", 1, "expired")).hard).toHaveLength(2);
  });

  it("sees a claim of a process that went on after a stop: it reads the clock before it claims", () => {
    const story = held().stopped("w1", 4, 2400).del(2300, 12, "lock/a/w1").claim(2401, "w1", 1, 10);
    expect(I9(story.end(2402, "w1", 1, "expired")).hard).toHaveLength(1);
  });

  it("sees a loss that was told after the deletion, and by how much", () => {
    expect(I9(lost(0)).hard).toEqual([]);
    expect(I9(lost(0.1)).hard).toEqual([
      "w1#1 (lock/a, fence 10) was told of its end 0.1 ms after etcd deleted its place at 2300.5 ms",
    ]);
  });

  it("sees a loss that was never told, but not of a process that was killed before", () => {
    const untold = () => held().del(2300, 12, "lock/a/w1").leftovers(4000, "end");
    expect(I9(untold()).hard).toEqual([
      "w1#1 (lock/a, fence 10) was never told that etcd deleted its place at 2300.5 ms",
    ]);
    expect(I9(untold().killed("w1", 200)).hard).toEqual([]);
    expect(I9(untold().killed("w1", 2400)).hard).toHaveLength(1);
  });

  it("excuses, and tells, what a stopped or stalled process could not say", () => {
    const stopped = I9(lost(800).stopped("w1", 200, 3000));
    expect(stopped).toMatchObject({ hard: [], soft: [expect.stringContaining("its process was stopped")] });
    const stalled = I9(lost(300).stalled(2550, "w1", 400));
    expect(stalled).toMatchObject({ hard: [], soft: [expect.stringContaining("its process stalled")] });
  });

  it("excuses a moment's stall no longer than it lasted", () => {
    expect(I9(lost(25).stalled(2300, "w1", 30)).hard).toEqual([]);
    expect(I9(lost(35).stalled(2300, "w1", 30)).hard).toHaveLength(1);
    expect(I1(lost(35).stalled(2300, "w1", 30)).hard).toHaveLength(1);
  });

  it("excuses stops that follow each other", () => {
    const twice = (between: number) =>
      lost(3000)
        .stopped("w1", 200, 3000)
        .stopped("w1", 3000 + between, 5200);
    expect(I9(twice(400)).hard).toEqual([]);
    expect(I9(twice(600)).hard).toHaveLength(1);
  });

  it("does not excuse by a stop of another process", () => {
    expect(I9(lost(800).stopped("w2", 200, 3000)).hard).toHaveLength(1);
  });

  it("does not excuse by a fault of etcd or of the way to it: the deadline passes without any answer", () => {
    expect(I9(lost(10).hindered(100, 2900)).hard).toHaveLength(1);
  });
});
