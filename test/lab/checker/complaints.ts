// What the checker reports about a hand-made run.
import type { Setting } from "../runner/history.js";
import { judge, type Label } from "./judge.js";
import type { Story } from "./story.js";

/** The invariants that it reports as broken. */
export const broken = (story: Story) => Object.keys(judge(story.run()).violations);

/** Its sentences about one invariant. */
export const complaints = (label: Label, story: Story, setting?: Partial<Setting>) =>
  judge(story.run(setting), [label]).violations[label] ?? [];

/** What it reports only as excused. */
export const excuses = (label: Label, story: Story, setting?: Partial<Setting>) =>
  judge(story.run(setting), [label]).soft;
