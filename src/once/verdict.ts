import type { KeyValue, Operation } from "../etcd/port.js";
import { queueRange } from "../queue/lock-mode.js";
import type { RangeResult } from "../queue/lock-mode.js";
import { parseMark, type Mark, type MarkSpace } from "./marks.js";
import type { SlotPlan } from "./plan.js";

/** Another run of a slot. */
export interface OnceRun {
  /** `owner` of the session that ran it. */
  readonly owner: string | undefined;
  /** When its call began, by its own clock. */
  readonly since: Date | undefined;
  /** Its work threw. */
  readonly failed: boolean;
}

/** The modification revisions of the marks of a slot; `0n`: there is none. */
export interface Seen {
  readonly mark: bigint;
  readonly oldMark: bigint;
}

export const NO_MARK: Seen = { mark: 0n, oldMark: 0n };

/** The state of a slot at one revision, and of its queue. */
export type Verdict = { readonly seen: Seen; readonly isEmpty: boolean } & (
  | { readonly state: "free" }
  | { readonly state: "expired" }
  | { readonly state: "done" | "running" | "lost"; readonly run: OnceRun }
);

/** What a verdict is made of, in this order: the floors from the slot on, its mark, the oldest entry of the queue; old ones. */
export function evidence({ space, oldSpace, name, slot }: SlotPlan): readonly Operation[] {
  const marksIn = (marks: MarkSpace): readonly Operation[] => [
    { kind: "range", ...marks.floorsFrom(slot), limit: 1, keysOnly: true },
    { kind: "range", ...marks.mark(slot) },
  ];
  const oldest = {
    kind: "range",
    ...queueRange(name),
    order: "oldest first",
    limit: 1,
    keysOnly: true,
  } as const;
  return [...marksIn(space), oldest, ...(oldSpace ? marksIn(oldSpace) : [])];
}

/**
 * The state of a slot, by the answers to `evidence` at one revision. A mark with `ownId` does not count: an attempt of this
 * call has put it, which has lost its entry since, and the work has not begun.
 */
export function verdictOf(
  plan: SlotPlan,
  ranges: readonly (RangeResult | undefined)[],
  ownId: string | undefined,
): Verdict {
  const [floor, kv, oldest, oldFloor, oldKv] = ranges.map((range) => range?.kvs[0]);
  const seen = { mark: kv?.modRevision ?? 0n, oldMark: oldKv?.modRevision ?? 0n };
  const common = { seen, isEmpty: oldest === undefined };
  if (floor ?? oldFloor) return { state: "expired", ...common };
  const last = kv ?? oldKv;
  const mark = last && parseMark(last);
  if (!last || (ownId !== undefined && mark?.id === ownId)) return { state: "free", ...common };
  const entry = oldest && {
    key: kv ? plan.complete(oldest.key.toString()) : oldest.key.toString(),
    fence: String(oldest.createRevision),
  };
  return { state: stateOf(last, mark, entry), ...common, run: runOf(mark) };
}

/** A value of unknown form never lets the work run a second time. */
function stateOf(
  { modRevision }: KeyValue,
  mark: Partial<Mark> | undefined,
  oldest: Pick<Mark, "key" | "fence"> | undefined,
): "done" | "running" | "lost" {
  if (mark?.state !== "started") return "done";
  const fence = mark.fence ?? String(modRevision);
  // A run holds, so while its entry exists, that is the oldest one.
  return oldest?.key === mark.key && oldest?.fence === fence ? "running" : "lost";
}

function runOf(mark: Partial<Mark> | undefined): OnceRun {
  const since = new Date(mark?.since ?? NaN);
  return {
    owner: typeof mark?.owner === "string" ? mark.owner : undefined,
    since: Number.isNaN(since.getTime()) ? undefined : since,
    failed: mark?.state === "failed",
  };
}
