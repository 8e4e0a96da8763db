import type { Compare, Operation, Txn } from "../etcd/port.js";
import type { JoinedEntry, QueueEntry } from "../queue/entry.js";
import { queueRange } from "../queue/lock-mode.js";
import { own, put } from "../queue/txns.js";
import { txnUntilConfirmed } from "../session/cleanup.js";
import type { Lease } from "../session/lease.js";
import { putMark, unchanged, type Expiry, type Mark } from "./marks.js";
import type { SlotPlan } from "./plan.js";
import { evidence, type Seen } from "./verdict.js";

// All of them name the queue, so that no two transactions on the marks of one name share a request.

/** The mark to put, if those of the slot are as they were seen. */
export interface Begun {
  readonly mark: Mark;
  readonly seen: Seen;
}

/** The slot has not expired, and its marks are as they were seen. */
function mayRun({ space, oldSpace, slot }: SlotPlan, seen: Seen): readonly Compare[] {
  const compares: Compare[] = [
    unchanged(space.mark(slot), seen.mark),
    { kind: "nothing in", ...space.floorsFrom(slot) },
  ];
  if (!oldSpace) return compares;
  return [
    ...compares,
    unchanged(oldSpace.mark(slot), seen.oldMark),
    { kind: "nothing in", ...oldSpace.floorsFrom(slot) },
  ];
}

const lowest = ({ space }: SlotPlan): Operation => ({ kind: "range", ...space.lowest() });

/** What tells a call whose transaction has changed nothing why that is so. */
const whyNot = (plan: SlotPlan, entry: QueueEntry): readonly Operation[] => [own(entry), ...evidence(plan)];

/** Takes the lock and puts the mark, if the queue is empty. */
export const tryTxn = (plan: SlotPlan, entry: QueueEntry, { mark, seen }: Begun): Txn => ({
  queues: [plan.name],
  compare: [{ kind: "nothing in", ...queueRange(plan.name) }, ...mayRun(plan, seen)],
  success: [put(entry), putMark(plan.at, mark), lowest(plan)],
  failure: whyNot(plan, entry),
});

/** Puts the mark under the hold of `entry`. */
export const beginTxn = (plan: SlotPlan, entry: JoinedEntry, { mark, seen }: Begun): Txn => ({
  queues: [plan.name],
  compare: [holds(entry), ...mayRun(plan, seen)],
  success: [putMark(plan.at, mark), lowest(plan)],
  failure: whyNot(plan, entry),
});

/** Marks the slot as run, and deletes the marks that are too many. `revision`: of the entry in the mark. */
export function endTxn(
  plan: SlotPlan,
  revision: bigint,
  { mark, expiry }: { readonly mark: Mark; readonly expiry: Expiry },
): Txn {
  const { at } = plan;
  // A request may not put and delete the same key.
  const ended = expiry.expires.has(at.key) ? [] : [putMark(at, mark)];
  return {
    queues: [plan.name],
    compare: [{ ...holds({ key: mark.key, revision }), complete: true }],
    success: [...ended, ...expiry.operations],
    failure: [{ kind: "range", ...at }],
  };
}

const holds = ({ key, revision }: Pick<JoinedEntry, "key" | "revision">): Compare => ({
  kind: "created at",
  key,
  revision,
});

/** The condition that the mark is this one. */
export const markIs = (plan: SlotPlan, mark: Mark): Compare => ({
  kind: "value is",
  ...plan.at,
  value: JSON.stringify(mark),
});

/** Deletes the mark of a run that has not begun. Never rejects: with the session, the slot counts as lost. */
export async function undo(lease: Lease, plan: SlotPlan, when: Compare): Promise<void> {
  const { at, name } = plan;
  const txn: Txn = {
    queues: [name],
    compare: [when],
    success: [{ kind: "delete", ...at }],
    failure: [],
  };
  const undone = txnUntilConfirmed(lease, txn, lease.policy(`give back ${plan.text}`));
  await lease.inFlight.track(undone).catch(() => undefined);
}
