import type { Timer } from "../../../src/base/util/clock.js";
import { LOST_MS, type Cluster } from "../../../src/testing/memory/raft/cluster.js";
import type { Scheduler } from "../../../src/testing/memory/event-queue.js";

const LOOK_MS = 100;

/**
 * Calls `then` once, with the time from which on the cluster has served since a fault was healed. An election has no upper bound, and
 * after it etcd may lose a read. The checker therefore gets the time at which that was over, and not an estimate. Returns a function
 * that ends the wait now.
 */
export function whenServing(
  scheduler: Scheduler,
  cluster: Pick<Cluster, "serves">,
  then: (since: number) => void,
): () => void {
  let since = scheduler.now;
  let timer: Timer | undefined;
  const end = (at: number): void => {
    timer?.cancel();
    timer = undefined;
    then(at);
  };
  const look = (): void => {
    const { now } = scheduler;
    if (!cluster.serves) since = now;
    // A read that was sent until LOST_MS after `since`, and lost, would be known by now: a new leader may drop the first ones.
    if (now - since >= 2 * LOST_MS) end(since);
    else timer = scheduler.after(LOOK_MS, look);
  };
  look();
  return () => {
    if (timer !== undefined) end(scheduler.now);
  };
}
