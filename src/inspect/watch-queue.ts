import { Feed } from "../observe/feed.js";
import { QueueWatch, type QueueListener, type QueueSnapshot } from "../observe/queue-watch.js";
import { checkName, checkOptions, checkSignal } from "../options/check.js";
import type { CallPolicy } from "../etcd/retry.js";
import { queueRange } from "../queue/lock-mode.js";
import type { Cluster } from "../session/cluster.js";
import { servicesOf, type EtcdServices } from "../session/connection.js";
import { atOneRevision } from "./ask.js";
import { entryOf, type InspectedKey } from "./entry.js";
import { splitQueue } from "./holders.js";
import { checkLimit, type LimitOption } from "./inspect.js";
import { readEntries } from "./read-queue.js";
import { stateOf, type QueueState } from "./state.js";

/** The options of `watchQueue()`. */
export interface WatchQueueOptions extends LimitOption {
  /** An abort ends the loop, which throws the signal's own reason. */
  readonly signal?: AbortSignal | undefined;
}

/**
 * Yields the present state of the queue, then its state after every revision that changed it, in order, with no gap between
 * the first read and the changes. Of several states that the consumer has not read yet, because it is slow or because they
 * arrived together, it gets the latest one only; the last state is never lost.
 * It starts with the first `next()`, needs no session, and continues through outages of etcd: the changes of an outage
 * follow after it. Changes that etcd has compacted, or lost in a restore, are collapsed into the latest state.
 * `ttlRemainingMs` of all contenders is undefined, because leases change without a revision: `inspect()` reads them.
 * Leave the loop to stop. On abort, or when the cluster is closed, the loop throws the reason.
 * @throws {EtcdRefusedError} from the loop, if etcd rejects a request.
 * @throws {TypeError | RangeError} at once, on a bad name or bad options.
 */
export function watchQueue(
  cluster: Cluster,
  name: string,
  options?: WatchQueueOptions,
): AsyncIterableIterator<QueueState> {
  checkName(name);
  const { signal } = checkOptions("watchQueue", options, ["signal", "limit"]);
  const limit = checkLimit("watchQueue", options, ["signal"]);
  const services = servicesOf(cluster);
  const { prefix } = services.options;
  return new Feed<QueueState>({
    services,
    signal: checkSignal(signal),
    maxUnread: 1,
    same: () => false,
    start: ({ item, failed }) => {
      const changed = ({ revision, keys }: QueueSnapshot<InspectedKey>): void =>
        item(stateOf({ name, prefix, revision, split: splitQueue([...keys.values()]), limit }));
      return watch(services, name, { changed, failed });
    },
  });
}

const watch = (
  services: EtcdServices,
  name: string,
  listener: QueueListener<InspectedKey>,
): QueueWatch<InspectedKey> =>
  new QueueWatch(
    {
      ...{ services, range: queueRange(name), what: `watch the queue of "${name}"` },
      keep: (kv) => entryOf(name, kv),
      read: (policy) => snapshot(services, name, policy),
    },
    listener,
  );

async function snapshot(
  services: EtcdServices,
  name: string,
  policy: CallPolicy,
): Promise<QueueSnapshot<InspectedKey>> {
  const { revision, entries } = await atOneRevision(() => readEntries({ services, policy }, name));
  const latin1 = ({ key }: InspectedKey): string => Buffer.from(key).toString("latin1");
  return { revision, keys: new Map(entries.map((entry) => [latin1(entry), entry])) };
}
