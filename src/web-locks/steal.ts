import { HoldHandle } from "../hold/hold.js";
import { queueRange } from "../queue/lock-mode.js";
import type { Queue } from "../queue/queue.js";
import { heldAndPending, webLockEntryIn, type WebLockEntry } from "./names.js";

/**
 * Deletes the entries before the one with this create revision: those of waiters first, and after that those of holders.
 * If both were deleted at once, a waiter could acquire the lock before it is notified of its own deletion. After that the
 * queue decides whose turn it is, as always.
 */
export async function stealFromEarlier(queue: Queue, revision: bigint): Promise<void> {
  const { lease, name } = queue;
  const earlier = { ...queueRange(name), order: "oldest first", maxCreateRevision: revision - 1n } as const;
  const { kvs } = await lease.services.client.range(earlier, lease.policy(`steal "${name}"`));
  const { held, pending } = heldAndPending(kvs.map((kv) => webLockEntryIn(name, kv)));
  // From the back, so that no deletion wakes a waiter that is deleted next.
  await remove(queue, pending.toReversed());
  await remove(queue, held);
}

async function remove({ lease, name }: Queue, entries: readonly WebLockEntry[]): Promise<void> {
  const { client, options } = lease.services;
  const stolen = entries.filter(({ foreign }) => !foreign);
  await Promise.all(
    stolen.map(({ kv: { key, createRevision } }) => {
      const txn = {
        // Only its own key, so that all of them are sent together in one request.
        queues: [key.toString()],
        compare: [{ kind: "created at", key, revision: createRevision }],
        success: [{ kind: "delete", key }],
        failure: [],
      } as const;
      return client.txn(txn, lease.policy(`steal "${name}"`));
    }),
  );
  const gone = new Map(stolen.map(({ kv }) => [`${options.prefix}${kv.key.toString()}`, kv.createRevision]));
  // A short hold has no watch, so the holds of this session are notified here.
  for (const hold of lease.holds) {
    if (hold instanceof HoldHandle && gone.get(hold.key) === hold.revision) void hold.keyDeleted();
  }
}
