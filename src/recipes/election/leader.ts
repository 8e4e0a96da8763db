import type { KeyValue, Range } from "../../etcd/port.js";
import { delayedBy, pathOf } from "../../keys.js";
import { queueRange } from "../../lock/queue/lock-mode.js";
import type { EtcdServices } from "../../lock/session/connection.js";
import { Feed, QueueWatch } from "../../observe/queue-watch.js";
import { isCandidate } from "./candidates.js";

/** The leader of an election, as every client reads it. */
export interface Leader {
  readonly key: string;
  /** The value that it campaigned with or last proclaimed. */
  readonly value: string;
  /** Create revision of `key`, which strictly increases from leader to leader: the `revision` and `fence` of its Leadership. */
  readonly fence: bigint;
  /** Modification revision of `key`: increases with each `proclaim`. */
  readonly modRevision: bigint;
  readonly leaseId: bigint;
  /** bigints as decimal strings. */
  toJSON(): Readonly<Record<"key" | "value" | "fence" | "modRevision" | "leaseId", string>>;
}

/** The keys from which `leaderOf` learns of the leader. */
export const leaderRange = (path: string): Range => ({
  ...queueRange(path),
  order: "oldest first",
  limit: 2,
});

/** The leader, given the two oldest keys under the name: the older one may be the delay key of the other. */
export function leaderOf(
  path: string,
  [first, second]: readonly (KeyValue | undefined)[],
): Leader | undefined {
  const oldest = first && second && isDelayOf(first, second) ? second : first;
  if (oldest === undefined) return undefined;
  const key = oldest.key.toString();
  const { value, createRevision, modRevision, leaseId } = oldest;
  // The entry of a lock under the name of the election, or one of a name below this one: while it is first, there is no leader.
  if (!isCandidate(path, key, value)) return undefined;
  const leader = { key, value, fence: createRevision, modRevision, leaseId };
  const toJSON = (): ReturnType<Leader["toJSON"]> => ({
    key,
    value,
    fence: createRevision.toString(),
    modRevision: modRevision.toString(),
    leaseId: leaseId.toString(),
  });
  // Not enumerable, so that logs and comparisons see only the data.
  return Object.defineProperty(leader, "toJSON", { value: toJSON }) as Leader;
}

const isDelayOf = (delay: KeyValue, { key, createRevision }: KeyValue): boolean =>
  delay.createRevision === createRevision && delayedBy(delay.key.toString()) === key.toString();

/** Only the delay key of a leader that has crashed is left, with the value that it campaigned with. */
const isDelayOfLeader = ({ key, fence }: Leader, last: Leader | undefined): boolean =>
  fence === last?.fence && delayedBy(key) === last.key;

/** Whether both are the same leader with the same proclamation, or both are vacancies. */
export const sameLeader = (a: Leader | undefined, b: Leader | undefined): boolean =>
  a?.key === b?.key && a?.modRevision === b?.modRevision;

/** A consumer that has stopped reading must not fill the memory: of more unread items, the oldest are dropped. */
const MAX_UNREAD = 1000;

/** The iterator of `observe()`. Starts with the first `next()`. */
export class Observation extends Feed<Leader | undefined> {
  constructor(services: EtcdServices, name: string, signal: AbortSignal | undefined) {
    const what = `observe the election "${name}"`;
    const path = pathOf(services, name);
    let last: Leader | undefined;
    super({
      services,
      signal,
      maxUnread: MAX_UNREAD,
      size: (leader) => leader?.value.length ?? 0,
      same: sameLeader,
      start: ({ item, failed }) =>
        new QueueWatch<KeyValue>(
          { services, range: queueRange(path), what, keep: (kv) => kv },
          {
            changed: ({ keys }) => {
              const [first, second] = keys.values();
              const leader = leaderOf(path, [first, second]);
              if (!leader || !isDelayOfLeader(leader, last)) last = leader;
              item(last);
            },
            failed,
          },
        ),
    });
  }
}
