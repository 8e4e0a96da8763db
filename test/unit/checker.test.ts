import { describe, expect, it } from "vitest";
import { invariants, judge, overlapsOf } from "../support/stress/checker.js";
import { goodStory, Story } from "../support/stress/story.js";

type Label = keyof typeof invariants;

/** Which invariants complain about the story. */
const broken = (story: Story) =>
  Object.entries(judge(story.run())).flatMap(([label, sentences]) => (sentences.length > 0 ? [label] : []));
const complaints = (label: Label, story: Story) => invariants[label](story.run());

describe("a run in which all went well", () => {
  it("breaks no invariant", () => {
    expect(broken(goodStory())).toEqual([]);
  });

  it("may contain a holder that was stopped, lost its place and said so when it ran again", () => {
    const story = new Story()
      .ask(0, "w1", 1, 10)
      .grant(1, "w1", 1, 10)
      .claim(2, "w1", 1, 10)
      .ask(3, "w2", 1, 11)
      .fault(4, "pause-worker", "w1", true)
      .del(2300, 12, "lock/a/w1")
      .grant(2301, "w2", 1, 11)
      .claim(2302, "w2", 1, 11)
      .write(2302, "w2", 1, { token: 11, seq: 1, rev: 13 })
      .fault(2400, "pause-worker", "w1", false)
      .claim(2401, "w1", 1, 10, false)
      .write(2402, "w1", 1, { token: 10, seq: 1, k: "fail" })
      .claim(2410, "w2", 1, 11)
      .release(2410, "w2", 1, 14)
      .leftovers(2500, "idle")
      .leftovers(2600, "end");
    expect(broken(story)).toEqual([]);
  });

  it("may contain an aborted waiter, a write of unknown outcome and a worker killed while it waits", () => {
    const story = goodStory()
      .ask(100, "w3", 1, 20)
      .grant(101, "w3", 1, 20)
      .write(102, "w3", 1, { token: 20, seq: 3, k: "info", rev: 21 })
      .ask(103, "w4", 1, 22)
      .giveUp(104, "w4", 1)
      .del(105, 23, "lock/a/w4")
      .ask(103, "w5", 1, 24)
      .fault(110, "kill-worker", "w5", true)
      .fault(110, "kill-worker", "w5", false)
      .release(120, "w3", 1, 25)
      .del(2200, 26, "lock/a/w5");
    expect(broken(story)).toEqual([]);
  });
});

describe("I1, no two claims overlap", () => {
  const overlapping = () => goodStory().claim(30, "w1", 1, 10);

  it("sees two processes that claim at the same time, and for how long", () => {
    expect(complaints("I1", overlapping())).toHaveLength(1);
    expect(overlapsOf(overlapping().run().history)[0]?.ns).toBe(8_000_000n);
  });

  it("sees a single claim inside another process's time", () => {
    const story = goodStory().ask(15, "w3", 1, 30).grant(16, "w3", 1, 30);
    expect(complaints("I1", story)).toHaveLength(1);
  });

  it("does not count the time in which a process was stopped", () => {
    const stopped = overlapping().fault(20.5, "pause-worker", "w1", true);
    expect(complaints("I1", stopped)).toEqual([]);
    expect(complaints("I1", stopped.fault(25, "pause-worker", "w1", false))).toHaveLength(1);
  });

  it("does not count the time after a claim that said no", () => {
    const story = goodStory().claim(21, "w1", 1, 10, false);
    expect(complaints("I1", story)).toEqual([]);
  });
});

describe("I2, the server saw one holder", () => {
  it("sees a grant of a place that never came to the head", () => {
    const story = goodStory()
      .ask(25, "w3", 1, 30)
      .grant(26, "w3", 1, 30)
      .del(27, 31, "lock/a/w3")
      .ask(24, "w4", 1, 29);
    expect(complaints("I2", story)).toHaveLength(1);
  });

  it("sees a holder that was answered at a revision before its turn", () => {
    const story = goodStory().read(23, "w2", 1, 12);
    expect(complaints("I2", story)).toEqual([
      "w2#1 (lock/a, fence 11) held at revision 12, but came to the head at 13",
    ]);
  });

  it("sees a grant without a place", () => {
    expect(complaints("I2", goodStory().grant(45, "w3", 1, 99))).toHaveLength(1);
  });
});

describe("I3, fences rise", () => {
  it("sees a fence given twice", () => {
    expect(complaints("I3", goodStory().grant(45, "w2", 1, 11))).toHaveLength(1);
  });

  it("sees a fence lower than one that was granted before it was asked for", () => {
    const story = goodStory().ask(45, "w3", 1, 9).grant(46, "w3", 1, 9);
    expect(complaints("I3", story)).toEqual([
      "w3#1 on lock/a got fence 9, not above 11, granted before it was asked",
    ]);
  });

  it("sees a fence that is not the create revision of its own key", () => {
    const story = goodStory().ask(45, "w3", 1, 30).grant(46, "w3", 1, 31);
    expect(complaints("I3", story)).toHaveLength(1);
  });
});

describe("I4, no stale write", () => {
  it("sees a write after the place was gone", () => {
    const story = goodStory().write(45, "w1", 1, { token: 10, seq: 3, rev: 16 });
    expect(complaints("I4", story)).toEqual([
      "write w1#1/3 at revision 16 with fence 10 came after fence 11",
      "write w1#1/3 at revision 16 with fence 10: its place did not hold then",
    ]);
  });

  it("sees a write of a place that was still waiting", () => {
    const story = new Story()
      .ask(0, "w1", 1, 10)
      .ask(1, "w2", 1, 11)
      .write(2, "w2", 1, { token: 11, seq: 1, rev: 12 });
    expect(complaints("I4", story)).toHaveLength(1);
  });

  it("sees a refused write that took place", () => {
    const story = goodStory().write(30, "w2", 1, { token: 11, seq: 3, k: "fail", rev: 14 });
    expect(complaints("I4", story)).toEqual([
      "write w2#1/3 at revision 14 with fence 11 was reported as refused",
    ]);
  });

  it("sees a write that was applied twice", () => {
    const again = { token: 11, seq: 2, write: "w2#1/2", rev: 14, asked: false };
    expect(complaints("I4", goodStory().write(26, "w2", 1, again))).toHaveLength(1);
  });

  it("sees a write that nobody asked for", () => {
    const foreign = { token: 11, seq: 3, write: "ghost", rev: 14, asked: false };
    expect(complaints("I4", goodStory().write(26, "w2", 1, foreign))).toHaveLength(1);
  });

  it("sees a write that was reported done and is not there", () => {
    expect(complaints("I4", goodStory().write(26, "w2", 1, { token: 11, seq: 3 }))).toHaveLength(1);
  });
});

describe("I5, no lost update", () => {
  it("sees a holder that overwrote what it had not read", () => {
    const story = goodStory().write(26, "w2", 1, { token: 11, seq: 2, rev: 14, write: "second" });
    expect(complaints("I5", story)).toEqual(["lock/a: second put 2 after 2 at revision 14"]);
  });

  it("sees an update that vanished", () => {
    const story = goodStory().write(26, "w2", 1, { token: 11, seq: 4, rev: 14 });
    expect(complaints("I5", story)).toHaveLength(1);
  });
});

describe("I6, served in order", () => {
  const jumped = () => goodStory().ask(41, "w3", 1, 16).ask(42, "w4", 1, 17).grant(43, "w4", 1, 17);

  it("sees a younger place that was granted first", () => {
    expect(complaints("I6", jumped().grant(44, "w3", 1, 16))).toEqual([
      "w3#1 (lock/a, fence 16) was granted after the younger place w4#1 (lock/a, fence 17)",
    ]);
  });

  it("forgives a process that was stopped between its turn and the line that records it", () => {
    const story = jumped()
      .fault(41.6, "pause-worker", "w3", true)
      .fault(43.5, "pause-worker", "w3", false)
      .grant(44, "w3", 1, 16);
    expect(complaints("I6", story)).toEqual([]);
  });
});

describe("I7, no lost wake-up", () => {
  /** The second place becomes the head at 21 ms and is granted `after` that. */
  const woken = (after: number) =>
    new Story()
      .ask(0, "w1", 1, 10)
      .grant(1, "w1", 1, 10)
      .ask(2, "w2", 1, 11)
      .release(20, "w1", 1, 12)
      .grant(21 + after, "w2", 1, 11);

  it("sees a waiter that comes to the head and is not told within a TTL", () => {
    expect(complaints("I7", woken(1900))).toEqual([]);
    expect(complaints("I7", woken(2100))).toHaveLength(1);
  });

  it("sees a place that stays at the head and belongs to nobody", () => {
    const story = goodStory().put(45, 16, "lock/a/ghost", {}).leftovers(4000, "end");
    expect(complaints("I7", story)).toHaveLength(1);
  });

  it("allows for a member that was away, as long as the cluster needs to settle", () => {
    const away = (after: number) =>
      woken(after).fault(15, "pause-member", "m1", true).fault(3000, "pause-member", "m1", false);
    expect(complaints("I7", away(10_900))).toEqual([]);
    expect(complaints("I7", away(11_100))).toHaveLength(1);
  });

  it("allows for a stopped process only if the place is its own", () => {
    const stopped = (target: string) =>
      woken(4000).fault(15, "pause-worker", target, true).fault(3000, "pause-worker", target, false);
    expect(complaints("I7", stopped("w2"))).toEqual([]);
    expect(complaints("I7", stopped("w1"))).toHaveLength(1);
  });

  it("sees a waiter that still waits at the end", () => {
    const story = goodStory().ask(55, "w3", 1, 16).del(56, 17, "lock/a/w3");
    expect(complaints("I7", story)).toEqual(["w3#1 still waits for lock/a at the end"]);
  });
});

describe("I8, nothing left behind", () => {
  it("sees a key and a lease that were left", () => {
    const story = goodStory()
      .leftovers(70, "idle", { keys: ["lock/a/7"] })
      .leftovers(71, "end", { leases: ["8"] });
    expect(complaints("I8", story)).toEqual(["key lock/a/7 was left (idle)", "lease 8 was left (end)"]);
  });

  it("sees that nobody looked", () => {
    expect(complaints("I8", new Story())).toHaveLength(2);
  });
});

describe("I9, no claim after the server deleted the place", () => {
  it("sees a claim that is younger than the deletion", () => {
    const story = new Story()
      .ask(0, "w1", 1, 10)
      .grant(1, "w1", 1, 10)
      .del(5, 11, "lock/a/w1")
      .claim(9, "w1", 1, 10);
    expect(complaints("I9", story)).toEqual([
      "w1#1 (lock/a, fence 10) claimed to hold 3.5 ms after etcd deleted its place",
    ]);
  });

  it("sees a grant that is younger than the deletion", () => {
    const story = goodStory().ask(41, "w3", 1, 16).del(42, 17, "lock/a/w3").grant(43, "w3", 1, 16);
    expect(broken(story)).toEqual(["I9"]);
  });
});
