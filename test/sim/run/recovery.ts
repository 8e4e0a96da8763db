import type { Timer } from "../../../src/async/clock.js";
import { LOST_MS, type Cluster } from "../etcd/raft/cluster.js";
import type { Scheduler } from "../kernel/kernel.js";

const LOOK_MS = 100;

/**
 * Calls `then` once, with the time from which on the cluster has served since a fault was healed. An election has no upper bound, and
 * after it etcd may lose a read: the checker gets the times at which that was over, and not an estimate. The function that it returns
 * ends the wait: another fault has begun.
 */
export function whenServing(
  scheduler: Scheduler,
  cluster: Cluster,
  then: (since: number) => void,
): () => void {
  let since = scheduler.now;
  let timer: Timer | undefined;
  const look = (): void => {
    const { now } = scheduler;
    if (!cluster.serves) since = now;
    // A read that was lost before `since` would be known by now.
    if (now - since >= LOST_MS) then(since);
    else timer = scheduler.after(LOOK_MS, look);
  };
  look();
  return () => {
    timer?.cancel();
    then(scheduler.now);
  };
}
