import type { Compare, Operation, Txn } from "../etcd/port.js";
import type { JoinedEntry, QueueEntry } from "../queue/entry.js";
import { queueRange } from "../queue/lock-mode.js";
import { own, put } from "../queue/txns.js";
import { txnUntilConfirmed } from "../session/cleanup.js";
import type { Lease } from "../session/lease.js";
import { putMark, unchanged, type Mark } from "./marks.js";
import type { SlotPlan } from "./plan.js";
import { evidence } from "./verdict.js";

// All of them name the queue, so that no two transactions on the marks of one name share a request.

/** The slot has not expired, and its mark is as it was seen. */
const mayRun = ({ space, slot, markKey }: SlotPlan, expected: bigint): readonly Compare[] => [
  unchanged(markKey, expected),
  { kind: "nothing in", ...space.floorsFrom(slot) },
];

const lowest = ({ space }: SlotPlan): Operation => ({ kind: "range", ...space.lowest() });

/** What tells a call whose transaction has changed nothing why that is so. */
const whyNot = (plan: SlotPlan, entry: QueueEntry): readonly Operation[] => [
  own(entry),
  ...evidence(plan.space, plan.name, plan.slot),
];

/** Takes the lock and puts the mark, if the queue is empty and the slot has no mark. */
export const tryTxn = (plan: SlotPlan, entry: QueueEntry, mark: Mark): Txn => ({
  queues: [plan.name],
  compare: [{ kind: "nothing in", ...queueRange(plan.name) }, ...mayRun(plan, 0n)],
  success: [put(entry), putMark(plan.markKey, mark), lowest(plan)],
  failure: whyNot(plan, entry),
});

/** Puts the mark under the hold of `entry`. */
export const beginTxn = (
  plan: SlotPlan,
  entry: JoinedEntry,
  { mark, expected }: { readonly mark: Mark; readonly expected: bigint },
): Txn => ({
  queues: [plan.name],
  compare: [holds(entry), ...mayRun(plan, expected)],
  success: [putMark(plan.markKey, mark), lowest(plan)],
  failure: whyNot(plan, entry),
});

/** Marks the slot as run, and deletes the marks that are too many. */
export function endTxn(
  plan: SlotPlan,
  entry: Pick<JoinedEntry, "key" | "revision">,
  { mark, expiry }: { readonly mark: Mark; readonly expiry: ReturnType<SlotPlan["space"]["expire"]> },
): Txn {
  const { markKey } = plan;
  // A request may not put and delete the same key.
  const ended = expiry.expires.has(markKey) ? [] : [putMark(markKey, mark)];
  return {
    queues: [plan.name],
    compare: [holds(entry)],
    success: [...ended, ...expiry.operations],
    failure: [{ kind: "range", key: markKey }],
  };
}

const holds = ({ key, revision }: Pick<JoinedEntry, "key" | "revision">): Compare => ({
  kind: "created at",
  key,
  revision,
});

/** Deletes the mark of a run that has not begun. Never rejects: with the session, the slot counts as lost. */
export async function undo(lease: Lease, plan: SlotPlan, mark: Mark): Promise<void> {
  const { markKey: key, name } = plan;
  const txn: Txn = {
    queues: [name],
    compare: [{ kind: "value is", key, value: JSON.stringify(mark) }],
    success: [{ kind: "delete", key }],
    failure: [],
  };
  const undone = txnUntilConfirmed(lease, txn, lease.policy(`give slot ${plan.slot} of "${name}" back`));
  await lease.inFlight.track(undone).catch(() => undefined);
}
