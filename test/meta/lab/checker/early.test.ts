import { describe, expect, it } from "vitest";
import { complaints, excuses } from "../../../lab/checker/complaints.js";
import { held, lost, robbed } from "../../../lab/checker/losses.js";
import { type Story } from "../../../lab/checker/story.js";
import type { Setting } from "../../../lab/runner/history.js";

const I1 = (story: Story, setting?: Partial<Setting>) => told("I1", story, setting);
const I9 = (story: Story, setting?: Partial<Setting>) => told("I9", story, setting);
const told = (label: "I1" | "I9", story: Story, setting?: Partial<Setting>) => ({
  hard: complaints(label, story, setting),
  soft: excuses(label, story, setting),
});

describe("a place that was taken early", () => {
  it("excuses claims and a late end for as long as the holder cannot know", () => {
    const { hard, soft } = I9(robbed({ claimAt: 2500, toldAt: 2510 }));
    expect(hard).toEqual([]);
    expect(soft).toEqual([
      "I9: w1#1 (lock/a, fence 10) claimed to hold 999.5 ms after etcd deleted its place at 1500.5 ms (taken by delete-key)",
      "I9: w1#1 (lock/a, fence 10) was told of its end 1009.5 ms after etcd deleted its place at 1500.5 ms (taken by delete-key)",
    ]);
    expect(I9(robbed({ claimAt: 3400, toldAt: 3401 })).hard).toHaveLength(2);
  });

  it("gives a holder four seconds more whose streams were hindered", () => {
    const late = { claimAt: 7300, toldAt: 7310 };
    expect(I9(robbed(late).hindered(1000, 1400)).hard).toEqual([]);
    expect(I9(robbed({ claimAt: 7340, toldAt: 7345 }).hindered(1000, 1400)).hard).toHaveLength(2);
  });

  it("gives a holder with a long TTL no longer than that if the hindered member ended its streams", () => {
    const told = (toldAt: number, more = {}) =>
      I9(robbed({ claimAt: toldAt - 10, toldAt }).hindered(1000, 20_000, more), { ttlSeconds: 120 }).hard;
    expect(told(20_000)).toEqual([]);
    expect(told(11_000, { endsStreams: true })).toEqual([]);
    expect(told(12_100, { endsStreams: true })).toHaveLength(2);
  });

  it("gives it the time in which its process was stopped", () => {
    expect(I9(robbed({ claimAt: 1600, toldAt: 5100 }).stopped("w1", 1700, 5000)).hard).toEqual([]);
  });

  it("is named as the cause, also where its process stalled beside", () => {
    const { soft } = I9(robbed({ claimAt: 1510, toldAt: 1520 }).stalled(1500, "w1", 100));
    expect(soft).toEqual([expect.stringContaining("(taken by"), expect.stringContaining("(taken by")]);
  });

  it("is known by its revision: another place of the same key is not excused", () => {
    const story = robbed({ claimAt: 1510, toldAt: 1520 });
    expect(I9(story).hard).toEqual([]);
    story.ask(7000, "w1", 2, 20).grant(7001, "w1", 2, 20).del(7002, 21, "lock/a/w1").claim(7010, "w1", 2, 20);
    expect(I9(story.end(7011, "w1", 2, "deleted")).hard).toHaveLength(2);
  });

  it("is not excused by a request that was aimed at something else in that revision", () => {
    const elsewhere = held().taken(1500, 12, "lock/a/w1", { target: "lock/b/w1" });
    expect(I9(elsewhere.end(1600, "w1", 1, "deleted")).hard).toHaveLength(1);
  });

  it("is excused with every place of a revoked lease, and with no other lease's", () => {
    const both = (victim: string) => {
      const story = held().ask(1, "w1", 2, 9, { lock: "lock/b" }).grant(2, "w1", 2, 9, { lock: "lock/b" });
      story.taken(1500, 12, "lock/a/w1", { target: victim }).del(1500, 12, "lock/b/w1");
      return story.end(1600, "w1", 1, "revoked").end(1600, "w1", 2, "revoked");
    };
    expect(I9(both("w1")).hard).toEqual([]);
    expect(I9(both("w2")).hard).toHaveLength(2);
  });

  it("is excused when the deletion was never answered, if it was aimed at it then", () => {
    const unanswered = { answered: false };
    const story = () => held().taken(1500, 12, "lock/a/w1", unanswered);
    expect(I9(story().end(1600, "w1", 1, "deleted")).hard).toEqual([]);
    const later = held().fault(1500, true, takingOf("lock/a/w1")).fault(1501, false, takingOf("lock/a/w1"));
    later.del(9000, 12, "lock/a/w1").end(9100, "w1", 1, "deleted");
    expect(I9(later).hard).toHaveLength(1);
  });

  const takingOf = (target: string) =>
    ({ fault: "delete-key", effect: "takes-place", target, took: [] }) as const;
});

describe("an etcd of several members, which may revoke early", () => {
  const early = { members: 3 };
  const revoked = () => lost(100).hindered(1000, 1500);

  it("excuses the loss of a whole lease, after a fault of etcd", () => {
    const { hard, soft } = I9(revoked(), early);
    expect(hard).toEqual([]);
    expect(soft).toEqual([expect.stringContaining("(revoked early by etcd)")]);
    expect(I1(revoked(), early).hard).toEqual([]);
  });

  it("is not blamed for what a stopped process explains", () => {
    const { soft } = I9(revoked().stopped("w1", 2200, 2390), early);
    expect(soft).toEqual([expect.stringContaining("(its process was stopped)")]);
  });

  it("is not what one member does, which has no successor", () => {
    expect(I9(revoked(), { members: 1 }).hard).toHaveLength(1);
    expect(I1(revoked(), { members: 1 }).hard).toHaveLength(1);
  });

  it("does so only after a fault", () => {
    expect(I9(lost(100), early).hard).toHaveLength(1);
  });

  it("does not take a single place whose lease lives on", () => {
    const single = revoked().ask(2600, "w1", 2, 20, { lock: "lock/b" });
    expect(I9(single, early).hard).toHaveLength(1);
  });

  it("does not excuse for ever", () => {
    // Healed at 1500; 6 s until the cluster has settled, a TTL, and a second.
    expect(I9(lost(8000).hindered(1000, 1500), early).hard).toEqual([]);
    expect(I9(lost(8300).hindered(1000, 1500), early).hard).toHaveLength(1);
  });
});
