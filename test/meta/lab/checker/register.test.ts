import { describe, expect, it } from "vitest";
import { complaints } from "../../../lab/checker/complaints.js";
import { goodStory, Story } from "../../../lab/checker/story.js";

describe("I4, no stale write", () => {
  it("sees a write after the place was gone", () => {
    const story = goodStory().write(45, "w1", 1, { token: 10, seq: 3, rev: 16 });
    expect(complaints("I4", story)).toEqual([
      "lock/a: write w1#1/3 at revision 16 (at 45.5 ms) with fence 10: came after fence 11",
      "lock/a: write w1#1/3 at revision 16 (at 45.5 ms) with fence 10: its place did not hold then",
    ]);
  });

  it("sees it also while every fault is at work", () => {
    const story = goodStory().write(45, "w1", 1, { token: 10, seq: 3, rev: 16 });
    story.stopped("w1", 1).hindered(1, 60).taken(14, 9, "lock/a/w1").stalled(60, "w1", 50);
    expect(complaints("I4", story)).not.toEqual([]);
  });

  it("sees a write of a place that was still waiting, and of one that is of another lock", () => {
    const waiting = new Story()
      .ask(0, "w1", 1, 10)
      .ask(1, "w2", 1, 11)
      .write(2, "w2", 1, { token: 11, seq: 1, rev: 12 });
    expect(complaints("I4", waiting)).toHaveLength(1);
    expect(complaints("I4", waiting.del(3, 13, "lock/a/w1"))).toHaveLength(1);
    const other = new Story()
      .ask(0, "w1", 1, 10, { lock: "lock/b" })
      .write(2, "w1", 1, { token: 10, seq: 1, rev: 12 });
    expect(complaints("I4", other)).toHaveLength(1);
  });

  it("sees a refused write that took place", () => {
    const story = goodStory().write(30, "w2", 1, { token: 11, seq: 3, k: "fail", rev: 14 });
    expect(complaints("I4", story)).toEqual([
      "lock/a: write w2#1/3 at revision 14 (at 30.5 ms) with fence 11: was reported as refused",
    ]);
  });

  it("allows a write of unknown outcome to take place once, or never", () => {
    const unknown = { token: 11, seq: 3, k: "info", write: "once" } as const;
    expect(complaints("I4", goodStory().write(26, "w2", 1, unknown))).toEqual([]);
    const once = () => goodStory().write(26, "w2", 1, { ...unknown, rev: 14 });
    expect(complaints("I4", once())).toEqual([]);
    expect(complaints("I4", once().write(27, "w2", 1, { ...unknown, asked: false, rev: 14 }))).toEqual([
      "lock/a: write once at revision 14 (at 27.5 ms) with fence 11: was applied twice",
    ]);
  });

  it("sees a write that nobody asked for", () => {
    const foreign = { token: 11, seq: 3, write: "ghost", rev: 14, asked: false };
    expect(complaints("I4", goodStory().write(26, "w2", 1, foreign))).toHaveLength(1);
  });

  it("sees a write that was reported done and is not there", () => {
    expect(complaints("I4", goodStory().write(26, "w2", 1, { token: 11, seq: 3 }))).toEqual([
      "write w2#1/3 was reported done at 27.0 ms and never seen",
    ]);
  });
});

describe("I5, no lost update", () => {
  it("sees a holder that overwrote what it had not read", () => {
    const story = goodStory().write(26, "w2", 1, { token: 11, seq: 2, rev: 14, write: "second" });
    expect(complaints("I5", story)).toEqual(["lock/a: second put 2 after 2 at revision 14 (at 26.5 ms)"]);
  });

  it("sees an update that vanished", () => {
    const story = goodStory().write(26, "w2", 1, { token: 11, seq: 4, rev: 14 });
    expect(complaints("I5", story)).toHaveLength(1);
  });

  it("counts for each lock by itself", () => {
    const story = goodStory().put(27, 16, "reg/lock/b", { token: "11", seq: 1, write: "other" });
    expect(complaints("I5", story)).toEqual([]);
  });
});
