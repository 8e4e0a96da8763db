import { systemClock, pause } from "../../async/clock.js";
import { watchQueue, type Cluster, type QueueState } from "../../index.js";
import { contenderJson } from "../command-line/contender-json.js";
import type { WaitingJson } from "../command-line/json-types.js";
import type { Teller } from "./teller.js";

/** A person reads a status that changes in place; a log is not to be filled. */
const [UPDATE_PAUSE_MS, LINE_PAUSE_MS] = [100, 2000];

/** Tells who holds and how many are ahead, whenever that changes, until `signal` aborts. */
export async function tellWaiting(
  cluster: Cluster,
  name: string,
  { teller, signal }: { readonly teller: Teller; readonly signal: AbortSignal },
): Promise<void> {
  let last = "";
  try {
    for await (const state of watchQueue(cluster, name, { limit: 1000, signal })) {
      const told = described(name, state, ownLeases(cluster));
      if (told && told.text !== last) teller.status(told.text, told.json);
      last = told?.text ?? last;
      // Of the states in the meantime, the loop gets the latest one only.
      if (told) await pause(systemClock, teller.updates ? UPDATE_PAUSE_MS : LINE_PAUSE_MS, signal);
    }
  } catch {
    // The acquisition reports what is wrong with etcd, and the abort ends this loop.
    return;
  }
}

/** The session is open before the entry is in the queue; the answer to the join may come after the state that shows it. */
const ownLeases = (cluster: Cluster): readonly bigint[] =>
  cluster.snapshot().sessions.map(({ leaseId }) => leaseId);

function described(
  name: string,
  { holders, waiters, total }: QueueState,
  own: readonly bigint[],
): { readonly text: string; readonly json: WaitingJson } | undefined {
  const rank = waiters.findIndex(({ leaseId }) => own.includes(leaseId));
  const [holder] = holders;
  // Before the first state that has our own entry, and after the grant, there is nothing to say.
  if (!holder || rank === -1) return undefined;
  const others = total.holders > 1 ? ` and ${total.holders - 1} more` : "";
  const ahead = rank === 0 ? "next in the queue" : `${rank} ahead in the queue`;
  return {
    text: `waiting for ${name}: held by ${holder.owner ?? holder.key}${others}, ${ahead}`,
    json: { event: "waiting", name, holder: contenderJson(holder), total, ahead: rank },
  };
}
