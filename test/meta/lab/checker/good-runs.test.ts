import { expect, it } from "vitest";
import { judge } from "../../../lab/checker/judge.js";
import { goodStory, Story } from "../../../lab/checker/story.js";
import { bothTogether, elections, readersAndWriter, twoPermits } from "./stories.js";

/** Of places that came with one request, and of a waiter whose process is killed. */
const manyEnds = () =>
  goodStory()
    .ask(100, "w3", 1, 20)
    .ask(100, "w4", 1, 20, { lock: "lock/b" })
    .grant(101, "w3", 1, 20)
    .grant(101, "w4", 1, 20, { lock: "lock/b" })
    .write(102, "w3", 1, { token: 20, seq: 3, k: "info", rev: 21 })
    .ask(103, "w5", 1, 22)
    .abort(104, "w5", 1)
    .giveUp(104, "w5", 1, { turns: 0 })
    .del(105, 23, "lock/a/w5")
    .ask(106, "w6", 1, 24)
    .killed("w6", 110)
    .release(120, "w3", 1, 25)
    .release(120, "w4", 1, 25, { lock: "lock/b" })
    .del(2200, 26, "lock/a/w6");

/** A holder is stopped, loses its place, and says so when it runs again. */
const stoppedHolder = () =>
  new Story()
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
    .release(2410, "w2", 1, 14);

it.each([
  ["two holders, one after the other", goodStory],
  ["an abort, a write of unknown outcome, a kill, and places of one request", manyEnds],
  ["a holder that was stopped for longer than its TTL", stoppedHolder],
  ["readers and a writer", readersAndWriter],
  ["permits", twoPermits],
  ["several names at once", bothTogether],
  ["an election", elections],
])("a good run breaks no invariant: %s", (_, story) => {
  const run = story().leftovers(8000, "idle").leftovers(9000, "end").run();
  expect(judge(run).violations).toEqual({});
});
