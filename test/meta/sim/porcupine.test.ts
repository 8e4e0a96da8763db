import { expect, it } from "vitest";
import { held, robbed } from "../../lab/checker/losses.js";
import { goodStory, type Story } from "../../lab/checker/story.js";
import { exportRun } from "../../sim/porcupine/export.js";
import { HAND_MADE } from "../../sim/porcupine/hand-made.js";
import { permits, reader, weights } from "../lab/checker/stories.js";

const msOf = (time: number | undefined) => (time === undefined ? "?" : time / 1e6);
const linesOf = (story: Story, dated: "exactly" | "when seen" = "exactly") =>
  exportRun(story.run(), dated).map(({ object, op, from, to, fence, value, accepted }) => {
    const more = [fence, value, accepted].filter((each) => each !== undefined).join();
    return `${object} ${op} ${more} [${msOf(from)}, ${msOf(to)}]`;
  });

it("the export has holds from their call to the deletion of their keys, their claims, reads, and writes with fences", () => {
  expect(linesOf(goodStory())).toEqual([
    ...["mutex acquire 10 [0, 2]", "mutex claim 10 [2, 2]", "register read 0 [2, 6]"],
    ...["mutex acquire 11 [5, 22]", "register write 10,1,true [7, 8]", "mutex claim 10 [20, 20]"],
    ...["mutex end 10 [21.5, 21.5]", "register end 10 [21.5, 21.5]", "mutex claim 11 [22, 22]"],
    ...["register read 0 [22, 23]", "register write 11,1,true [24, 25]", "mutex claim 11 [40, 40]"],
    ...["mutex end 11 [41.5, 41.5]", "register end 11 [41.5, 41.5]"],
  ]);
});

it("the export leaves out what a holder claims until it can know that a fault took its key", () => {
  const story = robbed({ claimAt: 1600, toldAt: 7000 }).claim(6500, "w1", 1, 10);
  expect(linesOf(story).filter((line) => / 10 /.test(line))).toEqual([
    ...["mutex acquire 10 [0, 1]", "mutex claim 10 [1, 1]", "mutex end 10 [1500.5, 1500.5]"],
    ...["mutex claim 10 [6500, 6500]", "mutex gone 10 [7000, 7000]"],
  ]);
});

it("the export leaves a write of unknown outcome open, and a call that was not granted out", () => {
  const story = held().write(5, "w1", 1, { token: 10, seq: 1, k: "info" });
  expect(linesOf(story.ask(6, "w3", 1, 20).abort(7, "w3", 1).giveUp(7, "w3", 1))).toEqual([
    ...["mutex acquire 10 [0, 1]", "mutex claim 10 [1, 1]", "register write 10,1 [5, ?]"],
  ]);
});

it("the export places what the lab only observed between the latest call that saw a lower revision and its observation", () => {
  expect(linesOf(goodStory(), "when seen")).toContain("mutex end 10 [7, 21.5]");
});

it("the export names a semaphore by the limits in its queue, and an rwlock by its shared holds", () => {
  const objectOf = (where: object) =>
    exportRun(held().ask(70, "w3", 1, 20, where).grant(71, "w3", 1, 20, where).run(), "exactly")[0]?.object;
  expect([objectOf(permits(3)), objectOf(reader("w3"))]).toEqual(["semaphore", "rwlock"]);
});

it("the export has the weight that each call asked for, and the number of permits of each place that becomes the oldest one", () => {
  const story = weights().ask(60, "w1", 2, 40, { weighted: { permits: 4, weight: 4 } });
  story.grant(61, "w1", 2, 40, { shared: true }).release(70, "w1", 2, 42);
  // It is never granted, and rules.
  story.ask(65, "w2", 2, 41, { weighted: { permits: 6, weight: 1 } });
  const lines = exportRun(story.run(), "exactly").flatMap(({ object, op, from, fence, weight, permits }) =>
    op === "claim"
      ? []
      : `${object} ${op} ${fence ?? permits}${weight ? `, weight ${weight},` : ""} at ${msOf(from)}`,
  );
  expect(lines).toEqual([
    ...["weighted acquire 10, weight 2, at 0", "weighted rule 5 at 0.5"],
    ...["weighted acquire 11, weight 2, at 2", "weighted acquire 12, weight 3, at 4"],
    ...["weighted acquire 13, weight 1, at 5", "weighted end 10, weight 2, at 11.5"],
    ...["weighted end 11, weight 2, at 31.5", "weighted end 12, weight 3, at 41.5"],
    ...["weighted end 13, weight 1, at 42.5", "weighted acquire 40, weight 4, at 60"],
    ...["weighted rule 4 at 60.5", "weighted end 40, weight 4, at 71.5", "weighted rule 6 at 71.5"],
  ]);
});

it("the histories that the judge must distinguish have legal and illegal ones of each model", () => {
  const kinds = HAND_MADE.map(({ operations, legal }) => `${operations[0]?.object} ${legal}`);
  const models = ["mutex", "rwlock", "semaphore", "weighted", "register", "result", "latch", "barrier"];
  expect(new Set(kinds)).toEqual(new Set(models.flatMap((model) => [`${model} true`, `${model} false`])));
});
