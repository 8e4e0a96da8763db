import { describe, expect, it } from "vitest";
import { broken, complaints, excuses } from "../../../lab/checker/complaints.js";
import { Story } from "../../../lab/checker/story.js";

const reader = (p: string) => ({ key: `lock/a/read/${p}`, shared: true });
const writer = (p: string) => ({ key: `lock/a/write/${p}` });
const over = (story: Story) => story.leftovers(900, "idle").leftovers(990, "end");

describe("readers and writers in a history", () => {
  /** Two readers hold together; a writer waits for both, and a third reader for the writer. */
  const good = () =>
    new Story()
      .ask(0, "w1", 1, 10, reader("w1"))
      .grant(1, "w1", 1, 10, reader("w1"))
      .ask(2, "w2", 1, 11, reader("w2"))
      .grant(3, "w2", 1, 11, reader("w2"))
      .ask(4, "w3", 1, 12, writer("w3"))
      .ask(5, "w4", 1, 13, reader("w4"))
      .claim(10, "w1", 1, 10)
      .claim(10, "w2", 1, 11)
      .release(10, "w1", 1, 14, reader("w1"))
      .release(12, "w2", 1, 15, reader("w2"))
      .grant(15, "w3", 1, 12, writer("w3"))
      .claim(20, "w3", 1, 12)
      .release(20, "w3", 1, 16, writer("w3"))
      .grant(22, "w4", 1, 13, reader("w4"))
      .release(30, "w4", 1, 17, reader("w4"));

  it("are as they must be when readers share and a writer is alone", () => {
    expect(broken(over(good()))).toEqual([]);
  });

  it("break I2 when a reader is granted while an older writer waits", () => {
    const story = new Story()
      .ask(0, "w1", 1, 10, reader("w1"))
      .grant(1, "w1", 1, 10, reader("w1"))
      .ask(2, "w2", 1, 11, writer("w2"))
      .ask(3, "w3", 1, 12, reader("w3"))
      .grant(4, "w3", 1, 12, reader("w3"))
      .release(6, "w3", 1, 13, reader("w3"));
    expect(complaints("I2", story)).toHaveLength(1);
  });

  it("break I2 when a writer is granted before the last older reader has left", () => {
    const story = good().ask(40, "w5", 1, 20, reader("w5")).ask(41, "w6", 1, 21, writer("w6"));
    story.grant(42, "w6", 1, 21, writer("w6")).release(43, "w6", 1, 22, writer("w6"));
    expect(complaints("I2", story)).toHaveLength(1);
  });

  it("break I1 when a writer claims beside a reader, also where the longest claim is a reader's", () => {
    const story = good().claim(14, "w1", 1, 10).claim(18, "w1", 1, 10);
    expect(complaints("I1", story).length).toBeGreaterThan(0);
    const excused = good().stopped("w1", 11, 22).claim(23, "w1", 1, 10);
    expect(complaints("I1", excused)).toEqual([]);
  });

  it("break I6 when a writer is served after a younger reader, not when a reader is after a reader", () => {
    const late = new Story()
      .ask(0, "w1", 1, 10, reader("w1"))
      .ask(0, "w2", 1, 11, reader("w2"))
      .grant(1, "w2", 1, 11, reader("w2"))
      .grant(2, "w1", 1, 10, reader("w1"));
    expect(complaints("I6", late)).toEqual([]);
    const unfair = new Story()
      .ask(0, "w1", 1, 10, writer("w1"))
      .ask(0, "w2", 1, 11, reader("w2"))
      .grant(1, "w2", 1, 11, reader("w2"))
      .grant(2, "w1", 1, 10, writer("w1"));
    expect(complaints("I6", unfair)).toHaveLength(1);
  });

  it("break I7 when a reader behind no writer is not granted within a TTL", () => {
    const story = new Story()
      .ask(0, "w1", 1, 10, reader("w1"))
      .grant(1, "w1", 1, 10, reader("w1"))
      .ask(2, "w2", 1, 11, reader("w2"))
      .claim(4000, "w1", 1, 10);
    expect(complaints("I7", story).length).toBeGreaterThan(0);
  });
});

describe("permits in a history", () => {
  const of = (permits: number) => ({ permits, shared: true });
  /** Two hold, the third waits for one of them. */
  const good = () =>
    new Story()
      .ask(0, "w1", 1, 10, of(2))
      .grant(1, "w1", 1, 10, of(2))
      .ask(2, "w2", 1, 11, of(2))
      .grant(3, "w2", 1, 11, of(2))
      .ask(4, "w3", 1, 12, of(2))
      .claim(10, "w1", 1, 10)
      .claim(30, "w2", 1, 11)
      .release(10, "w1", 1, 13)
      .grant(12, "w3", 1, 12, of(2))
      .claim(20, "w3", 1, 12)
      .release(30, "w2", 1, 14)
      .release(40, "w3", 1, 15);

  it("are as they must be when no more hold than there are", () => {
    expect(broken(over(good()))).toEqual([]);
  });

  it("break I13 when more claim at a time, but for a holder that stood still or was robbed", () => {
    const three = () => good().claim(28, "w1", 1, 10);
    expect(complaints("I13", three())).toEqual(["3 claimed to hold lock/a at 12.0 ms, of 2 permits"]);
    expect(complaints("I13", three().stopped("w1", 11, 27))).toEqual([]);
  });

  it("break I2 when one is granted whose rank was never low enough", () => {
    const jumped = new Story()
      .ask(0, "w1", 1, 10, of(2))
      .ask(1, "w2", 1, 11, of(2))
      .ask(2, "w3", 1, 12, of(3))
      .grant(3, "w3", 1, 12, of(3))
      .release(5, "w3", 1, 13);
    expect(complaints("I2", jumped)).toHaveLength(1);
  });

  it("go by the number of the oldest place that lives", () => {
    const story = new Story()
      .ask(0, "w1", 1, 10, of(3))
      .ask(1, "w2", 1, 11, of(2))
      .ask(2, "w3", 1, 12, of(2))
      .grant(3, "w3", 1, 12, of(2))
      .release(5, "w3", 1, 13);
    expect(complaints("I2", story)).toEqual([]);
  });

  it("may leave again after a try, where a mutex puts no place when it is refused", () => {
    const tried = (permits?: number) =>
      new Story()
        .ask(0, "w1", 1, 10, permits === undefined ? {} : { permits })
        .del(2, 11, "lock/a/w1")
        .put(3, 12, "lock/b/w1", {})
        .giveUp(5, "w1", 1, { err: "busy" });
    expect(complaints("I10", tried(2))).toEqual([]);
    expect(complaints("I10", tried())).toHaveLength(1);
  });

  it("break I7 when one that is free is not given within a TTL", () => {
    const story = new Story()
      .ask(0, "w1", 1, 10, of(2))
      .grant(1, "w1", 1, 10, of(2))
      .ask(2, "w2", 1, 11, of(2))
      .claim(4000, "w1", 1, 10);
    expect(complaints("I7", story).length).toBeGreaterThan(0);
    expect(excuses("I7", story)).toEqual([]);
  });
});
