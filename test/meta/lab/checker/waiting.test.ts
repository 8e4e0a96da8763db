import { describe, expect, it } from "vitest";
import { broken, complaints } from "../../../lab/checker/complaints.js";
import { goodStory, Story } from "../../../lab/checker/story.js";

describe("I7, no lost wake-up", () => {
  /** The second place becomes the head at 21.5 ms and is granted `after` 21 ms. */
  const woken = (after: number) =>
    new Story()
      .ask(0, "w1", 1, 10)
      .grant(1, "w1", 1, 10)
      .ask(2, "w2", 1, 11)
      .release(20, "w1", 1, 12)
      .grant(21 + after, "w2", 1, 11);

  it("sees a waiter that comes to the head and is not told within a TTL", () => {
    expect(complaints("I7", woken(1900))).toEqual([]);
    expect(complaints("I7", woken(2100))).toEqual([
      "lock/a/w2@11 of w2/own was the head for 2099.5 ms from 21.5 ms on, and not granted",
    ]);
  });

  it("sees a place that stays at the head and belongs to nobody", () => {
    const story = goodStory().put(45, 16, "lock/a/ghost", {}).leftovers(4000, "end");
    expect(complaints("I7", story)).toHaveLength(1);
  });

  it("allows for a member that was away, as long as the cluster needs to settle", () => {
    const away = (after: number) => woken(after).hindered(15, 3000);
    expect(complaints("I7", away(10_900))).toEqual([]);
    expect(complaints("I7", away(11_100))).toHaveLength(1);
  });

  it("does not allow for a fault that came when it was too late already", () => {
    expect(complaints("I7", woken(5000).hindered(1900, 3000))).toEqual([]);
    expect(complaints("I7", woken(5000).hindered(2100, 3000))).toHaveLength(1);
  });

  it("allows for faults that follow each other", () => {
    const twice = (second: number) =>
      woken(15_000)
        .hindered(15, 1000)
        .hindered(second, second + 500);
    expect(complaints("I7", twice(8900))).toEqual([]);
    expect(complaints("I7", twice(9100))).toHaveLength(1);
  });

  it("allows for a stopped or shifted process only if the place is its own", () => {
    expect(complaints("I7", woken(4000).stopped("w2", 15, 3000))).toEqual([]);
    expect(complaints("I7", woken(4000).stopped("w1", 15, 3000))).toHaveLength(1);
    expect(complaints("I7", woken(4000).clockMoved("w2", 15, 3000))).toEqual([]);
    expect(complaints("I7", woken(4000).clockMoved("w1", 15, 3000))).toHaveLength(1);
  });

  it("allows for a short stall no more than its own length", () => {
    const stalled = (after: number) => woken(after).stalled(2000, "w2", 100);
    expect(complaints("I7", stalled(2070))).toEqual([]);
    expect(complaints("I7", stalled(2090))).toHaveLength(1);
  });

  it("allows a killed process's place to go with its lease", () => {
    const killed = (goneAt: number) =>
      goodStory()
        .ask(100, "w3", 1, 20)
        .killed("w3", 101)
        .del(goneAt, 21, "lock/a/w3")
        .leftovers(20_000, "end");
    expect(complaints("I7", killed(2500))).toEqual([]);
    expect(complaints("I7", killed(9000))).toHaveLength(1);
  });

  describe("of a permit", () => {
    const two = { permits: 2, shared: true };
    /** `w4` is the head from 22.5 ms on, and is granted more than one TTL later. */
    const last = (end = 2121) =>
      new Story()
        .ask(0, "w1", 1, 10, two)
        .grant(1, "w1", 1, 10, two)
        .ask(2, "w2", 1, 11, two)
        .grant(3, "w2", 1, 11, two)
        .ask(4, "w3", 1, 12, two)
        .ask(5, "w4", 1, 13, two)
        .release(20, "w1", 1, 14)
        .release(21, "w2", 1, 16)
        .grant(end + 1, "w4", 1, 13, two);
    const late = (story: Story) => complaints("I7", story).filter((text) => text.includes("w4@13"));

    it("waits for the end of the lease of a dead waiter before it, or until a stopped one continues", () => {
      expect(late(last())).toHaveLength(1);
      expect(late(last().killed("w3", 10).del(2121, 17, "lock/a/w3"))).toEqual([]);
      expect(late(last().stopped("w3", 10, 2100).put(2121, 17, "lock/a/w3", two))).toEqual([]);
    });

    it("waits no longer than that, and for no other process", () => {
      expect(late(last(10_021).killed("w3", 10).del(10_021, 17, "lock/a/w3"))).toHaveLength(1);
      expect(late(last().killed("w5", 10).del(2121, 17, "lock/a/w3"))).toHaveLength(1);
    });

    it("is notified by the announcement of the waiter before it, and granted within one TTL after it", () => {
      const announced = (at: number, rev: number) => last().killed("w3", 2000).put(at, rev, "lock/a/w3", two);
      expect(late(announced(21.7, 15))).toHaveLength(1);
      expect(late(announced(30, 17))).toHaveLength(1);
      expect(late(announced(1000, 17))).toEqual([]);
    });

    it("does not wait for a waiter that is late without a reason", () => {
      expect(late(last().put(2110, 17, "lock/a/w3", two))).toHaveLength(1);
    });

    it("does not wait for a waiter whose own limit lets it hold, and waits for one that must announce", () => {
      const mixed = (oldest: number, before: number) =>
        new Story()
          .ask(0, "w1", 1, 10, { permits: oldest })
          .grant(1, "w1", 1, 10, { shared: true })
          .ask(2, "w2", 1, 11, { permits: oldest })
          .grant(3, "w2", 1, 11, { shared: true })
          .ask(4, "w3", 1, 12, { permits: before })
          .ask(5, "w4", 1, 13, { permits: 2 })
          .killed("w3", 6)
          .release(20, "w1", 1, 14)
          .release(21, "w2", 1, 16)
          .del(2121, 17, "lock/a/w3")
          .grant(2122, "w4", 1, 13, two);
      expect(late(mixed(2, 3))).toHaveLength(1);
      expect(late(mixed(3, 2))).toEqual([]);
    });

    it("does not wait for a holder", () => {
      const behindHolder = new Story()
        .ask(0, "w1", 1, 10, two)
        .grant(1, "w1", 1, 10, two)
        .ask(2, "w2", 1, 11, two)
        .grant(3, "w2", 1, 11, two)
        .ask(5, "w4", 1, 13, two)
        .killed("w2", 10)
        .release(20, "w1", 1, 14)
        .grant(2122, "w4", 1, 13, two);
      expect(late(behindHolder)).toHaveLength(1);
    });
  });

  it("sees a waiter that still waits at the end with nobody ahead", () => {
    const alone = goodStory().ask(55, "w3", 1, 16).del(56, 17, "lock/a/w3");
    expect(complaints("I7", alone)).toEqual([
      "w3#1 still waits for lock/a at the end, since 55.0 ms, and nobody is ahead",
    ]);
    expect(complaints("I7", goodStory().ask(55, "w3", 1, 16))).toHaveLength(1);
  });

  it("leaves alone a waiter behind somebody else, and one whose process was killed", () => {
    expect(
      complaints("I7", goodStory().ask(54, "w2", 2, 16).grant(55, "w2", 2, 16).ask(56, "w3", 1, 17)),
    ).toEqual([]);
    const unasked = goodStory().ask(54, "w3", 1, 16).call(55, "w4", 1);
    expect(complaints("I7", unasked)).toEqual([expect.stringContaining("w3#1 still waits")]);
    const third = goodStory().ask(54, "w3", 1, 16).ask(55, "w4", 1, 17);
    expect(complaints("I7", third)).toEqual([expect.stringContaining("w3#1 still waits")]);
    expect(complaints("I7", goodStory().ask(55, "w3", 1, 16).killed("w3", 56))).toEqual([]);
  });
});

describe("I12, an aborted acquire leaves the queue", () => {
  const waiting = () => goodStory().ask(100, "w3", 1, 20).grant(101, "w3", 1, 20).ask(102, "w4", 1, 21);
  const aborted = ({
    turns,
    rejectedAt = 110,
    goneAt = 112,
  }: {
    turns?: number;
    rejectedAt?: number;
    goneAt?: number;
  }) =>
    waiting()
      .abort(110, "w4", 1)
      .giveUp(rejectedAt, "w4", 1, turns === undefined ? {} : { turns })
      .del(goneAt, 22, "lock/a/w4")
      .claim(9000, "w3", 1, 20)
      .release(9000, "w3", 1, 23)
      .leftovers(9100, "end");

  it("allows a few turns of the event loop until it is rejected", () => {
    expect(broken(aborted({ turns: 3 }))).toEqual([]);
    expect(complaints("I12", aborted({ turns: 4 }))).toEqual([
      "w4#1 on lock/a, aborted at 110.0 ms, was rejected only after 4 turns of the event loop",
    ]);
  });

  it("is judged by the clock where nobody counted turns, less the time in which the process stood still", () => {
    expect(complaints("I12", aborted({ rejectedAt: 600 }))).toEqual([]);
    expect(complaints("I12", aborted({ rejectedAt: 620 }))).toHaveLength(1);
    expect(complaints("I12", aborted({ rejectedAt: 1100 }).stopped("w4", 105, 600))).toEqual([]);
    expect(complaints("I12", aborted({ rejectedAt: 1100 }).stopped("w3", 105, 600))).toHaveLength(1);
    const later = waiting().stopped("w4", 200, 300).abort(3000, "w4", 1).giveUp(3400, "w4", 1);
    expect(complaints("I12", later.del(3401, 22, "lock/a/w4"))).toEqual([]);
  });

  it("is rejected: neither forgotten nor granted later", () => {
    expect(complaints("I12", waiting().abort(110, "w4", 1))).toEqual([
      "w4#1 on lock/a, aborted at 110.0 ms, was never rejected",
    ]);
    expect(complaints("I12", waiting().abort(110, "w4", 1).killed("w4", 111))).toEqual([]);
    const later = (at: number) =>
      waiting().abort(110, "w4", 1).release(111, "w3", 1, 22).grant(at, "w4", 1, 21);
    expect(complaints("I12", later(110.1))).toEqual([]);
    expect(complaints("I12", later(700))).toHaveLength(1);
  });

  it("takes its place out of the queue within a TTL", () => {
    expect(complaints("I12", aborted({ turns: 0, goneAt: 2100 }))).toEqual([]);
    expect(complaints("I12", aborted({ turns: 0, goneAt: 2200 }))).toEqual([
      "w4/own kept the place lock/a/w4@21 for 90.5 ms at 2110.0 ms, when none of its calls may have had one any more",
    ]);
  });

  it("may take longer after a fault of etcd, and no longer for another process's", () => {
    expect(complaints("I12", aborted({ turns: 0, goneAt: 8000 }).hindered(105, 1000))).toEqual([]);
    expect(complaints("I12", aborted({ turns: 0, goneAt: 8000 }).stopped("w3", 105, 1000))).toHaveLength(1);
  });

  it("leaves the place to another call of the same owner that may have one", () => {
    const again = (answeredAt: number) =>
      aborted({ turns: 0, goneAt: 5000 }).call(200, "w4", 2).giveUp(answeredAt, "w4", 2);
    expect(complaints("I12", again(4000))).toEqual([]);
    expect(complaints("I12", again(2000))).toHaveLength(1);
  });

  it("does not count a place that was taken, whose call joined anew and was granted", () => {
    const story = (taken: boolean) => {
      const asked = waiting();
      const gone = taken ? asked.taken(6000, 22, "lock/a/w4") : asked.del(6000, 22, "lock/a/w4");
      return gone
        .put(6002, 23, "lock/a/w4", { owner: "w4/own" })
        .release(9000, "w3", 1, 24)
        .grant(9002, "w4", 1, 23)
        .release(9010, "w4", 1, 25);
    };
    expect(complaints("I12", story(true))).toEqual([]);
    expect(complaints("I12", story(false))).toHaveLength(1);
  });

  it("does not leave it to a call that was granted another place", () => {
    const story = aborted({ turns: 0, goneAt: 5000 })
      .call(200, "w4", 2)
      .put(3999, 24, "lock/a/w4-2", { owner: "w4/own" });
    expect(complaints("I12", story.grant(4000, "w4", 2, 24, { key: "lock/a/w4-2" }))).toHaveLength(1);
  });
});
