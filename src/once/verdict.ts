import type { KeyValue, Operation } from "../etcd/port.js";
import { queueRange } from "../queue/lock-mode.js";
import type { RangeResult } from "../queue/lock-mode.js";
import { parseMark, type Mark, type MarkSpace } from "./marks.js";

/** Another run of a slot. */
export interface OnceRun {
  /** `owner` of the session that ran it. */
  readonly owner: string | undefined;
  /** When its call began, by its own clock. */
  readonly since: Date | undefined;
  /** Its work threw. */
  readonly failed: boolean;
}

/** The state of a slot at one revision. `revision`: see `unchanged`. */
export type Verdict =
  | { readonly state: "free"; readonly revision: bigint }
  | { readonly state: "expired" }
  | {
      readonly state: "done" | "running" | "lost";
      readonly revision: bigint;
      readonly run: OnceRun;
    };

/** What a verdict is made of, in this order: the floors from the slot on, its mark, the oldest entry of the queue. */
export const evidence = (space: MarkSpace, name: string, slot: number): readonly Operation[] => [
  { kind: "range", ...space.floorsFrom(slot), limit: 1, keysOnly: true },
  { kind: "range", key: space.mark(slot) },
  { kind: "range", ...queueRange(name), order: "oldest first", limit: 1, keysOnly: true },
];

/**
 * The state of a slot, by the answers to `evidence` at one revision. A mark with `ownId` does not count: an attempt of this
 * call has put it, which has lost its entry since, and the work has not begun.
 */
export function verdictOf(ranges: readonly (RangeResult | undefined)[], ownId: string | undefined): Verdict {
  const [floor, kv, oldest] = ranges.map((range) => range?.kvs[0]);
  if (floor) return { state: "expired" };
  if (!kv) return { state: "free", revision: 0n };
  const { modRevision: revision } = kv;
  const mark = parseMark(kv);
  if (ownId !== undefined && mark?.id === ownId) return { state: "free", revision };
  return { state: stateOf(kv, mark, oldest), revision, run: runOf(mark) };
}

/** A value of unknown form never lets the work run a second time. */
function stateOf(
  { modRevision }: KeyValue,
  mark: Partial<Mark> | undefined,
  oldest: KeyValue | undefined,
): "done" | "running" | "lost" {
  if (mark?.state !== "started") return "done";
  const fence = mark.fence ?? String(modRevision);
  // A run holds, so while its entry exists, that is the oldest one.
  const running = oldest?.key.toString() === mark.key && String(oldest?.createRevision) === fence;
  return running ? "running" : "lost";
}

function runOf(mark: Partial<Mark> | undefined): OnceRun {
  const since = new Date(mark?.since ?? NaN);
  return {
    owner: typeof mark?.owner === "string" ? mark.owner : undefined,
    since: Number.isNaN(since.getTime()) ? undefined : since,
    failed: mark?.state === "failed",
  };
}
