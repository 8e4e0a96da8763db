import { describe, expect, it } from "vitest";
import { broken, complaints } from "../../../lab/checker/complaints.js";
import { Story } from "../../../lab/checker/story.js";

const ns = (at: number) => BigInt(at * 1e6);
const lock = "lock/a";
const proclaim = (k: "invoke" | "ok", at: number, p: string, value: object) => {
  const of = { f: "proclaim", t: ns(at), p, id: 1, lock, value: JSON.stringify(value) } as const;
  return { k, ...of } as const;
};

const told = (token: number, rev: number, value: object) => ({ token, rev, value: JSON.stringify(value) });
const first = { owner: "w1/own" };
const second = { owner: "w2/own" };
const says = { owner: "w1/own", says: "more" };

const proclaiming = () =>
  new Story()
    .ask(1, "w1", 1, 10)
    .grant(2, "w1", 1, 10)
    .tell(proclaim("invoke", 5, "w1", says))
    .put(6, 11, "lock/a/w1", says)
    .tell(proclaim("ok", 7, "w1", says));

/** w1 leads and proclaims, w2 leads after it; then there is no leader. */
const led = (then: (story: Story) => Story = (story) => story) =>
  then(proclaiming())
    .ask(8, "w2", 1, 20)
    .release(10, "w1", 1, 30)
    .grant(12, "w2", 1, 20)
    .release(20, "w2", 1, 40)
    .leftovers(6000, "idle")
    .leftovers(7000, "end");

describe("what observers of an election are told", () => {
  /** w3 receives every state, except for those that are omitted or changed. */
  const heard = (change: (all: (ReturnType<typeof told> | undefined)[]) => unknown = () => undefined) => {
    const all = [undefined, told(10, 10, first), told(10, 11, says), told(20, 20, second), undefined];
    change(all);
    const story = led();
    all.forEach((leader, n) => {
      const of = leader && { ...leader, token: BigInt(leader.token), rev: BigInt(leader.rev) };
      story.tell({ k: "observed", t: ns(n * 5), p: "w3", lock, ...of });
    });
    return story.tell({ k: "unobserved", t: ns(6500), p: "w3", lock });
  };

  it("is as it must be when all of it comes in order", () => {
    expect(broken(heard())).toEqual([]);
  });

  it("breaks I15 when an older leader comes after a newer one, or one comes twice", () => {
    expect(
      complaints(
        "I15",
        heard((all) => all.splice(4, 0, told(10, 11, says))),
      ),
    ).toHaveLength(1);
    expect(
      complaints(
        "I15",
        heard((all) => all.splice(2, 0, told(10, 10, first))),
      ),
    ).toHaveLength(1);
  });

  it("begins again with the present state in an observation that follows a refused one", () => {
    const again = (n: number) => {
      const led = { ...told(20, 20, second), token: 20n, rev: 20n };
      return heard().tell({ k: "observed", t: ns(7), p: "w3", lock, ...led, n });
    };
    expect(complaints("I15", again(1))).toEqual([]);
    const same = heard().tell({ k: "observed", t: ns(16), p: "w3", lock, token: 20n, rev: 20n });
    expect(complaints("I15", same)).toHaveLength(1);
  });

  it("breaks I15 when a leader never was, or said something else", () => {
    expect(
      complaints(
        "I15",
        heard((all) => all.splice(4, 0, told(20, 30, second))),
      ),
    ).toHaveLength(1);
    expect(
      complaints(
        "I15",
        heard((all) => all.splice(2, 1, told(10, 11, first))),
      ),
    ).toHaveLength(1);
  });

  it("breaks I15 when nobody leads twice in a row, or when somebody did all the time", () => {
    expect(
      complaints(
        "I15",
        heard((all) => all.unshift(undefined)),
      ),
    ).toHaveLength(1);
    expect(
      complaints(
        "I15",
        heard((all) => all.splice(3, 0, undefined)),
      ),
    ).toHaveLength(1);
  });

  it("breaks I15 when a change is left out, though etcd was hindered then, but not when it was compacted", () => {
    const gap = () => heard((all) => all.splice(2, 1));
    expect(complaints("I15", gap())).toHaveLength(1);
    expect(complaints("I15", gap().hindered(3, 8))).toHaveLength(1);
    expect(complaints("I15", gap().compacted(8))).toEqual([]);
    expect(complaints("I15", gap().compacted(20))).toHaveLength(1);
  });

  it("does not judge by I15 what came before the last 1000 that a reader is told", () => {
    /** w1 proclaims at the revisions 11 to 1020, of which w3 receives those from `from` on. */
    const heardFrom = (from: number) => {
      const story = new Story().ask(1, "w1", 1, 10).grant(2, "w1", 1, 10);
      const hears = (t: number, rev: number, value: object) =>
        story.tell({
          k: "observed",
          t: ns(t),
          p: "w3",
          lock,
          token: 10n,
          rev: BigInt(rev),
          value: JSON.stringify(value),
        });
      hears(1, 10, first);
      for (let rev = 11; rev <= 1020; rev++) {
        story.put(rev, rev, "lock/a/w1", { ...says, rev });
        if (rev >= from) hears(rev + 1, rev, { ...says, rev });
      }
      return story;
    };
    expect(complaints("I15", heardFrom(21))).toEqual([]);
    expect(complaints("I15", heardFrom(22))).toHaveLength(1);
  });

  it("breaks I15 when the last state is never told", () => {
    expect(
      complaints(
        "I15",
        heard((all) => all.pop()),
      ),
    ).toHaveLength(1);
  });
});

describe("what a leader proclaims", () => {
  it("breaks I16 when it was told as done and never seen", () => {
    const more = { owner: "w2/own", says: "lost" };
    const story = led()
      .tell(proclaim("invoke", 13, "w2", more))
      .tell(proclaim("ok", 14, "w2", more));
    expect(complaints("I16", story)).toHaveLength(1);
  });

  it("breaks I16 when it is there twice, or after a later one", () => {
    expect(
      complaints(
        "I16",
        led((story) => story.put(7, 15, "lock/a/w1", says)),
      ),
    ).toHaveLength(1);
  });

  it("has an order of its own in each election, though their places came with one revision", () => {
    const where = { lock: "lock/b" };
    const [here, there] = [
      { owner: "w1/own", says: "here" },
      { owner: "w1/own", says: "there" },
    ];
    const story = new Story()
      .ask(1, "w1", 1, 10)
      .grant(2, "w1", 1, 10)
      .ask(1, "w1", 2, 10, where)
      .grant(2, "w1", 2, 10, where)
      .tell(proclaim("invoke", 4, "w1", here))
      .tell({ ...proclaim("invoke", 5, "w1", there), id: 2, ...where })
      .put(6, 11, "lock/b/w1", there)
      .put(7, 12, "lock/a/w1", here);

    expect(complaints("I16", story)).toEqual([]);
  });

  it("breaks I16 when it is under the place of another leader", () => {
    const late = { owner: "w1/own", says: "late" };
    const story = led()
      .tell(proclaim("invoke", 8, "w1", late))
      .put(15, 35, "lock/a/w2", late);
    expect(complaints("I16", story)).toHaveLength(1);
  });
});
