// The rules of `once` and `share`, each with one mistake, and with what is none.
import { expect, it } from "vitest";
import { judge, type Label } from "../../../lab/checker/judge.js";
import { Story } from "../../../lab/checker/story.js";
import { splitEvents } from "../../../lab/runner/delay-keys.js";

const RUN = "/leasehold/once/lock/a//*run";
const ns = (at: number) => BigInt(Math.round(at * 1e6));

function broken(story: Story, label: Label): readonly unknown[] {
  const run = story.run();
  return judge({ ...run, ...splitEvents(run.server) }, [label]).violations[label] ?? [];
}

/** w1 runs a string from 10 ms on. Its work has ended at 100 ms, and its lock leaves at 200 ms; its session goes on. */
function ran(): Story {
  const of = { p: "w1", id: 1, lock: "lock/a", slot: "*", token: 10n, ask: 7 } as const;
  const mark = { owner: "w1/own", id: "of the run", key: "lock/a/w1" };
  return new Story()
    .ask(10, "w1", 1, 10)
    .put(10, 10, RUN, { ...mark, state: "started" })
    .grant(12, "w1", 1, 10)
    .tell({ k: "worked", t: ns(12), ...of, rerun: "never" })
    .tell({ k: "settled-work", t: ns(100), ...of, fails: false })
    .end(100, "w1", 1, "released")
    .del(200, 20, "lock/a/w1")
    .ask(300, "w1", 2, 30, { lock: "lock/b" });
}

const closes = (story: Story, at: number, owner: string): Story =>
  story.tell({ k: "invoke", f: "close", t: ns(at), p: "w1", id: 9, lock: "", owner });

it("a run that leaves without its end is a mistake, unless its caller has closed its session meanwhile", () => {
  expect(broken(ran(), "I31")).toHaveLength(1);
  expect(broken(ran().put(200, 20, RUN, { id: "of the run", state: "done" }), "I31")).toEqual([]);
  expect(broken(ran().put(200, 20, RUN, { id: "of the run", state: "failed" }), "I31")).toHaveLength(1);
  expect(broken(closes(ran(), 150, "w1/own"), "I31")).toEqual([]);
  expect(broken(closes(ran(), 150, "w1/other"), "I31")).toHaveLength(1);
  expect(broken(closes(ran(), 99, "w1/own"), "I31")).toHaveLength(1);
  expect(broken(closes(ran(), 201, "w1/own"), "I31")).toHaveLength(1);
});

/** w1 runs a string for five seconds; w2 calls at 100 ms, and has its place `after` that. */
function waited(after: number): Story {
  return new Story()
    .ask(10, "w1", 1, 10)
    .tell({ k: "asked", t: ns(100), p: "w2", id: 7, lock: "lock/a", slot: "*", rerun: "if_failed" })
    .call(100, "w2", 1)
    .del(5000, 20, "lock/a/w1")
    .put(5000 + after, 30, "lock/a/w2", { owner: "w2/own" })
    .grant(5010 + after, "w2", 1, 30)
    .claim(10_000, "w2", 1, 30);
}

it("a call that waits for another's run has its place within one fail-over of the end of that run", () => {
  expect(broken(waited(2900), "I17")).toEqual([]);
  expect(broken(waited(3100), "I17")).toHaveLength(1);
});

const SLOT = "/leasehold/once/lock/a//=s1";

/** Marks of calls that have begun, each with its ID, one after the other; undefined: the mark is deleted. Work begins with the last one. */
function marked(ids: readonly (string | undefined)[], worked: readonly number[] = []): Story {
  const story = new Story().joined(1, "w9", 1, "lock/b/w9");
  ids.forEach((id, n) => {
    const [at, rev] = [10 * (n + 1), 10 * (n + 1)];
    if (id === undefined) return story.del(at, rev, SLOT);
    const key = `lock/a/s1/${id}${rev}`;
    story
      .put(at, rev, SLOT, { id, state: "started", owner: "w1/own", key })
      .put(at, rev, key, { owner: "w1/own" });
    // Its session ends.
    return story.del(at + 5, rev + 5, key);
  });
  for (const rev of [...worked, 10 * ids.length]) {
    const of = {
      p: "w1",
      id: rev,
      lock: "lock/a",
      slot: "s1",
      token: BigInt(rev),
      ask: 1,
      rerun: "never",
    } as const;
    story.tell({ k: "worked", t: ns(rev + 1), ...of });
  }
  return story;
}

it("a run after a lost one is a mistake, also if a call between them has given its mark back", () => {
  expect(broken(marked(["lost", "next"]), "I30")).toHaveLength(1);
  expect(broken(marked(["lost", "between", undefined, "next"]), "I30")).toHaveLength(1);
  expect(broken(marked(["lost", "between", "between", undefined, "next"]), "I30")).toHaveLength(1);
  // It was put again by its own call, whose work had not begun.
  expect(broken(marked(["between", undefined, "next"]), "I30")).toEqual([]);
  expect(broken(marked(["between", "between", undefined, "next"]), "I30")).toEqual([]);
});

it("a call may put its mark again after another one has given it back, unless that one's work has begun", () => {
  expect(broken(marked(["own", "between", "own", "own"]), "I30")).toEqual([]);
  expect(broken(marked(["own", "between", "own", "own"], [20]), "I30")).not.toEqual([]);
});
