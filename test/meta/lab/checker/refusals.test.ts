import { describe, expect, it } from "vitest";
import { broken, complaints } from "../../../lab/checker/complaints.js";
import { goodStory, Story } from "../../../lab/checker/story.js";
import type { Refusal } from "../../../lab/runner/history.js";

const REFUSED = { err: "ETCD_REFUSED" };

describe("I17, a healthy majority is never refused", () => {
  /** Requested at 100 ms and refused at 120 ms, while a fault causes refusals of that kind. */
  const refused = (refuses: Refusal | undefined, until = 5000) =>
    goodStory()
      .hindered(110, until, refuses === undefined ? {} : { refuses })
      .call(100, "w3", 1)
      .giveUp(120, "w3", 1, REFUSED);

  it("allows a call to be refused only by the whole cluster", () => {
    expect(complaints("I17", refused("cluster"))).toEqual([]);
    for (const whose of ["member", "token", undefined] as const)
      expect(complaints("I17", refused(whose))).toEqual([
        "the acquire of w3#1 on lock/a was refused at 120.0 ms, though the whole cluster refused nothing",
      ]);
  });

  it("wants the refusals to end one fail-over after the fault", () => {
    const after = (ms: number) =>
      goodStory()
        .hindered(100, 1000, { refuses: "cluster" })
        .call(1000 + ms - 1, "w3", 1)
        .giveUp(1000 + ms, "w3", 1, REFUSED);
    expect(complaints("I17", after(2999))).toEqual([]);
    expect(complaints("I17", after(3001))).toHaveLength(1);
    expect(complaints("I17", after(6000).stopped("w3", 3500, 6990))).toEqual([]);
    expect(complaints("I17", after(6000).stopped("w2", 3500, 6990))).toHaveLength(1);
  });

  it("does not allow a refusal before the fault", () => {
    expect(complaints("I17", goodStory().call(50, "w3", 1).giveUp(60, "w3", 1, REFUSED))).toHaveLength(1);
    const before = goodStory().hindered(70, 80, { refuses: "cluster" }).call(50, "w3", 1);
    expect(complaints("I17", before.giveUp(60, "w3", 1, REFUSED))).toHaveLength(1);
  });

  it("holds for releases and for sessions that are opened", () => {
    const release = goodStory().askRelease(30, "w1", 1).released(31, "w1", 1, "ETCD_REFUSED");
    expect(complaints("I17", release)).toEqual([expect.stringContaining("the release of w1#1 on lock/a")]);
    const of = { p: "w3", id: 7, lock: "", f: "open" } as const;
    const open = goodStory()
      .tell({ k: "invoke", t: 50_000_000n, ...of })
      .tell({ k: "fail", t: 51_000_000n, ...of, err: "ETCD_REFUSED" });
    expect(complaints("I17", open)).toEqual([
      "the open of w3#7 was refused at 51.0 ms, though the whole cluster refused nothing",
    ]);
  });

  it("tells the words of the error", () => {
    const of = { p: "w3", id: 0, lock: "lock/a", f: "observe" } as const;
    const words = { err: "ETCD_REFUSED", said: "etcd at m2 refused" };
    expect(complaints("I17", goodStory().tell({ k: "fail", t: 51_000_000n, ...of, ...words }))).toEqual([
      "the observe of w3#0 on lock/a was refused at 51.0 ms, though the whole cluster refused nothing (etcd at m2 refused)",
    ]);
  });

  it("leaves other ends of a call alone", () => {
    const ends = goodStory().call(50, "w3", 1).giveUp(60, "w3", 1, { err: "ETCD_UNAVAILABLE" });
    expect(complaints("I17", ends)).toEqual([]);
  });
});

describe("I17, one fail-over", () => {
  /** Requested at 100 ms; its place is put `after` that time. */
  const joined = (after: number) =>
    goodStory()
      .call(100, "w3", 1)
      .put(99.5 + after, 20, "lock/a/w3", { owner: "w3/own" })
      .grant(110 + after, "w3", 1, 20)
      .release(120 + after, "w3", 1, 21)
      .leftovers(20_000, "end");

  it("is a TTL and an attempt: so long may a call be without a place", () => {
    expect(complaints("I17", joined(3000))).toEqual([]);
    expect(complaints("I17", joined(3001))).toEqual([
      "w3#1 asked for lock/a at 100.0 ms and had no place for 3011.0 ms, though a majority was healthy",
    ]);
    expect(complaints("I17", joined(3001), { requestTimeoutMs: 2000 })).toEqual([]);
    expect(complaints("I17", joined(3001), { ttlSeconds: 3 })).toEqual([]);
  });

  it("begins with a member's refusals, and does not last as long as they do", () => {
    const refusedFrom = (at: number, after: number) =>
      joined(after).hindered(at, 15_000, { refuses: "member" });
    expect(complaints("I17", refusedFrom(2000, 4800))).toEqual([]);
    expect(complaints("I17", refusedFrom(2000, 5000))).toHaveLength(1);
    expect(complaints("I17", refusedFrom(50, 5000))).toHaveLength(1);
    expect(complaints("I17", joined(5000).hindered(50, 15_000))).toEqual([]);
    expect(complaints("I17", joined(5000).hindered(50, 15_000, { refuses: "cluster" }))).toEqual([]);
  });

  it("counts again when the refusals end: a new token may be needed then", () => {
    const story = joined(4800).hindered(0, 2000, { refuses: "token" });
    expect(complaints("I17", story)).toEqual([]);
    expect(complaints("I17", joined(5000).hindered(0, 2000, { refuses: "token" }))).toHaveLength(1);
  });

  it("is granted to a process only as long as it runs", () => {
    expect(complaints("I17", joined(5000).stopped("w3", 50, 4000))).toEqual([]);
    expect(complaints("I17", joined(5000).stopped("w2", 50, 4000))).toHaveLength(1);
    const killed = goodStory().call(100, "w3", 1).leftovers(9000, "end");
    expect(complaints("I17", killed)).toHaveLength(1);
    expect(complaints("I17", killed.killed("w3", 200))).toEqual([]);
    const crashed = (at: number) => goodStory().call(100, "w3", 1).crash(at, "w3").leftovers(9000, "end");
    expect(complaints("I17", crashed(3000))).toEqual([]);
    expect(complaints("I17", crashed(4000))).toHaveLength(1);
  });

  it("does not count what a call waits for in the queue", () => {
    const behind = new Story()
      .ask(0, "w1", 1, 10)
      .grant(1, "w1", 1, 10)
      .ask(2, "w2", 1, 11)
      .release(9000, "w1", 1, 12)
      .grant(9002, "w2", 1, 11);
    expect(complaints("I17", behind)).toEqual([]);
  });

  it("takes no older place for the call's, nor another owner's, nor one under another name", () => {
    const beside = (place: (story: Story) => Story) =>
      place(goodStory()).call(100, "w3", 1).leftovers(9000, "end");
    expect(
      complaints(
        "I17",
        beside((it) => it.put(101, 20, "lock/a/w3", { owner: "w3/own" })),
      ),
    ).toEqual([]);
    const others = [
      beside((it) => it.put(90, 20, "lock/a/w3", { owner: "w3/own" })),
      beside((it) => it.put(101, 20, "lock/a/w3", { owner: "w3/other" })),
      beside((it) => it.put(101, 20, "lock/b/w3", { owner: "w3/own" })),
    ];
    for (const other of others) expect(complaints("I17", other)).toHaveLength(1);
  });

  it("is all that a release may wait for", () => {
    const released = (after: number) =>
      new Story()
        .ask(0, "w1", 1, 10)
        .grant(1, "w1", 1, 10)
        .askRelease(10, "w1", 1)
        .end(10, "w1", 1, "released")
        .del(11, 11, "lock/a/w1")
        .released(10 + after, "w1", 1)
        .leftovers(9000, "end");
    expect(complaints("I17", released(3000))).toEqual([]);
    expect(complaints("I17", released(3001))).toEqual([
      "the release of w1#1, asked for at 10.0 ms, waited 3001.0 ms for etcd, though a majority was healthy",
    ]);
    const never = goodStory().askRelease(45, "w2", 1).leftovers(9000, "end");
    expect(complaints("I17", never)).toHaveLength(1);
  });
});

describe("a refusal that another member or a new token cures", () => {
  /** The second place becomes the head at 21.5 ms and is granted `after` 21 ms. */
  const woken = (after: number) =>
    new Story()
      .ask(0, "w1", 1, 10)
      .grant(1, "w1", 1, 10)
      .ask(2, "w2", 1, 11)
      .release(20, "w1", 1, 12)
      .grant(21 + after, "w2", 1, 11);

  it.each(["member", "token"] as const)("of a %s costs a wake-up one fail-over", (refuses) => {
    expect(complaints("I7", woken(2900).hindered(15, 9000, { refuses }))).toEqual([]);
    expect(complaints("I7", woken(3100).hindered(15, 9000, { refuses }))).toHaveLength(1);
    expect(complaints("I7", woken(3100).hindered(2000, 9000, { refuses }))).toEqual([]);
  });

  it("is not the cluster's, after which it has to settle", () => {
    expect(complaints("I7", woken(10_900).hindered(15, 3000, { refuses: "cluster" }))).toEqual([]);
    expect(complaints("I7", woken(11_100).hindered(15, 3000, { refuses: "cluster" }))).toHaveLength(1);
  });

  it("leaves a run that serves all the time without a complaint", () => {
    const all = goodStory().hindered(1, 45, { refuses: "member", sparesLeases: true });
    expect(broken(all)).toEqual([]);
  });
});
