// What the checker says of a hand-made run.
import type { Setting } from "../runner/history.js";
import { judge, type Label } from "./judge.js";
import type { Story } from "./story.js";

/** Of which invariants it complains. */
export const broken = (story: Story) => Object.keys(judge(story.run()).violations);

/** Its sentences by one invariant. */
export const complaints = (label: Label, story: Story, setting?: Partial<Setting>) =>
  judge(story.run(setting), [label]).violations[label] ?? [];

/** What it only tells. */
export const excuses = (label: Label, story: Story, setting?: Partial<Setting>) =>
  judge(story.run(setting), [label]).soft;
