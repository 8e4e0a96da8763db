import type { Key, World } from "../../../lab/model/world.js";
import { end, isOver, over, take } from "./world-of.js";

/** What one revision changed in one queue. */
export interface QueueChange {
  readonly revision: number;
  readonly puts: readonly Key[];
  /** The keys that existed and do not any more. */
  readonly deletes: readonly Key[];
  /** Keys that existed and were put again, with their new values. */
  readonly rewrites: readonly Key[];
  /** An administrator did it. */
  readonly byHand: boolean;
  /** The lease of the deleted keys is gone, too. */
  readonly leaseEnded: boolean;
  /** The owners of sessions whose processes are stopped. */
  readonly stopped: ReadonlySet<string>;
}

interface Whose {
  readonly lease: string;
  readonly isStopped: boolean;
}

/** What other sessions do is given. What this session's requests do must be a step of the model. */
export function changed(before: World, change: QueueChange, { lease, isStopped }: Whose): World[] {
  const { puts, deletes, rewrites } = change;
  const world = rewrites.length > 0 ? rewritten(before, rewrites) : before;
  const mine = [...puts, ...deletes].some((key) => isOf(key, lease));
  if (!mine) return [byOthers(world, change)];
  return candidates(world, change, isStopped).filter((next) => shows(next, change));
}

/** Keys of a queue have the lease in their names. */
export const isOf = ({ key }: { readonly key: string }, lease: string): boolean =>
  key.slice(key.lastIndexOf("/") + 1).split("-")[0] === lease;

function candidates(world: World, change: QueueChange, isStopped: boolean): World[] {
  const { revision, byHand, leaseEnded } = change;
  const before = { ...world, revision: revision - 1 };
  const executed = [...take(before, "arrives"), ...take(before, "late arrives")];
  if (byHand) {
    // A lease whose client is gone may be revoked before it runs out: the same keys are deleted.
    const ended = leaseEnded && isOver(before) ? take(before, "run out") : [];
    const purged = take(before, "purges");
    return [...executed, ...take(before, "deletions"), ...purged, ...take(before, "revokes"), ...ended];
  }
  if (!leaseEnded) return executed;
  // Its client gives the session up before etcd ends the lease.
  const given = isOver(before) ? [before] : over(before);
  const ended = given.flatMap((next) => take(next, "run out"));
  return [...executed, ...ended, ...(isStopped ? take(before, "revokes").map(withoutHolders) : [])];
}

/**
 * A process that goes on may handle what it has received before it reads its clock: not as a holder, since each use of a hold
 * reads the clock.
 */
function withoutHolders(world: World): World {
  for (const caller of world.callers) if (caller.state.at === "holding") end(caller);
  return world;
}

/** It changes nothing in the order of a queue. */
function rewritten(world: World, rewrites: readonly Key[]): World {
  const values = new Map(rewrites.map(({ key, value }) => [key, value]));
  const keys = world.keys.map((key) =>
    key.deleted === 0 && values.has(key.key) ? { ...key, value: values.get(key.key)! } : key,
  );
  return { ...world, keys };
}

function shows(next: World, { revision, puts, deletes }: QueueChange): boolean {
  if (next.revision !== revision) return false;
  const at = next.keys.filter(({ created, deleted }) => created === revision || deleted === revision);
  if (at.length !== puts.length + deletes.length) return false;
  const put = puts.every((key) =>
    at.some((other) => other.key === key.key && other.value === key.value && other.created === revision),
  );
  return (
    put && deletes.every((key) => at.some((other) => other.key === key.key && other.deleted === revision))
  );
}

function byOthers(world: World, { revision, puts, deletes }: QueueChange): World {
  const gone = new Set(deletes.map(({ key }) => key));
  const left = world.keys.map((key) =>
    key.deleted === 0 && gone.has(key.key) ? { ...key, deleted: revision, deletedBy: "hand" as const } : key,
  );
  return { ...world, keys: [...left, ...puts], revision };
}
