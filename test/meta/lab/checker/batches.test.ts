import { describe, expect, it } from "vitest";
import { complaints } from "../../../lab/checker/complaints.js";
import { judge } from "../../../lab/checker/judge.js";
import { goodStory, Story } from "../../../lab/checker/story.js";

const B = { lock: "lock/b" };

/** w3 and w4 put their places on two locks in one request, and delete them in one. */
const together = () =>
  goodStory()
    .ask(41, "w3", 1, 20)
    .ask(41, "w4", 1, 20, B)
    .grant(42, "w3", 1, 20)
    .grant(42, "w4", 1, 20, B)
    .release(43, "w3", 1, 21)
    .release(43, "w4", 1, 21, B);

describe("places of several locks that were put in one request", () => {
  it("are judged each by itself, though they have one create revision", () => {
    expect(judge(together().run()).violations).toEqual({});
  });

  it("hide no wrong fence: that of a place on another lock is none", () => {
    const wrong = goodStory().ask(41, "w3", 1, 20, B).call(41, "w3", 2).grant(42, "w3", 2, 20);

    expect(complaints("I2", wrong)).toEqual(["w3#2 (lock/a, fence 20) has no place on the server"]);
    expect(complaints("I3", wrong)).toHaveLength(1);
  });

  it("hide no second holder: two places on one lock with one create revision are one too many", () => {
    const twins = goodStory()
      .ask(41, "w3", 1, 20)
      .ask(41, "w4", 1, 20)
      .grant(42, "w3", 1, 20)
      .grant(42, "w4", 1, 20)
      .claim(45, "w3", 1, 20)
      .claim(45, "w4", 1, 20);

    expect(complaints("I1", twins)).toHaveLength(1);
    expect(complaints("I3", twins).join()).toContain("given before");
  });

  it("are counted, also those that were deleted in one request, but not what ends with its lease", () => {
    expect(judge(goodStory().run()).figures.batches).toEqual({ count: 0, largest: 0 });
    expect(judge(together().run()).figures.batches).toEqual({ count: 2, largest: 2 });
    const ended = goodStory().ask(41, "w3", 1, 20).ask(42, "w3", 2, 21, B);
    ended.del(43, 22, "lock/a/w3").del(43, 22, "lock/b/w3");
    expect(judge(ended.run()).figures.batches).toEqual({ count: 0, largest: 0 });
  });
});

describe("a lock whose name has another one under it", () => {
  const IN = { lock: "lock/a/in" };

  it("is not held while an older place of that one lives", () => {
    const nested = new Story().ask(0, "w1", 1, 10, IN).grant(1, "w1", 1, 10, IN);
    nested.ask(2, "w2", 1, 11).grant(3, "w2", 1, 11).del(4, 12, "lock/a/w2");

    expect(complaints("I2", nested)).toHaveLength(1);
    expect(complaints("I2", new Story().ask(2, "w2", 1, 11).grant(3, "w2", 1, 11))).toEqual([]);
  });

  it("waits for it without being told of a turn that it does not have", () => {
    const nested = goodStory().ask(0, "w3", 1, 8, IN).grant(1, "w3", 1, 8, IN).ask(41, "w4", 1, 20);
    nested.release(4000, "w3", 1, 21, IN).grant(4002, "w4", 1, 20).release(4003, "w4", 1, 22);

    expect(complaints("I7", nested)).toEqual([]);
  });

  it("does not keep that one waiting", () => {
    const nested = new Story().ask(0, "w1", 1, 10).grant(1, "w1", 1, 10);
    nested.ask(2, "w2", 1, 11, IN).grant(3, "w2", 1, 11, IN).claim(5, "w1", 1, 10);

    expect(complaints("I2", nested)).toEqual([]);
    expect(complaints("I1", nested)).toEqual([]);
  });
});
