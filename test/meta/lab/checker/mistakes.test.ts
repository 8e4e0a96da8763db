import { describe, expect, it } from "vitest";
import { complaints } from "../../../lab/checker/complaints.js";
import { judge, type Label } from "../../../lab/checker/judge.js";
import { held, lost, robbed } from "../../../lab/checker/losses.js";
import { goodStory, Story } from "../../../lab/checker/story.js";
import type { Setting } from "../../../lab/runner/history.js";
import { splitEvents } from "../../../lab/runner/delay-keys.js";
import * as good from "./stories.js";

const { a, b, permits, proclaim, reader, weighs, writer } = good;
const REFUSED = { err: "ETCD_REFUSED" };
const LOST = { owner: "w2/own", says: "lost" };

/** A younger place is granted first. */
const jumped = () => goodStory().ask(41, "w3", 1, 16).ask(42, "w4", 1, 17).grant(43, "w4", 1, 17);
/** The second place becomes the head at 21.5 ms, and is granted `after` 21 ms. */
const woken = (after: number) =>
  new Story()
    .ask(0, "w1", 1, 10)
    .grant(1, "w1", 1, 10)
    .ask(2, "w2", 1, 11)
    .release(20, "w1", 1, 12)
    .grant(21 + after, "w2", 1, 11);
/** A waiter that comes to the head at 20 ms is killed, and etcd is late to end its lease. */
const killedWaiter = (at: number) =>
  new Story()
    .ask(0, "w1", 1, 10)
    .grant(1, "w1", 1, 10)
    .ask(2, "w2", 1, 11)
    .release(20, "w1", 1, 12)
    .killed("w2", at)
    .del(20_000, 13, "lock/a/w2");
/** A waiter is aborted at 110 ms. */
const aborted = (turns: number, goneAt: number) =>
  goodStory()
    .ask(100, "w3", 1, 20)
    .grant(101, "w3", 1, 20)
    .ask(102, "w4", 1, 21)
    .abort(110, "w4", 1)
    .giveUp(110, "w4", 1, { turns })
    .del(goneAt, 22, "lock/a/w4")
    .claim(9000, "w3", 1, 20);
/** The place of w3 has ended at 2.2 s, and its call is granted with a place of that lease. */
const joinedAgain = (lease: string) =>
  goodStory()
    .ask(100, "w3", 1, 20)
    .del(2200, 21, "lock/a/w3")
    .put(2300, 22, `lock/a/${lease}`, { owner: "w3/own" })
    .grant(2301, "w3", 1, 22, { key: `lock/a/${lease}` })
    .claim(2310, "w3", 1, 22);
/** w3 asks at 100 ms; its place is put `after` that time. */
const joined = (after: number) =>
  goodStory()
    .call(100, "w3", 1)
    .put(99.5 + after, 20, "lock/a/w3", { owner: "w3/own" })
    .grant(110 + after, "w3", 1, 20)
    .release(120 + after, "w3", 1, 21);
/** w1's place is deleted by hand at 12 ms, before its call is granted at 20 ms. */
const takenBefore = (joinedAt = 5) =>
  new Story()
    .ask(0, "w1", 1, 10)
    .joined(joinedAt, "w1", 10, "lock/a/w1")
    .taken(12, 11, "lock/a/w1")
    .grant(20, "w1", 1, 10);
const W2 = ["lock/a/w2", 12] as const;
/** w1 holds and listens for ten seconds; w2 waits from 20 ms on, and leaves at 1 s if w1 was told of it at 25 ms. */
const wanted = (told?: typeof W2) => {
  const story = new Story()
    .ask(0, "w1", 1, 10)
    .grant(1, "w1", 1, 10)
    .asks(1, "w1", 1, 10)
    .ask(20, "w2", 1, 12)
    .claim(10_000, "w1", 1, 10);
  return told
    ? story
        .wanted(25, "w1", 1, 10, ...told)
        .giveUp(990, "w2", 1)
        .del(1000, 13, "lock/a/w2")
    : story;
};
/** Granted at 1 ms with a hold that is not held. */
const unheld = (late: boolean) =>
  new Story()
    .ask(0, "w1", 1, 10)
    .grant(1, "w1", 1, 10, { held: false })
    .end(1.2, "w1", 1, "deleted", late)
    .del(0.2, 11, "lock/a/w1");
/** `held` is false at 20 ms, the signal aborts at 21 ms. */
const lateSignal = () => held().claim(20, "w1", 1, 10, false).end(21, "w1", 1, "deleted", true);
/** Notified at 5 s, while etcd has the place until its owner deletes it. */
const falseLoss = () => held().end(5000, "w1", 1, "expired").del(5001, 12, "lock/a/w1");
/** A proxy may have sent the release twice. The process has seen `joins` calls that a proxy repeated. */
function repeatedRelease(joins: number): Story {
  const story = held().askRelease(50, "w1", 1).end(50, "w1", 1, "released");
  story.released(60, "w1", 1, "LOCK_LOST").del(55, 12, "lock/a/w1");
  const repeats = { effect: "hinders", target: "all", sparesLeases: true } as const;
  story.fault(10, true, { fault: "repeat-joins", ...repeats });
  story.fault(30, false, { fault: "repeat-joins", ...repeats });
  story.fault(45, true, { fault: "repeat-releases", ...repeats });
  story.fault(58, false, { fault: "repeat-releases", ...repeats });
  for (let n = 1; n <= joins; n++) {
    const own = { lock: "lock/z" };
    story.call(20, "w1", 100 + n, own).grant(20 + n / 10, "w1", 100 + n, 100 + n, own);
  }
  return story;
}

it.each<readonly [Label, string, Story]>([
  ["I1", "two claim to hold at a time", goodStory().claim(30, "w1", 1, 10)],
  ["I1", "a holder is told only after the next one holds", lost(20)],
  ["I1", "a reader claims beside a writer", good.readersAndWriter().claim(18, "w1", 1, 10)],
  [
    ...(["I1", "a reader holds before the writer was told to become one"] as const),
    good
      .downgraded()
      .ask(7, "w5", 1, 15, reader("w5"))
      .grant(8, "w5", 1, 15, reader("w5"))
      .claim(9, "w5", 1, 15)
      .claim(9, "w1", 1, 10),
  ],
  [
    ...(["I2", "a reader reads at a revision before that of the put that made the writer one"] as const),
    good.downgraded(15).read(13, "w2", 1, 14),
  ],
  [
    ...(["I2", "an older place outlives the hold"] as const),
    new Story().ask(0, "w1", 1, 10).ask(1, "w2", 1, 11).grant(5, "w2", 1, 11).del(7, 12, "lock/a/w2"),
  ],
  [
    ...(["I2", "an older place of a name under it does"] as const),
    new Story()
      .ask(0, "w1", 1, 10, { lock: "lock/a/in" })
      .ask(2, "w2", 1, 11)
      .grant(3, "w2", 1, 11)
      .del(4, 12, "lock/a/w2"),
  ],
  [
    ...(["I2", "a reader holds while an older writer waits"] as const),
    new Story()
      .ask(0, "w1", 1, 10, reader("w1"))
      .ask(2, "w2", 1, 11, writer("w2"))
      .ask(3, "w3", 1, 12, reader("w3"))
      .grant(4, "w3", 1, 12, reader("w3"))
      .release(6, "w3", 1, 13, reader("w3")),
  ],
  [
    ...(["I2", "a writer holds while an older reader does"] as const),
    new Story()
      .ask(0, "w1", 1, 10, reader("w1"))
      .ask(2, "w2", 1, 11, writer("w2"))
      .grant(3, "w2", 1, 11, writer("w2"))
      .release(4, "w2", 1, 12, writer("w2")),
  ],
  [
    ...(["I2", "a permit is given by the own number, not by that of the oldest place"] as const),
    new Story()
      .ask(0, "w1", 1, 10, permits(2))
      .ask(1, "w2", 1, 11, permits(2))
      .ask(2, "w3", 1, 12, permits(3))
      .grant(3, "w3", 1, 12, permits(3))
      .release(5, "w3", 1, 13),
  ],
  [
    ...(["I2", "a light call overtakes a heavy one that waits"] as const),
    new Story()
      .ask(0, "w1", 1, 10, weighs(3))
      .ask(1, "w2", 1, 11, weighs(3))
      .ask(2, "w3", 1, 12, weighs(1))
      .grant(3, "w3", 1, 12, weighs(1))
      .release(5, "w3", 1, 13),
  ],
  [
    ...(["I2", "several names are held while one of them is not"] as const),
    good.waitingForBoth().grant(5, "w2", 1, 11, a).grant(5, "w2", 2, 11, b).release(6, "w2", 2, 13, b),
  ],
  ["I3", "a fence is lower than one before", goodStory().ask(45, "w3", 1, 9).grant(46, "w3", 1, 9)],
  [
    "I4",
    "a write comes after the fence of the next holder",
    goodStory().write(45, "w1", 1, { token: 10, seq: 3, rev: 16 }),
  ],
  [
    "I5",
    "a holder overwrites what it has not read",
    goodStory().write(26, "w2", 1, { token: 11, seq: 2, rev: 14, write: "x" }),
  ],
  ["I6", "a younger place is granted first", jumped().grant(44, "w3", 1, 16)],
  ["I7", "a head is not granted within a TTL", woken(2100)],
  ["I7", "a place belongs to nobody", goodStory().put(45, 16, "lock/a/ghost", {}).leftovers(4000, "end")],
  ["I8", "a key is left", goodStory().leftovers(70, "idle", { keys: ["lock/a/7"] })],
  [
    ...(["I8", "a place outlives its hold by more than a TTL"] as const),
    goodStory()
      .ask(90, "w3", 1, 20)
      .grant(91, "w3", 1, 20)
      .askRelease(100, "w3", 1)
      .end(100, "w3", 1, "released")
      .del(2101, 21, "lock/a/w3"),
  ],
  [
    "I9",
    "a holder claims after etcd has deleted its place",
    held().del(5, 12, "lock/a/w1").end(5, "w1", 1, "expired").claim(9, "w1", 1, 10),
  ],
  ["I9", "a loss is told after etcd has deleted the place", lost(0.1)],
  ["I10", "a hold ends twice", goodStory().end(21, "w1", 1, "expired")],
  [
    ...(["I10", "somebody else deletes the place of a holder"] as const),
    held().del(50, 12, "lock/a/w1").ask(60, "w1", 2, 13, { lock: "lock/b" }).end(80, "w1", 1, "deleted"),
  ],
  ["I11", "a loss is told that nothing has caused", falseLoss()],
  ["I12", "an aborted call is rejected late", aborted(4, 112)],
  ["I12", "an aborted call keeps its place for more than a TTL", aborted(0, 2200)],
  ["I13", "three hold two permits", good.twoPermits().claim(28, "w1", 1, 10)],
  ["I13", "three hold seven of five permits", good.weights().claim(28, "w1", 1, 10)],
  [
    ...(["I14", "each of several names comes with a revision of its own"] as const),
    new Story()
      .ask(2, "w2", 1, 11, a)
      .ask(2, "w2", 2, 12, b)
      .grant(5, "w2", 1, 12, a)
      .grant(5, "w2", 2, 12, b),
  ],
  [
    "I15",
    "an observer is told an older leader after a newer one",
    good.elections(good.ALL.toSpliced(4, 0, good.ALL[2])),
  ],
  [
    ...(["I16", "what was proclaimed is never there"] as const),
    good
      .elections()
      .tell(proclaim("invoke", 13, "w2", LOST))
      .tell(proclaim("ok", 14, "w2", LOST)),
  ],
  [
    ...(["I17", "a call is refused, though another member helps"] as const),
    goodStory().hindered(110, 5000, { refuses: "member" }).call(100, "w3", 1).giveUp(120, "w3", 1, REFUSED),
  ],
  ["I17", "a call has no place within one fail-over", joined(3001)],
  ["I20", "a call is granted what is not held, and its signal has not aborted", unheld(true)],
  [
    "I20",
    "a call is granted a place whose deletion a watch has reported",
    takenBefore().heard(19, "w1", 11, "lock/a/w1"),
  ],
  ["I20", "a call is granted a place that a read has not shown", takenBefore().saw(19, "w1", 11, 10, {})],
  [
    ...(["I20", "a call in the context of a hold enters it when it is not held"] as const),
    held().enter(20, "w1", 1, 10, false).end(21, "w1", 1, "deleted", true),
  ],
  ["I21", "a signal aborts a turn after its hold has ended", lateSignal()],
  ["I22", "a holder is not told of one that waits", wanted()],
  [
    "I22",
    "a holder is told of one that has left, and not of the next one",
    wanted(W2).ask(2000, "w3", 1, 14),
  ],
  [
    "I22",
    "a former holder is told",
    wanted(W2)
      .release(9500, "w1", 1, 20)
      .wanted(9502, "w1", 1, 10, ...W2),
  ],
  [
    "I22",
    "a holder is told of a key that etcd never had",
    wanted(W2).wanted(50, "w1", 1, 10, "lock/a/w9", 12),
  ],
  ["I22", "a holder is told of its own key", wanted(W2).wanted(50, "w1", 1, 10, "lock/a/w1", 10)],
  ["crash", "a promise is rejected and unhandled", goodStory().crash(30, "w2")],
])("%s is broken when %s", (label, _, story) => {
  expect(complaints(label, story)).not.toEqual([]);
});

it.each<readonly [Label, string, Story, Story]>([
  [
    ...(["I1", "a process that stood still, until half a second after that"] as const),
    lost(1190).stopped("w1", 200, 3000),
    lost(1210).stopped("w1", 200, 3000),
  ],
  [
    ...(["I1", "a place that was taken by hand, until its holder must have noticed"] as const),
    robbed({ claimAt: 3300, toldAt: 3310 }),
    robbed({ claimAt: 3340, toldAt: 3341 }),
  ],
  [
    ...(["I6", "a process that stood still between its turn and its record"] as const),
    jumped().stopped("w3", 41.6, 43.5).grant(44, "w3", 1, 16),
    jumped().stopped("w3", 40, 41).grant(44, "w3", 1, 16),
  ],
  [
    ...(["I7", "a fault of etcd, until one TTL after the cluster has settled"] as const),
    woken(10_900).hindered(15, 3000),
    woken(11_100).hindered(15, 3000),
  ],
  [
    ...(["I7", "a process that was killed in time, from then on"] as const),
    killedWaiter(1000),
    killedWaiter(15_000),
  ],
  [
    ...(["I9", "a stall, for its length"] as const),
    lost(25).stalled(2300, "w1", 30),
    lost(35).stalled(2300, "w1", 30),
  ],
  [
    ...(["I11", "a fault of etcd, until the cluster has settled"] as const),
    falseLoss().hindered(100, 200),
    held().end(6300, "w1", 1, "expired").hindered(100, 200),
  ],
  [
    "I11",
    "a repeated release, until its process has seen that a proxy repeats joins",
    repeatedRelease(19),
    repeatedRelease(20),
  ],
  [
    ...(["I12", "a place of an earlier session, of a call that joined again with the next one"] as const),
    joinedAgain("w9"),
    joinedAgain("w3"),
  ],
  [
    ...(["I13", "a holder that stood still"] as const),
    good.twoPermits().claim(28, "w1", 1, 10).stopped("w1", 11, 27),
    good.twoPermits().claim(28, "w1", 1, 10).stopped("w5", 11, 27),
  ],
  [
    ...(["I15", "a gap that etcd has compacted"] as const),
    good.elections(good.ALL.toSpliced(2, 1)).compacted(8),
    good.elections(good.ALL.toSpliced(2, 1)).compacted(20),
  ],
  [
    ...(["I22", "a fault of etcd, until one TTL after the cluster has settled"] as const),
    wanted().hindered(15, 3000),
    wanted().hindered(15, 20),
  ],
  ["I20", "a signal that has aborted", unheld(false), unheld(true)],
  [
    ...(["I20", "a deletion that nothing shows before the grant"] as const),
    takenBefore()
      .heard(19, "w2", 11, "lock/a/w1")
      .saw(19, "w1", 10, 10, {})
      .saw(19.2, "w1", 11, 12, {})
      .saw(19.5, "w1", 11, 10, { "lock/a/w1": 10 })
      .heard(20, "w1", 11, "lock/a/w1"),
    takenBefore().heard(19.9, "w1", 11, "lock/a/w1"),
  ],
  [
    ...(["I20", "a deletion that is reported before the place is"] as const),
    new Story()
      .ask(0, "w1", 1, 10)
      .taken(12, 11, "lock/a/w1")
      .heard(19, "w1", 11, "lock/a/w1")
      .joined(19.5, "w1", 10, "lock/a/w1")
      .grant(20, "w1", 1, 10),
    takenBefore(18).heard(19, "w1", 11, "lock/a/w1"),
  ],
  [
    ...(["I21", "a suspended machine, until its lease has ended"] as const),
    lateSignal().suspended("w1", 10, 15),
    lateSignal().suspended("w2", 10, 15),
  ],
  [
    ...(["I17", "a refusal of the whole cluster, and one fail-over after it"] as const),
    goodStory()
      .hindered(100, 1000, { refuses: "cluster" })
      .call(3998, "w3", 1)
      .giveUp(3999, "w3", 1, REFUSED),
    goodStory()
      .hindered(100, 1000, { refuses: "cluster" })
      .call(4000, "w3", 1)
      .giveUp(4001, "w3", 1, REFUSED),
  ],
])("%s excuses %s, and no more", (label, _, within, beyond) => {
  expect(complaints(label, within)).toEqual([]);
  expect(complaints(label, beyond)).not.toEqual([]);
});

it("I9 excuses an early revocation by an etcd of three members, until it has settled, and no more", () => {
  const revoked = (after: number) => lost(after).hindered(1000, 1500);
  expect(complaints("I9", revoked(8000), { members: 3 })).toEqual([]);
  expect(complaints("I9", revoked(8300), { members: 3 })).not.toEqual([]);
  expect(complaints("I9", revoked(100), { members: 1 })).not.toEqual([]);
});

it("I9 and I10 excuse it, too, if a late grant gives the ID of the lease again", () => {
  const again = (by?: "del" | "expire") =>
    lost(100, 2300, by).hindered(1000, 2500).put(3000, 30, "lock/b/w1", { owner: "w1/own" });
  for (const rule of ["I9", "I10"] as const) {
    expect(complaints(rule, again("expire"), { members: 3 })).toEqual([]);
    expect(complaints(rule, again("expire"), { members: 1 })).not.toEqual([]);
    expect(complaints(rule, again(), { members: 3 })).not.toEqual([]);
  }
});

describe("I19", () => {
  const [key, delayKey] = ["lock/a/4000000000000a00", "lock/a/4000000000000a01"];
  /** The two keys of a holder are deleted one right after the other, without the delay of one second. */
  const followed = (add: (story: Story) => Story, more: Partial<Setting> = {}) => {
    const story = new Story()
      .ask(0, "w1", 1, 10, { key })
      .put(0, 10, delayKey, { owner: "w1/own" })
      .grant(1, "w1", 1, 10, { key })
      .claim(4990, "w1", 1, 10)
      .del(5010, 11, key)
      .del(5030, 12, delayKey);
    const run = add(story).run({ members: 3, releaseDelayMs: 1000, ...more });
    return judge({ ...run, ...splitEvents(run.server) }, ["I19"]).violations.I19 ?? [];
  };

  it("excuses what a leader revokes after a pause of more than the delay, and no more", () => {
    expect(followed((story) => story.hindered(3900, 5000))).toEqual([]);
    expect(followed((story) => story.hindered(3900, 6000))).toEqual([]);
    expect(followed((story) => story.hindered(4100, 5000))).not.toEqual([]);
    expect(followed((story) => story.hindered(3900, 5000), { members: 1 })).not.toEqual([]);
  });

  it("excuses the renewals of a process that died, which a slow link has torn apart, and no more", () => {
    const slow = { fault: "link-slow", effect: "hinders", target: "w0,w1" } as const;
    const torn = (story: Story, to: number) => story.fault(1000, true, slow).fault(to, false, slow);
    expect(followed((story) => torn(story, 2500).killed("w1", 4995))).toEqual([]);
    expect(followed((story) => torn(story, 2400).killed("w1", 4995))).not.toEqual([]);
    expect(followed((story) => torn(story, 2500).killed("w2", 4995))).not.toEqual([]);
    expect(followed((story) => torn(story, 2500).killed("w1", 4995), { releaseDelayMs: 4000 })).not.toEqual(
      [],
    );
  });

  it("excuses a holder whose lease was revoked by hand, once it has been told, while it lives", () => {
    const revoke = { fault: "revoke-lease", effect: "takes-place", target: "w1", took: [11n] } as const;
    const revoked = (story: Story) => story.fault(5010, true, revoke).fault(5010, false, revoke);
    expect(followed((story) => revoked(story).end(5020, "w1", 1, "deleted"))).toEqual([]);
    expect(followed((story) => revoked(story).end(5040, "w1", 1, "deleted"))).not.toEqual([]);
    expect(followed((story) => revoked(story).end(5020, "w1", 1, "deleted").killed("w1", 5025))).not.toEqual(
      [],
    );
    expect(followed((story) => story.end(5020, "w1", 1, "deleted"))).not.toEqual([]);
  });

  it("excuses a member that has lost the lock of a shard, once its work has settled, while it lives", () => {
    const of = { p: "w1", id: 1, lock: "lock/a", token: 10n } as const;
    const ran = (story: Story, at: number) =>
      story
        .tell({ k: "run", t: 2_000_000n, ...of, owner: "w1/own", held: true })
        .tell({ k: "ran", t: BigInt(at) * 1_000_000n, ...of })
        .end(5020, "w1", 1, "expired");
    expect(followed((story) => ran(story, 5025))).toEqual([]);
    expect(followed((story) => ran(story, 5035))).not.toEqual([]);
    expect(followed((story) => ran(story, 5025).killed("w1", 5026))).not.toEqual([]);
  });
});

it("nothing is broken when a reader holds beside a writer that has become one, and the next writer waits for both", () => {
  const { violations } = judge(good.downgraded().leftovers(50, "idle").leftovers(60, "end").run());

  expect(violations).toEqual({});
});
