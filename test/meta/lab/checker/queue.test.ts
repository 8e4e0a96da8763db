import { describe, expect, it } from "vitest";
import { complaints, excuses } from "../../../lab/checker/complaints.js";
import { judge } from "../../../lab/checker/judge.js";
import { goodStory, Story } from "../../../lab/checker/story.js";

describe("I2, the server saw one holder", () => {
  /** w2 is granted, and its place is deleted, while the older place of w1 still exists. */
  const jumped = () => new Story().ask(0, "w1", 1, 10).ask(1, "w2", 1, 11).grant(5, "w2", 1, 11);

  it("sees a grant of a place that never came to the head", () => {
    expect(complaints("I2", jumped().del(7, 12, "lock/a/w2"))).toEqual([
      "w2#1 (lock/a, fence 11) was granted at 5.0 ms, yet an older place outlived it on the server",
    ]);
  });

  it("allows a grant that came with the news that it is lost", () => {
    const story = new Story().ask(0, "w1", 1, 10).ask(1, "w2", 1, 11).grant(5, "w2", 1, 11, { held: false });
    expect(complaints("I2", story)).toEqual([]);
  });

  it("excuses a grant of a place that was taken in the queue, but not of its neighbour's", () => {
    const taken = (key: string) =>
      jumped().taken(4, 12, key).del(4.5, 13, "lock/a/w2").del(6, 14, "lock/a/w1");
    expect(complaints("I2", taken("lock/a/w2"))).toEqual([]);
    expect(excuses("I2", taken("lock/a/w2"))).toHaveLength(1);
    expect(complaints("I2", jumped().taken(7, 12, "lock/b/w2").del(7, 13, "lock/a/w2"))).toHaveLength(1);
  });

  it("sees a holder that was answered at a revision before its turn", () => {
    expect(complaints("I2", goodStory().read(23, "w2", 1, 12))).toEqual([
      "w2#1 (lock/a, fence 11) held at revision 12, but came to the head at 13",
    ]);
    expect(complaints("I2", goodStory().read(23, "w2", 1, 13))).toEqual([]);
  });

  it("sees a grant without a place, and one with a place of another lock", () => {
    expect(complaints("I2", goodStory().grant(45, "w3", 1, 99).call(44, "w3", 1))).toHaveLength(1);
    const wrong = goodStory()
      .ask(41, "w3", 1, 20, { lock: "lock/b" })
      .call(41, "w3", 2)
      .grant(42, "w3", 2, 20);
    expect(complaints("I2", wrong)).toHaveLength(1);
  });
});

describe("I3, fences rise", () => {
  it("sees a fence given twice", () => {
    const story = goodStory().call(44, "w3", 1).grant(45, "w3", 1, 11, { key: "lock/a/w2" });
    expect(complaints("I3", story)).toEqual([
      "w3#1 on lock/a got fence 11 at 45.0 ms, which was given before",
      "w3#1 on lock/a got fence 11 at 45.0 ms, not above 11, granted before it was asked",
    ]);
  });

  it("sees a fence lower than one that was granted before it was asked for", () => {
    expect(complaints("I3", goodStory().ask(45, "w3", 1, 9).grant(46, "w3", 1, 9))).toEqual([
      "w3#1 on lock/a got fence 9 at 46.0 ms, not above 11, granted before it was asked",
    ]);
    expect(complaints("I3", goodStory().ask(1, "w3", 1, 9).grant(46, "w3", 1, 9))).toEqual([]);
  });

  it("compares fences of one lock only", () => {
    const other = { lock: "lock/b" };
    expect(complaints("I3", goodStory().ask(45, "w3", 1, 9, other).grant(46, "w3", 1, 9, other))).toEqual([]);
  });

  it("sees a fence that is not the create revision of its own key, and a grant without a fence", () => {
    expect(complaints("I3", goodStory().ask(45, "w3", 1, 30).grant(46, "w3", 1, 31))).toHaveLength(1);
    const { history, ...rest } = goodStory().run();
    const without = history.map((step) => {
      if (step.k !== "ok") return step;
      const { k, f, t, p, id, lock } = step;
      return { k, f, t, p, id, lock };
    });
    expect(judge({ ...rest, history: without }, ["I3"]).violations["I3"]).toHaveLength(2);
  });
});

describe("I6, served in order", () => {
  const jumped = () => goodStory().ask(41, "w3", 1, 16).ask(42, "w4", 1, 17).grant(43, "w4", 1, 17);

  it("sees a younger place that was granted first, and by how much", () => {
    expect(complaints("I6", jumped().grant(44, "w3", 1, 16))).toEqual([
      "w3#1 (lock/a, fence 16) was granted at 44.0 ms, 1.0 ms after the younger place w4#1 (lock/a, fence 17)",
    ]);
  });

  it("compares each grant with the youngest place before it, not with the latest grant", () => {
    const three = goodStory().ask(41, "w3", 1, 16).ask(42, "w4", 1, 17).ask(42, "w5", 1, 18);
    const younger = /after the younger place w5#1/;
    expect(
      complaints("I6", three.grant(43, "w5", 1, 18).grant(44, "w3", 1, 16).grant(45, "w4", 1, 17)),
    ).toEqual([expect.stringMatching(younger), expect.stringMatching(younger)]);
  });

  it("sees a neighbour of an aborted waiter that lost its turn by it", () => {
    const story = (first: string, second: string) =>
      goodStory()
        .ask(41, "w3", 1, 16)
        .ask(41, "w4", 1, 17)
        .ask(41, "w5", 1, 18)
        .abort(42, "w4", 1)
        .giveUp(42, "w4", 1, { turns: 0 })
        .del(42.5, 19, "lock/a/w4")
        .grant(43, first, 1, first === "w3" ? 16 : 18)
        .grant(44, second, 1, second === "w3" ? 16 : 18);
    expect(complaints("I6", story("w3", "w5"))).toEqual([]);
    expect(complaints("I6", story("w5", "w3"))).toHaveLength(1);
  });

  it("excuses, and tells, a process that stood still between its turn and the line that records it", () => {
    const stopped = jumped().stopped("w3", 41.6, 43.5).grant(44, "w3", 1, 16);
    expect(complaints("I6", stopped)).toEqual([]);
    expect(excuses("I6", stopped)).toHaveLength(1);
    expect(complaints("I6", jumped().stalled(43.5, "w3", 2).grant(44, "w3", 1, 16))).toEqual([]);
  });

  it("does not excuse a stop before the turn, or of another process", () => {
    expect(complaints("I6", jumped().stopped("w3", 40, 41).grant(44, "w3", 1, 16))).toHaveLength(1);
    expect(complaints("I6", jumped().stopped("w4", 41.6, 43.5).grant(44, "w3", 1, 16))).toHaveLength(1);
  });

  it("excuses a place that was taken after its turn", () => {
    const taken = (key: string) => jumped().taken(42.5, 18, key).grant(44, "w3", 1, 16);
    expect(complaints("I6", taken("lock/a/w3"))).toEqual([]);
    expect(complaints("I6", taken("lock/a/w4"))).toHaveLength(1);
  });
});
