import { describe, expect, it } from "vitest";
import { broken, complaints } from "../../../lab/checker/complaints.js";
import { held, lost, robbed } from "../../../lab/checker/losses.js";
import { goodStory, Story } from "../../../lab/checker/story.js";

describe("I8, nothing left behind", () => {
  it("sees a key and a lease that were left", () => {
    const story = goodStory()
      .leftovers(70, "idle", { keys: ["lock/a/7"] })
      .leftovers(71, "end", { leases: ["8"] });
    expect(complaints("I8", story)).toEqual(["key lock/a/7 was left (idle)", "lease 8 was left (end)"]);
  });

  it("sees watches that nobody needs", () => {
    const story = goodStory().leftovers(70, "idle", { watches: 3 });
    expect(complaints("I8", story)).toEqual(["3 watches were left (idle)"]);
    expect(complaints("I8", goodStory().leftovers(70, "idle", { watches: 0 }))).toEqual([]);
  });

  it("sees that nobody looked", () => {
    expect(complaints("I8", new Story())).toHaveLength(2);
  });

  /** w3 releases at 100 ms, and its place is deleted at another time. */
  const released = (goneAt: number) =>
    goodStory()
      .ask(90, "w3", 1, 20)
      .grant(91, "w3", 1, 20)
      .askRelease(100, "w3", 1)
      .end(100, "w3", 1, "released")
      .del(goneAt, 21, "lock/a/w3")
      .leftovers(20_000, "end");

  it("sees a place that outlives its hold by more than a TTL", () => {
    expect(complaints("I8", released(2099))).toEqual([]);
    expect(complaints("I8", released(2101))).toEqual([
      "the place of w3#1 (lock/a, fence 20) was there for 2001.5 ms after its end at 100.0 ms",
    ]);
  });

  it("allows a release longer that was hindered, until the cluster has settled", () => {
    expect(complaints("I8", released(8900).hindered(95, 1000))).toEqual([]);
    expect(complaints("I8", released(9100).hindered(95, 1000))).toHaveLength(1);
  });

  it("sees a killed holder's place that does not go with its lease", () => {
    const killed = (goneAt: number) =>
      goodStory()
        .ask(90, "w3", 1, 20)
        .grant(91, "w3", 1, 20)
        .killed("w3", 100)
        .del(goneAt, 21, "lock/a/w3")
        .leftovers(20_000, "end");
    expect(complaints("I8", killed(2600))).toEqual([]);
    expect(complaints("I8", killed(8200))).toHaveLength(1);
  });
});

describe("I10, one end per hold", () => {
  it("sees a second end, and a loss after a release", () => {
    expect(complaints("I10", goodStory().end(21, "w1", 1, "expired"))).toEqual([
      "w1#1 (lock/a, fence 10) ended as released at 20.0 ms, and again as expired at 21.0 ms",
    ]);
    expect(complaints("I10", goodStory().end(21, "w1", 1, "released"))).toHaveLength(1);
  });

  it("sees a hold without an end, but for a process that was killed", () => {
    const unended = () => goodStory().ask(45, "w3", 1, 20).grant(46, "w3", 1, 20);
    expect(complaints("I10", unended())).toEqual([
      "w3#1 (lock/a, fence 20) was granted at 46.0 ms and has no end, though its process came to its own",
    ]);
    expect(complaints("I10", unended().killed("w3", 47))).toEqual([]);
    expect(complaints("I10", unended().killed("w2", 47))).toHaveLength(1);
  });

  it("sees a hold that was released by nobody, and one that was closed by nobody", () => {
    expect(complaints("I10", held().end(5, "w1", 1, "released"))).toHaveLength(1);
    expect(complaints("I10", held().end(5, "w1", 1, "closed"))).toHaveLength(1);
    expect(complaints("I10", held().close(4, "w1", 2).end(5, "w1", 1, "closed"))).toEqual([]);
    expect(complaints("I10", held().close(4, "w2", 2).end(5, "w1", 1, "closed"))).toHaveLength(1);
    expect(complaints("I10", held().close(6, "w1", 2).end(5, "w1", 1, "closed"))).toHaveLength(1);
  });

  it("sees a release that was confirmed though the hold was lost", () => {
    const story = (err?: string) =>
      held().end(5, "w1", 1, "expired").askRelease(6, "w1", 1).released(7, "w1", 1, err);
    expect(complaints("I10", story("LOCK_LOST"))).toEqual([]);
    expect(complaints("I10", story())).toHaveLength(1);
  });

  it("allows a release to find out that the hold is lost", () => {
    const story = held()
      .askRelease(5, "w1", 1)
      .end(5.1, "w1", 1, "expired")
      .released(5.2, "w1", 1, "LOCK_LOST");
    expect(complaints("I10", story)).toEqual([]);
  });

  it("sees a hold that claims again after its end", () => {
    expect(complaints("I10", goodStory().claim(21, "w1", 1, 10))).toHaveLength(1);
    expect(complaints("I10", goodStory().claim(21, "w1", 1, 10, false))).toEqual([]);
  });
});

describe("I10, only the owner ends a hold", () => {
  /** w1's place is deleted alone at 50 ms: its lease is used for another lock after that. */
  const deleted = () => held().del(50, 12, "lock/a/w1").ask(60, "w1", 2, 13, { lock: "lock/b" });

  it("sees a held place that somebody else deleted", () => {
    const story = deleted().end(80, "w1", 1, "deleted");
    expect(complaints("I10", story)).toEqual([
      "the place lock/a/w1@10 of w1#1 (lock/a, fence 10) was deleted at 50.5 ms, not by its owner, and its lease lived on",
    ]);
    expect(complaints("I10", held().del(50, 12, "lock/a/w1").end(80, "w1", 1, "deleted"))).toHaveLength(1);
  });

  it("sees it under every fault but the one that took this very place", () => {
    const disturbed = deleted().hindered(1, 70).stopped("w2", 1, 70).end(80, "w1", 1, "deleted");
    expect(complaints("I10", disturbed)).toHaveLength(1);
    expect(complaints("I10", robbed({ claimAt: 1600, toldAt: 1700 }))).toEqual([]);
  });

  it("leaves a place that went with its whole lease to I9", () => {
    expect(complaints("I10", lost(10))).toEqual([]);
  });

  it("knows who gave it up before: by release, loss or close", () => {
    expect(complaints("I10", deleted().askRelease(49, "w1", 1).end(49, "w1", 1, "released"))).toEqual([]);
    expect(complaints("I10", deleted().end(49, "w1", 1, "expired"))).toEqual([]);
    expect(complaints("I10", deleted().close(48, "w1", 3).end(49, "w1", 1, "closed"))).toEqual([]);
  });

  /** w2's waiting place is deleted alone at 50 ms. */
  const waiting = () =>
    held()
      .del(50, 12, "lock/a/w2")
      .ask(52, "w2", 2, 13, { lock: "lock/b" })
      .giveUp(9000, "w2", 1)
      .release(9000, "w1", 1, 14);

  it("sees a waiting place that somebody else deleted", () => {
    expect(complaints("I10", waiting())).toEqual([
      "the place lock/a/w2@11, for which w2/own waited, was deleted at 50.5 ms, not by its owner, and its lease lived on",
    ]);
    expect(complaints("I10", waiting().call(2, "w2", 3).giveUp(51, "w2", 3, { err: "busy" }))).toHaveLength(
      1,
    );
    expect(complaints("I10", waiting().call(2, "w2", 3).giveUp(51, "w2", 3))).toEqual([]);
  });

  it("cannot tell whose a waiting place was while etcd was hindered or its process stood still", () => {
    expect(complaints("I10", waiting().hindered(20, 30))).toEqual([]);
    expect(complaints("I10", waiting().stopped("w2", 20, 30))).toEqual([]);
    expect(complaints("I10", waiting().stopped("w1", 20, 30))).toHaveLength(1);
  });

  it("knows that a waiting place was taken by hand", () => {
    const taken = held().taken(50, 12, "lock/a/w2").ask(52, "w2", 2, 13, { lock: "lock/b" });
    expect(complaints("I10", taken.giveUp(9000, "w2", 1).release(9000, "w1", 1, 14))).toEqual([]);
  });
});

describe("I11, no false loss", () => {
  /** Notified at 5000 ms, while etcd has the place until its owner deletes it. */
  const told = () =>
    held()
      .claim(4900, "w1", 1, 10)
      .end(5000, "w1", 1, "expired")
      .del(5001, 12, "lock/a/w1")
      .leftovers(30_000, "end");

  it("sees a loss that nothing has caused", () => {
    expect(complaints("I11", told())).toEqual([
      "w1#1 (lock/a, fence 10) was told that it is lost (expired) at 5000.0 ms, though etcd had its place and nothing had touched its lease",
    ]);
  });

  it("allows for a place that etcd had deleted before", () => {
    expect(complaints("I11", lost(0.1))).toEqual([]);
  });

  it("allows for a fault of etcd for as long as the cluster needs to settle", () => {
    expect(complaints("I11", told().hindered(100, 200))).toEqual([]);
    const late = held().end(6300, "w1", 1, "expired").hindered(100, 200);
    expect(complaints("I11", late)).toHaveLength(1);
  });

  it("does not allow for a fault that spares leases, or that came later", () => {
    expect(complaints("I11", told().hindered(4000, 4900, { sparesLeases: true }))).toHaveLength(1);
    expect(complaints("I11", told().hindered(5001, 5100))).toHaveLength(1);
  });

  it("allows for a process that stood still for a quarter of its TTL, not for less, not for another one", () => {
    expect(complaints("I11", told().stopped("w1", 4000, 4500))).toEqual([]);
    expect(complaints("I11", told().stopped("w1", 4000, 4490))).toHaveLength(1);
    expect(complaints("I11", told().stopped("w2", 4000, 4900))).toHaveLength(1);
    expect(complaints("I11", told().stalled(4700, "w1", 300).stalled(4300, "w1", 250))).toEqual([]);
  });

  it("does not allow for a wall clock that jumps", () => {
    expect(complaints("I11", told().clockMoved("w1", 4000, 4900))).toHaveLength(1);
  });

  it("allows for a place that was taken, also when its own watch tells before the observer is told", () => {
    expect(complaints("I11", held().end(1500.2, "w1", 1, "deleted").taken(1500, 12, "lock/a/w1"))).toEqual(
      [],
    );
    const other = held()
      .end(1500.2, "w1", 1, "deleted")
      .taken(1500, 13, "lock/b/w1")
      .del(1500, 12, "lock/a/w1");
    expect(complaints("I11", other)).toHaveLength(1);
    const later = held().end(1500, "w1", 1, "deleted").taken(2100, 12, "lock/a/w1");
    expect(complaints("I11", later)).toHaveLength(1);
  });

  it("sees a release that says the hold was lost when it was not", () => {
    const release = (err: string) =>
      held().askRelease(50, "w1", 1).end(50, "w1", 1, "released").released(60, "w1", 1, err);
    expect(complaints("I11", release("LOCK_LOST").del(55, 12, "lock/a/w1"))).toHaveLength(1);
    expect(complaints("I11", release("LOCK_LOST").del(45, 12, "lock/a/w1"))).toEqual([]);
    expect(complaints("I11", release("LOCK_LOST").taken(49.8, 12, "lock/a/w1"))).toEqual([]);
  });

  it("excuses a release that a proxy may have repeated, until joins have shown the process that it does", () => {
    const release = () =>
      held().askRelease(50, "w1", 1).end(50, "w1", 1, "released").released(60, "w1", 1, "LOCK_LOST");
    const repeats = (story: Story, what: string, from: number, to: number) =>
      [from, to].reduce(
        (told, at) =>
          told.fault(at, at === from, {
            fault: `repeat-${what}`,
            effect: "hinders",
            target: "all",
            sparesLeases: true,
          }),
        story,
      );
    const told = (story: Story) => complaints("I11", story.del(55, 12, "lock/a/w1"));
    const joins = (story: Story, count: number) => {
      for (let n = 1; n <= count; n++) {
        const own = { lock: "lock/z" };
        story.call(20, "w1", 100 + n, own).grant(20 + n / 10, "w1", 100 + n, 100 + n, own);
      }
      return story;
    };

    expect(told(repeats(release(), "releases", 45, 58))).toEqual([]);
    expect(told(repeats(release(), "releases", 61, 70))).toHaveLength(1);
    const shown = (count: number) =>
      repeats(repeats(joins(release(), count), "joins", 10, 30), "releases", 45, 58);
    expect(told(shown(19))).toEqual([]);
    expect(told(shown(20))).toHaveLength(1);
  });

  it("has nothing to say of releases and closed sessions", () => {
    expect(broken(goodStory())).toEqual([]);
    expect(complaints("I11", held().close(4, "w1", 2).end(5, "w1", 1, "closed"))).toEqual([]);
  });
});
