import { describe, expect, it } from "vitest";
import { broken } from "../../../lab/checker/complaints.js";
import { judge } from "../../../lab/checker/judge.js";
import { goodStory, Story } from "../../../lab/checker/story.js";

describe("a run in which all went well", () => {
  it("breaks no invariant and needs no excuse", () => {
    const { violations, soft } = judge(goodStory().run());
    expect(violations).toEqual({});
    expect(soft).toEqual([]);
  });

  it("may contain a holder that was stopped, lost its place and said so when it ran again", () => {
    const story = new Story()
      .ask(0, "w1", 1, 10)
      .grant(1, "w1", 1, 10)
      .claim(2, "w1", 1, 10)
      .ask(3, "w2", 1, 11)
      .stopped("w1", 4, 2400)
      .del(2300, 12, "lock/a/w1")
      .grant(2301, "w2", 1, 11)
      .claim(2302, "w2", 1, 11)
      .write(2302, "w2", 1, { token: 11, seq: 1, rev: 13 })
      .end(2401, "w1", 1, "expired")
      .claim(2402, "w1", 1, 10, false)
      .write(2403, "w1", 1, { token: 10, seq: 1, k: "fail" })
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
      .abort(104, "w4", 1)
      .giveUp(104, "w4", 1, { turns: 0 })
      .del(105, 23, "lock/a/w4")
      .ask(103, "w5", 1, 24)
      .killed("w5", 110)
      .release(120, "w3", 1, 25)
      .del(2200, 26, "lock/a/w5")
      .leftovers(2300, "end");
    expect(broken(story)).toEqual([]);
  });

  it("may be told in any order", () => {
    const { history, server, setting } = goodStory().run();
    // Worker by worker, as their journals are read; steps of the same moment keep their order.
    const byProcess = history.toSorted((a, b) => b.p.localeCompare(a.p));
    expect(judge({ history: byProcess, server: server.toReversed(), setting }).violations).toEqual({});
  });
});

describe("a verdict", () => {
  const overlapping = () => goodStory().claim(30, "w1", 1, 10);

  it("has a sentence per violation, which names who, which lock, which fence, when and by how much", () => {
    expect(judge(overlapping().run()).violations["I1"]).toEqual([
      "w1#1 (lock/a, fence 10) and w2#1 (lock/a, fence 11) both claimed to hold, for 8.0 ms from 22.0 ms on",
    ]);
  });

  it("judges only by the invariants that apply, if they are named", () => {
    expect(Object.keys(judge(overlapping().run(), ["I3", "I9"]).violations)).toEqual(["I9"]);
  });

  it("counts a crash as a violation", () => {
    expect(broken(goodStory().crash(30, "w2"))).toEqual(["crash"]);
  });
});
