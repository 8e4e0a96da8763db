import { describe, expect, it } from "vitest";
import { broken, complaints } from "../../../lab/checker/complaints.js";
import { Story } from "../../../lab/checker/story.js";

const names = ["lock/a", "lock/b"];
const a = { lock: "lock/a", names };
const b = { lock: "lock/b", names };
const over = (story: Story) => story.leftovers(900, "idle").leftovers(990, "end");

/** w1 holds b alone; w2 requests a and b, and becomes the head of a at once. */
const waiting = () =>
  new Story()
    .ask(0, "w1", 1, 10, { lock: "lock/b" })
    .grant(1, "w1", 1, 10, { lock: "lock/b" })
    .ask(2, "w2", 1, 11, a)
    .ask(2, "w2", 2, 11, b);
const granted = () =>
  waiting().release(20, "w1", 1, 12, { lock: "lock/b" }).grant(22, "w2", 1, 11, a).grant(22, "w2", 2, 11, b);

describe("several names taken at once, in a history", () => {
  it("are as they must be when all come and go together", () => {
    const story = granted().release(30, "w2", 1, 13, a).release(30, "w2", 2, 14, b);
    expect(broken(over(story))).toEqual([]);
  });

  it("break I2 when they are held while one of them is not", () => {
    const story = waiting().grant(5, "w2", 1, 11, a).grant(5, "w2", 2, 11, b);
    story.release(6, "w2", 1, 12, a).release(6, "w2", 2, 13, b);
    expect(complaints("I2", story)).toHaveLength(2);
  });

  it("do not break I7 while one of them is waited for, however long", () => {
    expect(complaints("I7", waiting().claim(5000, "w1", 1, 10))).toEqual([]);
  });

  it("break I7 when all of them are free for a TTL", () => {
    const story = waiting().release(20, "w1", 1, 12, { lock: "lock/b" }).claim(5000, "w3", 1, 1);
    expect(complaints("I7", story).length).toBeGreaterThan(0);
  });

  it("are not what shares a revision with them only, in a request of several calls of one session", () => {
    const [single, tried] = [{ lock: "lock/a" }, { lock: "lock/b" }];
    const story = new Story()
      .ask(0, "w1", 1, 10, { lock: "lock/b" })
      .grant(1, "w1", 1, 10, { lock: "lock/b" })
      .ask(2, "w2", 1, 11, single)
      .ask(2, "w2", 2, 11, tried)
      .grant(3, "w2", 1, 11, single)
      .release(4, "w2", 1, 12, single)
      .release(20, "w1", 1, 13, { lock: "lock/b" })
      .grant(22, "w2", 2, 11, tried)
      .release(23, "w2", 2, 14, tried)
      .ask(30, "w2", 3, 15, a)
      .ask(30, "w2", 4, 15, b)
      .grant(31, "w2", 3, 15, a)
      .grant(31, "w2", 4, 15, b)
      .release(32, "w2", 3, 16, a)
      .release(32, "w2", 4, 17, b);
    expect(broken(over(story))).toEqual([]);
  });

  it("break I14 when each came with a revision of its own", () => {
    const story = new Story()
      .ask(2, "w2", 1, 11, a)
      .ask(2, "w2", 2, 12, b)
      .grant(5, "w2", 1, 12, a)
      .grant(5, "w2", 2, 12, b);
    expect(complaints("I14", story).length).toBeGreaterThan(0);
    expect(complaints("I3", story).length).toBeGreaterThan(0);
  });

  it("may be lost all when one is taken, and only then", () => {
    const lost = (story: Story) =>
      story.end(41, "w2", 1, "deleted").end(41, "w2", 2, "deleted").del(700, 14, "lock/a/w2");
    expect(broken(over(lost(granted().taken(40, 13, "lock/b/w2"))))).toEqual([]);
    expect(complaints("I11", lost(granted())).length).toBeGreaterThan(0);
  });

  it("break I9 when they are claimed while one place is gone", () => {
    const story = granted().del(40, 13, "lock/b/w2").claim(42, "w2", 2, 11).end(43, "w2", 2, "expired");
    expect(complaints("I9", story).length).toBeGreaterThan(0);
  });

  it("may leave the queue unasked when one is taken while they wait, and only then", () => {
    const again = (story: Story) =>
      story
        .del(6, 13, "lock/a/w2")
        .put(8, 14, "lock/a/w2", { owner: "w2/own" })
        .put(8, 14, "lock/b/w2", { owner: "w2/own" })
        .release(30, "w1", 1, 15, { lock: "lock/b" });
    expect(complaints("I10", again(waiting().taken(5, 12, "lock/b/w2")))).toEqual([]);
    expect(complaints("I10", again(waiting())).length).toBeGreaterThan(0);
  });

  it("are not those of an open call with fewer names that was granted a later revision while they were there", () => {
    const fewer = { owner: "w2/own", names: ["lock/a", "lock/b"] };
    const more = { owner: "w2/own", names: ["lock/a", "lock/b", "lock/c"] };
    const owner = { owner: "w2/own" };
    const story = new Story()
      .ask(0, "w1", 1, 10, { lock: "lock/b" })
      .grant(1, "w1", 1, 10, { lock: "lock/b" })
      .ask(2, "w2", 1, 12, { lock: "lock/a", ...fewer })
      .ask(2, "w2", 2, 12, { lock: "lock/b", ...fewer })
      .ask(2, "w2", 3, 11, { lock: "lock/a", key: "lock/a/w2-2", ...more })
      .ask(2, "w2", 4, 11, { lock: "lock/b", key: "lock/b/w2-2", ...more })
      .ask(2, "w2", 5, 11, { lock: "lock/c", ...more })
      .taken(5, 13, "lock/b/w2-2")
      .del(6, 14, "lock/a/w2-2")
      .del(6, 14, "lock/c/w2")
      .put(8, 15, "lock/a/w2-2", owner)
      .put(8, 15, "lock/b/w2-2", owner)
      .put(8, 15, "lock/c/w2", owner)
      .release(20, "w1", 1, 16, { lock: "lock/b" })
      .grant(22, "w2", 1, 12, { lock: "lock/a" })
      .grant(22, "w2", 2, 12, { lock: "lock/b" });
    expect(
      complaints("I10", story.end(23, "w2", 1, "closed").end(23, "w2", 2, "closed").close(22, "w2", 9)),
    ).toEqual([]);
  });

  it("break I2 when one is used before the turn of the last", () => {
    expect(complaints("I2", granted().read(23, "w2", 1, 12))).toEqual([]);
    expect(complaints("I2", granted().read(23, "w2", 1, 11))).toHaveLength(1);
  });
});
