import { Feed } from "../observe/feed.js";
import { QueueWatch, snapshotOf } from "../observe/queue-watch.js";
import type { KeyValue } from "../etcd/port.js";
import { queueRange } from "../queue/lock-mode.js";
import type { EtcdServices } from "../session/connection.js";
import { candidates, leaderOf, sameLeader, type Leader } from "./leader.js";

/** A consumer that has stopped reading must not fill the memory: of more unread items, the oldest are dropped. */
const MAX_UNREAD = 1000;

const keep = (kv: KeyValue): KeyValue => kv;

/** The iterator of `observe()`. Starts with the first `next()`. */
export class Observation extends Feed<Leader | undefined> {
  constructor(services: EtcdServices, name: string, signal: AbortSignal | undefined) {
    const what = `observe the election "${name}"`;
    super({
      services,
      signal,
      maxUnread: MAX_UNREAD,
      same: sameLeader,
      start: ({ item, failed }) =>
        new QueueWatch<KeyValue>(
          {
            ...{ services, range: queueRange(name), what, keep },
            read: async (policy) => snapshotOf(await services.client.range(candidates(name), policy), keep),
          },
          {
            changed: ({ keys }) => {
              const [oldest] = keys.values();
              item(leaderOf(name, oldest, services.options.prefix));
            },
            failed,
          },
        ),
    });
  }
}
