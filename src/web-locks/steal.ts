import { HoldHandle } from "../hold/hold.js";
import { queueRange } from "../queue/lock-mode.js";
import type { Queue } from "../queue/queue.js";
import { heldAndPending, webLockEntryIn, type WebLockEntry } from "./names.js";

/**
 * Deletes the places before the one with this create revision. Those who wait first, and when that is done those who
 * hold: were both gone at once, one who waited could take the lock before it hears of its own end. Whose turn it is
 * then the queue decides, as for everybody.
 */
export async function stealFromEarlier(queue: Queue, revision: bigint): Promise<void> {
  const { lease, name } = queue;
  const earlier = { ...queueRange(name), order: "oldest first", maxCreateRevision: revision - 1n } as const;
  const { kvs } = await lease.connection.client.range(earlier, lease.policy(`steal "${name}"`));
  const { held, pending } = heldAndPending(kvs.map((kv) => webLockEntryIn(name, kv)));
  // From the back: nobody is woken to find that he is next.
  await remove(queue, pending.toReversed());
  await remove(queue, held);
}

async function remove({ lease, name }: Queue, places: readonly WebLockEntry[]): Promise<void> {
  const { client } = lease.connection;
  const robbed = places.filter(({ foreign }) => !foreign);
  await Promise.all(
    robbed.map(({ kv: { key, createRevision } }) => {
      const txn = {
        // Its own key alone: so they leave together, in one request.
        queues: [key.toString()],
        compare: [{ kind: "created at", key, revision: createRevision }],
        success: [{ kind: "delete", key }],
        failure: [],
      } as const;
      return client.txn(txn, lease.policy(`steal "${name}"`));
    }),
  );
  const gone = new Map(robbed.map(({ kv }) => [kv.key.toString(), kv.createRevision]));
  // Nobody watches a short hold: our own ones hear of it here.
  for (const hold of lease.holds) {
    if (hold instanceof HoldHandle && gone.get(hold.key) === hold.revision) void hold.keyDeleted();
  }
}
